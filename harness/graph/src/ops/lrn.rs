//! `LRN`: local response normalisation across channels.

use super::{
    OpError, Operand, Operator, Rounding, expect_same_storage, expect_shape, feature_map, one_float, operands,
    per_element,
};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Part, Slot, Way},
    tensor::TensorType,
    units::Flop,
};

/// Operand: `[n, c, h, w]`. Result: `x / (k + alpha / size * sum)^beta`. The sum is over the squares of `size`
/// channels around each channel, from `size / 2` before it to `(size - 1) / 2` after it.
///
/// Source: AlexNet (Krizhevsky 2012) section 3.3 in the form of `torch.nn.functional.local_response_norm`
/// (alpha divided by size).
#[derive(Clone, Debug, PartialEq)]
pub struct Lrn {
    /// Channels in the window.
    pub size: usize,
    /// Weight of the squares.
    pub alpha: f64,
    /// Exponent.
    pub beta: f64,
    /// Constant.
    pub k: f64,
}

impl Operator for Lrn {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let x = one_float(inputs)?;
        feature_map("input", x)?;
        if self.size == 0 {
            return Err(OpError::Attribute("a window of 0 channels".into()));
        }
        Ok(vec![x.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(self.size as u64 + 6, inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::MAP
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Relative((self.size + 8) as f64)
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        false
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        grad.through_with(LrnGrad { lrn: self.clone() }, |grad, dy| [grad.operand(0), dy])
    }

    fn way(&self, call: Call<'_>, _known: Slot, part: &Part) -> Option<Way> {
        Way::along(self.clone(), call, part, |axis| axis == 0)
    }
}

/// `LRNGrad`. Operands: input and output gradient `[n, c, h, w]`. Result: with `d = k + alpha / size * sum`, `dy *
/// d^-beta - 2 * alpha * beta / size * x * sum'(dy * x * d^(-beta - 1))`, where `sum'` is over the channels whose
/// windows contain the channel.
#[derive(Clone, Debug, PartialEq)]
pub struct LrnGrad {
    /// The normalisation.
    pub lrn: Lrn,
}

impl Operator for LrnGrad {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x, dy] = operands(inputs, "input and output gradient")?;
        expect_shape("output gradient", dy, &x.shape)?;
        expect_same_storage("output gradient", x, dy)?;
        Ok(vec![x.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(2 * self.lrn.size as u64 + 12, inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::MAP
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::LrnGrad(self)
    }
}
