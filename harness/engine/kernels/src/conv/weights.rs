//! Packed weights: matrices of 16 x 16 channels, and their conversion from and to OIHW.
//!
//! Packed for the forward convolution and its filter gradient: `[o1][i1][kh][kw][i][16 o]`, where `o1` and `i1` are
//! blocks of output and input channels and `i` counts the min(16, c_in) channels of an input block. It is what
//! Ascend calls FRACTAL_Z with its two inner axes exchanged. With groups, `i1` runs over the input blocks that the
//! output block sees, and weights between channels of different groups are zero. Depthwise weights are
//! `[c1][kh][kw][16 c]`. Lanes beyond the last channel are zero.
//!
//! Transposed for the input gradient: `[i1][o1][kh][kw][o][16 i]`, likewise.

use super::ConvShape;
use crate::blocked::{C0, channel_blocks};
use crate::isa::Isa;
use crate::simd::{pixels, pixels_mut, vectorised};
use rayon::prelude::*;
use std::ops::Range;

/// Bytes of weights that a thread converts at a time, so that threads do not quarrel over crumbs.
const GRAIN: usize = 64 << 10;

/// Which convolution weights are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// The forward convolution: output channels are destinations.
    Forward,
    /// The input gradient: input channels are, and kernels are turned around.
    Transposed,
}

impl Direction {
    /// Blocks of destination and source channels.
    pub(super) fn blocks(self, shape: &ConvShape) -> [usize; 2] {
        let (input, output) = (shape.input().c1(), shape.output().c1());
        match self {
            Self::Forward => [output, input],
            Self::Transposed => [input, output],
        }
    }
}

/// Which parts (matrices of one source and one destination block, for all taps) there are, and in which order.
#[derive(Clone, Debug)]
pub(crate) struct PackedLayout {
    /// (destination block, source block) of each part.
    parts: Vec<(usize, usize)>,
    /// Parts of each destination block; their source blocks are consecutive.
    rows: Vec<Range<usize>>,
    /// Rows of 16 weights of each tap of a part: its source channels, or one if depthwise.
    lanes: usize,
    taps: usize,
}

impl PackedLayout {
    /// The layout for the forward convolution: destinations are output channels.
    pub(crate) fn forward(shape: &ConvShape) -> Self {
        Self::new(shape, shape.c_out, shape.c_in)
    }

    /// The layout for the input gradient: destinations are input channels.
    pub(crate) fn transposed(shape: &ConvShape) -> Self {
        Self::new(shape, shape.c_in, shape.c_out)
    }

    fn new(shape: &ConvShape, dest: usize, source: usize) -> Self {
        if shape.is_depthwise() {
            let blocks = channel_blocks(dest);
            let parts = (0..blocks).map(|block| (block, block)).collect();
            return Self { parts, rows: (0..blocks).map(|b| b..b + 1).collect(), lanes: 1, taps: shape.taps() };
        }
        let (dest_of_group, source_of_group) = (dest / shape.groups, source / shape.groups);
        let mut parts = Vec::new();
        let mut rows = Vec::with_capacity(channel_blocks(dest));
        for block in 0..channel_blocks(dest) {
            let last_channel = (block * C0 + C0).min(dest) - 1;
            let first_source = block * C0 / dest_of_group * source_of_group;
            let end_source = (last_channel / dest_of_group + 1) * source_of_group;
            let start = parts.len();
            parts.extend((first_source / C0..channel_blocks(end_source)).map(|source| (block, source)));
            rows.push(start..parts.len());
        }
        Self { parts, rows, lanes: source.min(C0), taps: shape.taps() }
    }

    /// Elements of a part.
    pub(crate) fn part_len(&self) -> usize {
        self.taps * self.tap_len()
    }

    /// Elements of one tap of a part.
    pub(crate) fn tap_len(&self) -> usize {
        self.lanes * C0
    }

    /// Taps of a part.
    pub(crate) fn taps(&self) -> usize {
        self.taps
    }

