//! `BiasAdd`: one value added to each channel.

use super::bn_training_reduce::{channels, expect_per_channel};
use super::{BiasAddGrad, OpError, Operand, Operator, Rounding, Summed, expect_float, operands, per_element};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Part, Slot, Way},
    tensor::TensorType,
    units::Flop,
};

/// Operands: input `[n, c, ...]`, bias `[c]`. Result: `x + bias` in the input's shape.
///
/// Convolutions and matrix products add their own bias; this operator is for transposed convolutions.
#[derive(Clone, Debug, PartialEq)]
pub struct BiasAdd;

impl Operator for BiasAdd {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x, bias] = operands(inputs, "input and bias")?;
        expect_float("input", x)?;
        expect_per_channel(channels(x)?, &[("bias", bias)])?;
        Ok(vec![x.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(1, inputs[0])
    }

    fn operand(&self, i: usize) -> Operand {
        if i == 0 { Operand::MAP } else { Operand::PLAIN }
    }

    fn rounding(&self, inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Narrow(inputs.len(), Summed::All)
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        false
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        grad.set(0, dy);
        if grad.wants(1) {
            let db = grad.emit("grad_bias", BiasAddGrad, &[dy])?;
            grad.set(1, db);
        }
        Ok(())
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn way(&self, call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        let input = matches!(known, Slot::Operand(0) | Slot::Result(0));
        Way::along(self.clone(), call, part, |axis| input && axis != 1)
    }
}
