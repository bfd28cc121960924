//! Convolution and its two gradients, as matrix products.
//!
//! Let `W` be the filters `[o, c/g * taps]` of each of `g` groups, and `X` the input as a matrix `[c/g * taps,
//! pixels]` (see [`columns`](super::columns)). The output is `W X`, the filter gradient `dY X'`, and the input
//! gradient `W' dY`.

use super::{
    activation,
    columns::{Unfold, by_channel},
    matmul::add_per_channel,
    norm,
};
use crate::elements::map;
use crate::{KernelError, error::MAP};
use candle_core::{FloatDType, Tensor};
use zoo_graph::{
    TensorType,
    ops::{Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput, Rectifier},
};

/// Elements of the input matrix that exist at once: 64 MiB in f32.
const MATRIX_ELEMENTS: usize = 1 << 24;

/// Elements of the largest input matrix of a convolution.
pub(super) fn matrix_elements(op: &Conv2D, x: &TensorType, y: &TensorType) -> usize {
    let largest = |extents: Extents| {
        let per_image = extents.taps() * extents.groups * extents.pixels();
        extents.runs().iter().map(|(_, run)| run.n * per_image).max().unwrap_or(0)
    };
    Extents::new(op, &x.shape, &y.shape).map_or(0, largest)
}

/// Extents of a convolution.
struct Extents {
    unfold: Unfold,
    groups: usize,
    /// Output channels.
    o: usize,
}

impl Extents {
    fn new(op: &Conv2D, x: &[usize], y: &[usize]) -> Result<Self, KernelError> {
        let (&[n, c, h, w], &[_, o, oh, ow]) = (x, y) else {
            return Err(KernelError::Operand { place: 0, expected: MAP });
        };
        let unfold = Unfold { window: op.window, n, c, input: [h, w], output: [oh, ow] };
        Ok(Self { unfold, groups: op.groups, o })
    }

    /// Output pixels of one image.
    fn pixels(&self) -> usize {
        self.unfold.output[0] * self.unfold.output[1]
    }

    /// Rows of the input matrix that belong to one group.
    fn taps(&self) -> usize {
        self.unfold.c / self.groups * self.unfold.window.taps()
    }

    /// Runs of images whose matrices do not exceed the limit.
    fn runs(&self) -> Vec<(usize, Unfold)> {
        let per_image = self.taps() * self.groups * self.pixels();
        let at_once = (MATRIX_ELEMENTS / per_image.max(1)).max(1);
        let run = |start: usize| (start, Unfold { n: at_once.min(self.unfold.n - start), ..self.unfold });
        (0..self.unfold.n).step_by(at_once).map(run).collect()
    }

    /// The filters as a matrix per group.
    fn filters(&self, w: &Tensor) -> candle_core::Result<Tensor> {
        w.reshape((self.groups, self.o / self.groups, self.taps()))
    }

    /// The input matrix per group, for a run of images.
    fn input<T: FloatDType>(&self, x: &Tensor, start: usize, run: &Unfold) -> candle_core::Result<Tensor> {
        let matrix = run.columns::<T>(&x.narrow(0, start, run.n)?)?;
        matrix.reshape((self.groups, self.taps(), run.n * self.pixels()))
    }

    /// The matrix of the output gradient per group, for a run of images.
    fn output_gradient(&self, dy: &Tensor, start: usize, run: &Unfold) -> candle_core::Result<Tensor> {
        let matrix = by_channel(&dy.narrow(0, start, run.n)?, run.n, self.o, self.pixels())?;
        matrix.reshape((self.groups, self.o / self.groups, run.n * self.pixels()))
    }
}

/// `conv(x, w) + bias`, optionally with a fused ReLU or statistics of the output.
pub(super) fn forward<T: FloatDType>(op: &Conv2D, [x, w]: [&Tensor; 2], bias: Option<&Tensor>) -> super::Results {
    let (_, _, h, width) = x.dims4()?;
    let output = op.window.output(h, width).map_err(|e| candle_core::Error::Msg(e.to_string()))?;
    let dims = [x.dims()[0], w.dims()[0], output[0], output[1]];
    let extents = Extents::new(op, x.dims(), &dims)?;
    let filters = extents.filters(w)?;
    let run = |(start, run): (usize, Unfold)| {
        let matrix = filters.matmul(&extents.input::<T>(x, start, &run)?)?;
        by_channel(&matrix, extents.o, run.n, extents.pixels())
    };
    let runs = extents.runs().into_iter().map(run).collect::<Result<Vec<_>, _>>()?;
    let y = Tensor::cat(&runs, 0)?.reshape(dims.to_vec())?;
    let y = match bias {
        Some(bias) => add_per_channel::<T>(&y, bias)?,
        None => y,
    };
    let y = if op.relu { activation::relu::<T>(Rectifier::Relu, [&y])? } else { y };
    let statistics = if op.statistics { norm::statistics::<T>([&y])? } else { Vec::new() };
    Ok([vec![y], statistics].concat())
}

/// Filter gradient, summed over runs of images in order.
pub(super) fn filter_grad<T: FloatDType>(
    op: &Conv2DBackpropFilter,
    [x, dy]: [&Tensor; 2],
) -> Result<Tensor, KernelError> {
    let extents = Extents::new(&op.conv, x.dims(), dy.dims())?;
    let mut total: Option<Tensor> = None;
    for (start, run) in extents.runs() {
        let columns = extents.input::<T>(x, start, &run)?;
        let part = extents.output_gradient(dy, start, &run)?.matmul(&columns.transpose(1, 2)?)?;
        total = Some(match total {
            Some(total) => {
                let [total] = map::<T, 2, 1>([&total, &part], |[a, b]| [a + b])?;
                total
            }
            None => part,
        });
    }
    let total = total.ok_or(KernelError::Operand { place: 0, expected: "a batch of images" })?;
    Ok(total.reshape(op.filter.to_vec())?)
}

/// Input gradient.
pub(super) fn input_grad<T: FloatDType>(
    op: &Conv2DBackpropInput,
    [dy, w]: [&Tensor; 2],
) -> Result<Tensor, KernelError> {
    let extents = Extents::new(&op.conv, &op.input, dy.dims())?;
    let filters = extents.filters(w)?.transpose(1, 2)?;
    let run = |(start, run): (usize, Unfold)| {
        let matrix = filters.matmul(&extents.output_gradient(dy, start, &run)?)?;
        run.fold::<T>(&matrix)
    };
    let runs = extents.runs().into_iter().map(run).collect::<Result<Vec<_>, _>>()?;
    Ok(Tensor::cat(&runs, 0)?)
}