    /// Rows of 16 weights of each tap of a part.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes
    }

    /// Elements in all.
    pub(crate) fn len(&self) -> usize {
        self.parts.len() * self.part_len()
    }

    /// Source blocks that a destination block sees.
    pub(crate) fn sources(&self, dest: usize) -> Range<usize> {
        let row = &self.rows[dest];
        let first = self.parts[row.start].1;
        first..first + row.len()
    }

    /// Positions of the weights of a destination block.
    pub(crate) fn elements(&self, dest: usize) -> Range<usize> {
        let row = &self.rows[dest];
        row.start * self.part_len()..row.end * self.part_len()
    }

    /// Positions of the weights between two blocks.
    pub(crate) fn part(&self, dest: usize, source: usize) -> Range<usize> {
        let index = self.rows[dest].start + source - self.sources(dest).start;
        index * self.part_len()..(index + 1) * self.part_len()
    }

    /// Zeroes the products of channels that are not connected: of different groups, or beyond the last output.
    pub(crate) fn clear_unconnected(&self, shape: &ConvShape, o1: usize, i1: usize, part: &mut [f32]) {
        if shape.groups == 1 && (o1 + 1) * C0 <= shape.c_out {
            return;
        }
        for (index, value) in part.iter_mut().enumerate() {
            let (o, i) = (o1 * C0 + index % C0, i1 * C0 + index / C0 % self.lanes);
            if o >= shape.c_out || o / shape.c_out_of_group() != i / shape.c_in_of_group() {
                *value = 0.0;
            }
        }
    }

    /// Runs `convert(dest block, source block, part)` for every part, in parallel.
    fn for_each_part(&self, packed: &mut [f32], convert: impl Fn(usize, usize, &mut [f32]) + Sync) {
        let grain = GRAIN.div_ceil(self.part_len() * size_of::<f32>());
        packed
            .par_chunks_exact_mut(self.part_len())
            .zip(&self.parts)
            .with_min_len(grain)
            .for_each(|(part, &(dest, source))| convert(dest, source, part));
    }
}

/// Elements of the packed weights of a convolution.
#[must_use]
pub fn packed_len(shape: &ConvShape) -> usize {
    PackedLayout::forward(shape).len()
}

/// Elements of the transposed weights of a convolution, the workspace of its input gradient.
#[must_use]
pub fn transposed_len(shape: &ConvShape) -> usize {
    if shape.is_depthwise() { 0 } else { PackedLayout::transposed(shape).len() }
}

/// Packs weights from OIHW, `[c_out, c_in / groups, kh, kw]`.
///
/// # Panics
/// If the lengths are not [`ConvShape::weight_len`] and [`packed_len`].
pub fn pack_weights(isa: Isa, shape: &ConvShape, oihw: &[f32], packed: &mut [f32]) {
    check(shape, oihw.len(), packed.len());
    let taps = shape.taps();
    if shape.is_depthwise() {
        for (block, part) in packed.chunks_exact_mut(taps * C0).enumerate() {
            for (tap, row) in part.chunks_exact_mut(C0).enumerate() {
                for (lane, value) in row.iter_mut().enumerate() {
                    *value = oihw.get((block * C0 + lane) * taps + tap).copied().unwrap_or(0.0);
                }
            }
        }
        return;
    }
    let layout = PackedLayout::forward(shape);
    let lanes = layout.lanes();
    layout.for_each_part(packed, |o1, i1, part| {
        if let Some(kernels) = whole_kernels(shape, o1, i1) {
            pack_whole(isa, &oihw[kernels], shape.c_in * taps, part);
            return;
        }
        part.fill(0.0);
        for o in 0..C0.min(shape.c_out - o1 * C0) {
            let (channels, from) = seen_channels(shape, o1 * C0 + o, i1);
            for (i, kernel) in channels.zip(oihw[from..].chunks_exact(taps)) {
                for (tap, &value) in kernel.iter().enumerate() {
                    part[(tap * lanes + i) * C0 + o] = value;
                }
            }
        }
    });
}

/// Unpacks weights, or their gradients, to OIHW.
///
/// # Panics
/// If the lengths are not [`packed_len`] and [`ConvShape::weight_len`].
pub fn unpack_weights(isa: Isa, shape: &ConvShape, packed: &[f32], oihw: &mut [f32]) {
    check(shape, oihw.len(), packed.len());
    let taps = shape.taps();
    if shape.is_depthwise() {
        for (channel, kernel) in oihw.chunks_exact_mut(taps).enumerate() {
            for (tap, value) in kernel.iter_mut().enumerate() {
                *value = packed[(channel / C0 * taps + tap) * C0 + channel % C0];
            }
        }
        return;
    }
    let layout = PackedLayout::forward(shape);
    let lanes = layout.lanes();
    let row_len = shape.c_in_of_group() * taps;
    oihw.par_chunks_mut(C0 * row_len).enumerate().for_each(|(o1, rows)| {
        for i1 in layout.sources(o1) {
            let part = &packed[layout.part(o1, i1)];
            if let Some(kernels) = whole_kernels(shape, o1, i1) {
                let first = o1 * C0 * row_len;
                unpack_whole(isa, part, row_len, &mut rows[kernels.start - first..kernels.end - first]);
                continue;
            }
            for o in 0..rows.len() / row_len {
                let (channels, from) = seen_channels(shape, o1 * C0 + o, i1);
                let start = from - o1 * C0 * row_len;
                for (i, kernel) in channels.zip(rows[start..].chunks_exact_mut(taps)) {
                    for (tap, value) in kernel.iter_mut().enumerate() {
                        *value = part[(tap * lanes + i) * C0 + o];
                    }
                }
            }
        }
    });
}

