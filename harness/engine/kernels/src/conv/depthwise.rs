//! The filter gradient of depthwise convolutions: each kernel element is a sum over pixels of lane-wise products.

use super::ConvShape;
use super::frame::{Frame, Maps, Reach};
use crate::aligned::AlignedBuf;
use crate::blocked::C0;
use crate::isa::Isa;
use crate::micro::depthwise::{MAX_TAPS, run};
use crate::parallel::pieces;
use rayon::prelude::*;
use std::cell::RefCell;

/// Elements of a step's frame, for the first-level cache.
const FRAME_LEN: usize = 8 << 10;

thread_local! {
    static FRAME: RefCell<AlignedBuf> = RefCell::default();
}

/// See [`super::filter_gradient`]; `dw` is `[c1][kh][kw][16 c]`.
pub(crate) fn filter_gradient(isa: Isa, shape: &ConvShape, x: Maps<'_>, dy: &[f32], dw: &mut [f32]) {
    let (source, output) = (shape.input(), shape.output());
    let offsets = shape.tap_offsets();
    let reach = Reach::new([output.h, output.w], shape.stride, &offsets);
    let rows = (FRAME_LEN / (shape.stride[0] * source.w * C0)).clamp(1, output.h);
    let frame = Frame::new(reach, &x, &source, 1, rows);
    let taps: Vec<usize> = offsets.iter().map(|&offset| frame.tap(offset)).collect();
    let tap_chunks = taps.len().div_ceil(MAX_TAPS);
    let tasks: Vec<_> = dw
        .chunks_exact_mut(taps.len() * C0)
        .enumerate()
        .flat_map(|(block, part)| {
            let mut rest = part;
            pieces(taps.len(), tap_chunks).map(move |taps| {
                let (sums, after) = std::mem::take(&mut rest).split_at_mut(taps.len() * C0);
                rest = after;
                (block, taps, sums)
            })
        })
        .collect();
    tasks.into_par_iter().with_max_len(1).for_each(|(block, tap_range, sums)| {
        FRAME.with_borrow_mut(|scratch| {
            sums.fill(0.0);
            for image in 0..source.n {
                let gradient = &dy[output.plane(image, block)];
                for step in 0..output.h.div_ceil(rows) {
                    let rows = step * rows..((step + 1) * rows).min(output.h);
                    let data = match x {
                        Maps::Blocked(data) if frame.direct => {
                            &data[image * frame.image_pitch + block * frame.block_pitch..]
                        }
                        _ => copied(&frame, scratch, |part| {
                            frame.copy(&x, &source, image, block..block + 1, rows.clone(), part);
                        }),
                    };
                    for row in rows.clone() {
                        let gradient = &gradient[row * output.w * C0..(row + 1) * output.w * C0];
                        let at = frame.row(rows.start) + (row - rows.start) * frame.row_step();
                        run(isa, &data[at..], &taps[tap_range.clone()], gradient, sums);
                    }
                }
            }
            if (block + 1) * C0 > shape.c_in {
                for row in sums.chunks_exact_mut(C0) {
                    row[shape.c_in - block * C0..].fill(0.0);
                }
            }
        });
    });
}

fn copied<'s>(frame: &Frame, scratch: &'s mut AlignedBuf, copy: impl FnOnce(&mut [f32])) -> &'s [f32] {
    scratch.grow(frame.image_pitch);
    copy(&mut scratch[..frame.image_pitch]);
    scratch
}
