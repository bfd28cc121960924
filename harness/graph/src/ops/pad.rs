//! `Pad`: zeros around a tensor.

use super::{OpError, Operand, Operator, Rounding, Slice, Work, operands};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Part, Slot, Way},
    tensor::{C0, Layout, TensorType},
    units::Flop,
};

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

    fn operand(&self, _: usize) -> Operand {
        Operand::MAP
    }

    fn work(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        let ([x, ..], [y, ..]) = (inputs, outputs) else { return Work::Nothing };
        let row = |ty: &TensorType| ty.shape.last().copied().unwrap_or(1);
        let elements = if y.layout == Layout::Nc1hwc0 { row(x).min(row(y)) * C0 } else { row(x) };
        Work::Moves { run: elements as u64 * y.dtype.bytes().0 }
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Moves
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        false
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let size = grad.ty(grad.operand(0)).shape.to_vec();
        grad.through(Slice { start: self.before.clone(), size })
    }

    fn way(&self, call: Call<'_>, _known: Slot, part: &Part) -> Option<Way> {
        Way::along(self.clone(), call, part, |axis| self.before[axis] + self.after[axis] == 0)
    }
}
