//! A convolution's input as a matrix, one row per tap and one column per output pixel (im2col), and back.

use crate::elements::{Elements, by_chunks};
use candle_core::{FloatDType, Result, Tensor};
use std::ops::Range;
use zoo_graph::ops::Window;

/// Extents of a convolution over some images.
#[derive(Clone, Copy)]
pub(super) struct Unfold {
    /// Kernel, stride, padding, dilation.
    pub window: Window,
    /// Images.
    pub n: usize,
    /// Input channels.
    pub c: usize,
    /// Height and width of the input.
    pub input: [usize; 2],
    /// Height and width of the output.
    pub output: [usize; 2],
}

impl Unfold {
    /// Whether the matrix is the input itself, apart from the order of images and channels.
    fn is_pointwise(&self) -> bool {
        let Window { kernel, stride, pad, dilation: _, ceil: _ } = self.window;
        kernel == [1, 1] && stride == [1, 1] && pad == [0; 4]
    }

    /// Output pixels of one image.
    fn pixels(&self) -> usize {
        self.output[0] * self.output[1]
    }

    /// Rows and columns of the matrix: row `(channel, tap)`, column `(image, pixel)`.
    fn matrix(&self) -> [usize; 2] {
        [self.c * self.window.taps(), self.n * self.pixels()]
    }

    /// Input positions that a tap reads for a row of outputs: the outputs inside the map, and the position of the first
    /// one. `axis` 0 is height, `tap` the tap's row or column in the kernel.
    fn reach(&self, axis: usize, tap: usize) -> (Range<usize>, usize) {
        let (stride, pad) = (self.window.stride[axis], self.window.pad[2 * axis]);
        let offset = tap * self.window.dilation[axis];
        let first = pad.saturating_sub(offset).div_ceil(stride).min(self.output[axis]);
        let end = (self.input[axis] + pad).saturating_sub(offset).div_ceil(stride).min(self.output[axis]);
        (first..end.max(first), (first * stride + offset).saturating_sub(pad).min(self.input[axis]))
    }

    /// `[n, c, h, w]` to the matrix.
    pub fn columns<T: FloatDType>(&self, x: &Tensor) -> Result<Tensor> {
        if self.is_pointwise() {
            return by_channel(x, self.n, self.c, self.pixels());
        }
        let x = Elements::of(x)?;
        let x = x.slice::<T>()?;
        let ([h, w], [_, ow]) = (self.input, self.output);
        let (taps, [rows, columns]) = (self.window.taps(), self.matrix());
        by_chunks::<T>(&[rows, columns], columns, |row, out| {
            let (channel, tap) = (row / taps, row % taps);
            let (oi, i) = self.reach(0, tap / self.window.kernel[1]);
            let (oj, j) = self.reach(1, tap % self.window.kernel[1]);
            for (image, out) in out.chunks_mut(self.pixels()).enumerate() {
                let plane = &x[(image * self.c + channel) * h * w..][..h * w];
                for (oi, i) in oi.clone().zip((i..h).step_by(self.window.stride[0])) {
                    let (out, line) = (&mut out[oi * ow..][oj.clone()], &plane[i * w..][..w]);
                    match self.window.stride[1] {
                        1 => out.copy_from_slice(&line[j..][..oj.len()]),
                        stride => out.iter_mut().zip(line[j..].iter().step_by(stride)).for_each(|(o, x)| *o = *x),
                    }
                }
            }
        })
    }

    /// The matrix to `[n, c, h, w]`. Each input element is the sum over the taps that read it.
    pub fn fold<T: FloatDType>(&self, matrix: &Tensor) -> Result<Tensor> {
        let ([h, w], [_, ow]) = (self.input, self.output);
        let dims = [self.n, self.c, h, w];
        if self.is_pointwise() {
            return by_channel(matrix, self.c, self.n, self.pixels())?.reshape(dims.to_vec());
        }
        let matrix = Elements::of(matrix)?;
        let matrix = matrix.slice::<T>()?;
        let (taps, [_, columns]) = (self.window.taps(), self.matrix());
        by_chunks::<T>(&dims, h * w, |plane, out| {
            let (image, channel) = (plane / self.c, plane % self.c);
            let mut sums = vec![0.0; h * w];
            for tap in 0..taps {
                let (oi, i) = self.reach(0, tap / self.window.kernel[1]);
                let (oj, j) = self.reach(1, tap % self.window.kernel[1]);
                let row = &matrix[(channel * taps + tap) * columns + image * self.pixels()..][..self.pixels()];
                for (oi, i) in oi.zip((i..h).step_by(self.window.stride[0])) {
                    let (line, row) = (&mut sums[i * w..][..w], &row[oi * ow..][oj.clone()]);
                    let line = line[j..].iter_mut().step_by(self.window.stride[1]);
                    line.zip(row).for_each(|(sum, g)| *sum += g.to_f64());
                }
            }
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out = T::from_f64(sum));
        })
    }
}

/// `[a, b, pixels]` to `[b, a * pixels]`.
pub(super) fn by_channel(x: &Tensor, a: usize, b: usize, pixels: usize) -> Result<Tensor> {
    x.reshape((a, b, pixels))?.transpose(0, 1)?.contiguous()?.reshape((b, a * pixels))
}
