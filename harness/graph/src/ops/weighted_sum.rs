//! Weighted sum of tensors: the total of several loss components, the difference of two maps.

use super::{
    OpError, Operand, Operator, Rounding, Scale, expect_float, expect_same_storage, expect_shape, per_element,
};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Part, Slot, Way},
    tensor::TensorType,
    units::Flop,
};

/// Operands: one tensor per weight, all with the same shape. Result: `sum(weight * operand)`, added from left to
/// right.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedSum {
    /// A weight per operand.
    pub weights: Vec<f64>,
}

impl Operator for WeightedSum {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let Some(first) = inputs.first().filter(|_| inputs.len() == self.weights.len()) else {
            return Err(OpError::Arity { expected: "one per weight", found: inputs.len() });
        };
        for x in inputs {
            expect_float("component", x)?;
            expect_shape("component", x, &first.shape)?;
            expect_same_storage("component", first, x)?;
        }
        Ok(vec![(*first).clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(2 * inputs.len() as u64, inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::EXACT
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Elementwise(8.0)
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        false
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        let mut scaled: Vec<(f64, crate::ValueId)> = vec![(1.0, dy)];
        for (i, &weight) in self.weights.iter().enumerate() {
            if !grad.wants(i) {
                continue;
            }
            let known = scaled.iter().find(|(w, _)| *w == weight).map(|(_, v)| *v);
            let dx = match known {
                Some(value) => value,
                None => {
                    let value = grad.emit("grad", Scale { factor: weight }, &[dy])?;
                    scaled.push((weight, value));
                    value
                }
            };
            grad.set(i, dx);
        }
        Ok(())
    }

    fn way(&self, call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        Some(Way::elementwise(self.clone(), call, known, part))
    }
}