/// Transposes packed weights for the input gradient. Depthwise weights need no transposing: both lengths are then
/// those of an empty result.
///
/// # Panics
/// If the lengths are not [`packed_len`] and [`transposed_len`].
pub fn transpose_weights(isa: Isa, shape: &ConvShape, packed: &[f32], transposed: &mut [f32]) {
    assert_eq!(packed.len(), packed_len(shape), "packed weights");
    assert_eq!(transposed.len(), transposed_len(shape), "transposed weights");
    if shape.is_depthwise() {
        return;
    }
    let from = PackedLayout::forward(shape);
    let to = PackedLayout::transposed(shape);
    to.for_each_part(transposed, |i1, o1, part| {
        let source = &packed[from.part(o1, i1)];
        if from.lanes() == C0 && to.lanes() == C0 {
            transpose_whole(isa, source, part);
            return;
        }
        for (to_tap, from_tap) in part.chunks_exact_mut(to.tap_len()).zip(source.chunks_exact(from.tap_len())) {
            for (o, row) in to_tap.chunks_exact_mut(C0).enumerate() {
                for (i, value) in row.iter_mut().enumerate() {
                    *value = if i < from.lanes() { from_tap[i * C0 + o] } else { 0.0 };
                }
            }
        }
    });
}

/// Lanes of input block `i1` that output channel `o` sees, and where the first one's kernel lies in OIHW.
fn seen_channels(shape: &ConvShape, o: usize, i1: usize) -> (Range<usize>, usize) {
    let of_group = shape.c_in_of_group();
    let group_start = o / shape.c_out_of_group() * of_group;
    let start = group_start.max(i1 * C0);
    let end = (group_start + of_group).min(i1 * C0 + C0).max(start);
    let from = (o * of_group + start - group_start) * shape.taps();
    let first_lane = start - i1 * C0;
    (first_lane..first_lane + end - start, if end > start { from } else { o * of_group * shape.taps() })
}

/// Positions in OIHW from the first to the last kernel between two blocks, if both are full and all see each other.
fn whole_kernels(shape: &ConvShape, o1: usize, i1: usize) -> Option<Range<usize>> {
    let whole = shape.groups == 1 && (o1 + 1) * C0 <= shape.c_out && (i1 + 1) * C0 <= shape.c_in;
    let start = (o1 * C0 * shape.c_in + i1 * C0) * shape.taps();
    let end = start + ((C0 - 1) * shape.c_in + C0) * shape.taps();
    whole.then_some(start..end)
}

// The kernels between two full blocks are 16 rows `[i][tap]`, one per output channel, and a packed part is
// `[tap][i][16 o]`: it takes a transposition of each 16 consecutive columns, and a reordering of columns.

vectorised! {
    fn pack_whole(simd, kernels: &[f32], row_len: usize, part: &mut [f32]) -> () {
        let part = pixels_mut(part);
        let taps = part.len() / C0;
        for first in (0..part.len()).step_by(C0) {
            let mut rows = [simd.splat(0.0); C0];
            for (value, row) in rows.iter_mut().zip(kernels.chunks(row_len)) {
                if let Some(row) = row[first..].first_chunk() {
                    *value = simd.load(row);
                }
            }
            for (column, value) in (first..).zip(simd.transpose(rows)) {
                simd.store(value, &part[column % taps * C0 + column / taps]);
            }
        }
    }
}

vectorised! {
    fn unpack_whole(simd, part: &[f32], row_len: usize, kernels: &mut [f32]) -> () {
        let part = pixels(part);
        let taps = part.len() / C0;
        for first in (0..part.len()).step_by(C0) {
            let mut columns = [simd.splat(0.0); C0];
            for (value, column) in columns.iter_mut().zip(first..) {
                *value = simd.load(&part[column % taps * C0 + column / taps]);
            }
            for (row, value) in kernels.chunks_mut(row_len).zip(simd.transpose(columns)) {
                if let [to, ..] = pixels_mut(&mut row[first..]) {
                    simd.store(value, to);
                }
            }
        }
    }
}

