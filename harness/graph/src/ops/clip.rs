//! Gradient clipping: by the norm of all gradients, and by value.

use super::{OpError, Operand, OperandLayout, Operator, Rounding, expect_float, one_float, per_element};
use crate::{
    tensor::{Shape, TensorType},
    units::Flop,
};

/// Operands: all gradients. Results: their norm `sqrt(sum of squares)`, and the factor `min(1, bound / (norm +
/// 1e-6))` for all of them.
///
/// Source: `torch.nn.utils.clip_grad_norm_`.
#[derive(Clone, Debug, PartialEq)]
pub struct ClipByGlobalNorm {
    /// Largest norm. With infinity, the norm is computed but nothing is clipped.
    pub bound: f64,
}

/// Added to the norm before dividing the bound by it.
const CLIP_EPS: f64 = 1e-6;

/// `min(1, bound / (norm + 1e-6))`; NaN stays NaN.
pub fn clip_factor(norm: f64, bound: f64) -> f64 {
    let factor = bound / (norm + CLIP_EPS);
    if factor > 1.0 { 1.0 } else { factor }
}

impl Operator for ClipByGlobalNorm {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let Some(first) = inputs.first() else { return Err(OpError::Arity { expected: "one or more", found: 0 }) };
        for gradient in inputs {
            expect_float("gradient", gradient)?;
        }
        let scalar = TensorType::plain(Shape::scalar(), first.dtype);
        Ok(vec![scalar.clone(), scalar])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        inputs.iter().map(|gradient| per_element(2, gradient)).sum()
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::in_layout(OperandLayout::Any)
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Relative(4.0)
    }
}

/// Operand: any tensor. Result: each element limited to `[-bound, bound]`; NaN stays NaN.
///
/// Source: `torch.nn.utils.clip_grad_value_`.
#[derive(Clone, Debug, PartialEq)]
pub struct ClipByValue {
    /// Largest magnitude.
    pub bound: f64,
}

impl Operator for ClipByValue {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let x = one_float(inputs)?;
        Ok(vec![x.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(2, inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::ELEMENTS
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Relative(2.0)
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}
