//! `Pad`: zeros around a tensor.

use super::{OpError, Operator, Slice, operands};
use crate::{differentiate::Gradient, error::GraphError, tensor::TensorType, units::Flop};

/// Operand: any tensor. Result: the tensor with zeros before and after, per axis.
///
/// Source: `torch.nn.ZeroPad2d`, `tf.pad`.
#[derive(Clone, Debug, PartialEq)]
pub struct Pad {
    /// Zeros before the first element of each axis.
    pub before: Vec<usize>,
    /// Zeros after the last element of each axis.
    pub after: Vec<usize>,
}

impl Operator for Pad {
    fn name(&self) -> &'static str {
        "PadD"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x] = operands(inputs, "input")?;
        if self.before.len() != x.shape.len() || self.after.len() != x.shape.len() {
            return Err(OpError::Attribute(format!("padding for {} axes of {}", self.before.len(), x.shape)));
        }
        let sizes = x.shape.iter().zip(self.before.iter().zip(&self.after));
        let padded: Option<Vec<usize>> =
            sizes.map(|(n, (b, a))| n.checked_add(*b).and_then(|s| s.checked_add(*a))).collect();
        Ok(vec![x.with_shape(padded.ok_or(OpError::TooLarge)?)])
    }

    fn flop(&self, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        Flop(0)
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        let size = grad.ty(grad.operand(0)).shape.to_vec();
        let dx = grad.emit("grad", Slice { start: self.before.clone(), size }, &[dy])?;
        grad.set(0, dx);
        Ok(())
    }
}
