//! `Relu`: maximum with zero, and for `Relu6` minimum with six.

use super::{Kind, OpError, Operand, Operator, ReluGrad, Rounding, Work, one_float, per_element};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Part, Slot, Way},
    tensor::TensorType,
    units::Flop,
};

/// A rectifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rectifier {
    /// `max(x, 0)`.
    Relu,
    /// `min(max(x, 0), 6)` (`torch.nn.ReLU6`, arXiv 1801.04381).
    Relu6,
}

impl Rectifier {
    /// Its value; NaN stays NaN.
    pub fn of(self, x: f64) -> f64 {
        match self {
            _ if x <= 0.0 => 0.0,
            Self::Relu6 if x > 6.0 => 6.0,
            Self::Relu | Self::Relu6 => x,
        }
    }

    /// Results between which a gradient passes. At the bounds it does not, as in PyTorch.
    pub fn bounds(self) -> [f64; 2] {
        match self {
            Self::Relu => [0.0, f64::INFINITY],
            Self::Relu6 => [0.0, 6.0],
        }
    }

    /// Whether a gradient passes if the result is `y`. For NaN it does.
    pub fn passes(self, y: f64) -> bool {
        let [low, high] = self.bounds();
        !((y <= low) | (y >= high))
    }
}

/// Operand: any tensor. Result: [`Rectifier::of`] of each element.
#[derive(Clone, Debug, PartialEq)]
pub struct Relu {
    /// The rectifier.
    pub rectifier: Rectifier,
}

impl Operator for Relu {
    fn name(&self) -> Option<&'static str> {
        Some(match self.rectifier {
            Rectifier::Relu => "Relu",
            Rectifier::Relu6 => "Relu6",
        })
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let x = one_float(inputs)?;
        Ok(vec![x.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(1 + u64::from(self.rectifier == Rectifier::Relu6), inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::ELEMENTS
    }

    fn work(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        match self.rectifier {
            Rectifier::Relu => Work::one(inputs, outputs),
            Rectifier::Relu6 => Work::counted(self.flop(inputs, outputs), inputs, outputs),
        }
    }

    fn kind(&self) -> Kind {
        Kind::Activation
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Moves
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        false
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        grad.through_with(ReluGrad { rectifier: self.rectifier }, |grad, dy| [dy, grad.result(0)])
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn way(&self, call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        Some(Way::elementwise(self.clone(), call, known, part))
    }
}
