//! `BiasAddGrad`: gradient of an added bias.

use super::{OpError, Operand, Operator, Rounding, Summed, expect_float, operands, per_element};
use crate::{
    tensor::{Layout, TensorType},
    units::Flop,
};

/// Operand: output gradient `[n, c]` or `[n, c, h, w]`. Result: its sum over all axes except `c`, `[c]`.
#[derive(Clone, Debug, PartialEq)]
pub struct BiasAddGrad;

impl Operator for BiasAddGrad {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [dy] = operands(inputs, "output gradient")?;
        expect_float("output gradient", dy)?;
        let &c = dy.shape.get(1).ok_or_else(|| OpError::Shape {
            operand: "output gradient",
            expected: "at least 2 axes".into(),
            found: dy.shape.clone(),
        })?;
        Ok(vec![dy.with_shape([c]).with_layout(Layout::Plain)])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(1, inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::MAP
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Wide(Summed::All)
    }
}
