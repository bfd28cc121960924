//! How the kernels of an operator round: the bounds of the check (`zoo_engine::bounds`) follow from it.

use super::{Assign, BnTrainingGrad, BnTrainingUpdate, LrnGrad, Map, MaskSoftMargin, Product, SoftmaxCrossEntropy};
use crate::tensor::TensorType;

/// How a kernel in f32 rounds the results of an operator, relative to the operator in f64.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rounding<'a> {
    /// The results are elements of the operands.
    Moves,
    /// The results are the operands, in another layout or type, or from other ranks.
    Converts,
    /// This many roundings, each relative to the result: products, quotients, sums of terms with the same sign, and
    /// values computed in f64.
    Relative(f64),
    /// Each element of a result is a function of one element of each operand, with this many roundings of intermediate
    /// values. A rounding of an intermediate value changes the result by no more than one additional rounding of the
    /// operands and the result.
    Elementwise(f64),
    /// The sum of the operands in f32, element by element, from left to right.
    Sum,
    /// A sum in f64 of the operands, or of their products, with non-negative factors.
    Wide(Summed),
    /// The same in f32, with this many roundings per term. No partial sum exceeds the sum of the magnitudes.
    Narrow(usize, Summed),
    /// A formula, term by term.
    Formula(&'a Map),
    /// The formula of an update, term by term.
    Update(&'a Assign),
    /// Sums of products, in the order of the kernel.
    Product(Product<'a>),
    /// Sums per channel in f64, everything else in f32.
    Normalisation(Normalisation<'a>),
    /// Probabilities are computed in f32, from differences of logits.
    Softmax(&'a SoftmaxCrossEntropy),
    /// A term of the element itself, and a sum over its neighbours.
    LrnGrad(&'a LrnGrad),
    /// Computed in f64 and rounded once; the gradient of a logit is a sum over its part of the enlarged mask.
    MaskSoftMargin(&'a MaskSoftMargin),
}

/// The operands in which an operator is linear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summed {
    /// All of them.
    All,
    /// The last one. The others determine the positions of its elements.
    Last,
}

/// A batch normalisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Normalisation<'a> {
    /// Mean and variance.
    Statistics,
    /// With the statistics of the batch.
    Training(&'a BnTrainingUpdate),
    /// With stored statistics.
    Stored {
        /// Added to the variance.
        eps: f64,
    },
    /// The gradients of scale and shift.
    Sums {
        /// Added to the variance.
        eps: f64,
    },
    /// The gradient of the input, given those of scale and shift.
    InputGradient {
        /// Added to the variance.
        eps: f64,
    },
    /// All gradients, through the ReLU.
    Gradient(&'a BnTrainingGrad),
}

/// Upper limit of the number of terms in an element of a map: the pixels in a plane of the smallest operand.
pub(super) fn smallest_plane(inputs: &[&TensorType]) -> usize {
    inputs.iter().map(|ty| ty.shape.iter().skip(2).product()).min().unwrap_or(1)
}