vectorised! {
    fn transpose_whole(simd, source: &[f32], part: &mut [f32]) -> () {
        for (to, from) in pixels_mut(part).chunks_exact(C0).zip(pixels(source).chunks_exact(C0)) {
            let rows: [_; C0] = std::array::from_fn(|i| simd.load(&from[i]));
            for (to, row) in to.iter().zip(simd.transpose(rows)) {
                simd.store(row, to);
            }
        }
    }
}

fn check(shape: &ConvShape, oihw: usize, packed: usize) {
    assert_eq!(oihw, shape.weight_len(), "OIHW weights");
    assert_eq!(packed, packed_len(shape), "packed weights");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Blocked;
    use crate::conv::ConvParams;
    use proptest::prelude::*;

    fn shape(c_in: usize, c_out: usize, kernel: [usize; 2], groups: usize) -> ConvShape {
        let params = ConvParams::new(Blocked::new(1, c_in, 9, 9), c_out, kernel);
        ConvShape::new(ConvParams { groups, ..params }).unwrap()
    }

    fn counting(len: usize) -> Vec<f32> {
        (0..len).map(|i| (i + 1) as f32).collect()
    }

    #[test]
    fn dense_weights_lie_where_the_layout_says() {
        let shape = shape(35, 20, [2, 3], 1);
        let oihw = counting(shape.weight_len());
        let mut packed = vec![-1.0; packed_len(&shape)];
        pack_weights(Isa::best(), &shape, &oihw, &mut packed);
        // o = 17 (block 1, lane 1), i = 33 (block 2, lane 1), kh = 1, kw = 2; 3 input blocks, 6 taps.
        let at = (((3 + 2) * 6 + 5) * 16 + 1) * 16 + 1;
        assert_eq!(packed[at], oihw[((17 * 35 + 33) * 2 + 1) * 3 + 2]);
        assert_eq!(packed.iter().filter(|&&v| v != 0.0).count(), oihw.len());
        let mut transposed = vec![-1.0; transposed_len(&shape)];
        transpose_weights(Isa::best(), &shape, &packed, &mut transposed);
        let at = (((2 * 2 + 1) * 6 + 5) * 16 + 1) * 16 + 1;
        assert_eq!(transposed[at], oihw[((17 * 35 + 33) * 2 + 1) * 3 + 2]);
        assert_eq!(transposed.iter().filter(|&&v| v != 0.0).count(), oihw.len());
    }

    #[test]
    fn few_input_channels_take_no_more_rows_than_they_are() {
        let shape = shape(3, 16, [1, 2], 1);
        let mut packed = vec![-1.0; packed_len(&shape)];
        assert_eq!(packed.len(), 2 * 3 * 16);
        let oihw = counting(shape.weight_len());
        pack_weights(Isa::best(), &shape, &oihw, &mut packed);
        // o = 5, i = 2, kw = 1.
        assert_eq!(packed[(3 + 2) * 16 + 5], oihw[(5 * 3 + 2) * 2 + 1]);
    }

    proptest! {
        #[test]
        fn unpacking_undoes_packing(
            groups in 1usize..5, of_group in (1usize..20, 1usize..20), kernel in (1usize..4, 1usize..4), depthwise: bool,
        ) {
            let (c_in, c_out, groups) = if depthwise {
                (of_group.0 * 3, of_group.0 * 3, of_group.0 * 3)
            } else {
                (of_group.0 * groups, of_group.1 * groups, groups)
            };
            let shape = shape(c_in, c_out, [kernel.0, kernel.1], groups);
            let oihw = counting(shape.weight_len());
            let mut packed = vec![-1.0; packed_len(&shape)];
            pack_weights(Isa::best(), &shape, &oihw, &mut packed);
            prop_assert_eq!(packed.iter().filter(|&&v| v != 0.0).count(), oihw.len());
            let mut back = vec![-1.0; oihw.len()];
            unpack_weights(Isa::best(), &shape, &packed, &mut back);
            prop_assert_eq!(&back, &oihw);
            let mut transposed = vec![-1.0; transposed_len(&shape)];
            transpose_weights(Isa::best(), &shape, &packed, &mut transposed);
            if !shape.is_depthwise() {
                prop_assert_eq!(transposed.iter().filter(|&&v| v != 0.0).count(), oihw.len());
            }
        }
    }
}
