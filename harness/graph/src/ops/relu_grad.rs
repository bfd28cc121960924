//! `ReluGrad`: gradient of a ReLU.

use super::{OpError, Operator, expect_same_storage, expect_shape, operands, per_element};
use crate::{tensor::TensorType, units::Flop};

/// Operands: output gradient, output. Result: the gradient where the output is above zero, else zero.
/// At an input of exactly zero the gradient is zero, as in PyTorch.
#[derive(Clone, Debug, PartialEq)]
pub struct ReluGrad;

impl Operator for ReluGrad {
    fn name(&self) -> &'static str {
        "ReluGrad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [dy, y] = operands(inputs, "output gradient and output")?;
        expect_shape("output", y, &dy.shape)?;
        expect_same_storage("output", dy, y)?;
        Ok(vec![dy.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(1, inputs[0])
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}
