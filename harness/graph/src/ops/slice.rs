//! `Slice`: a rectangular part of a tensor.

use super::{OpError, Operand, Operator, Pad, Read, Rounding, Work, channel_run, operands, samples};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Part, Slot, Way},
    tensor::TensorType,
    units::Flop,
};

/// Operand: any tensor. Result: the elements from `start`, `size` of them, per axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// First element per axis.
    pub start: Vec<usize>,
    /// Elements per axis.
    pub size: Vec<usize>,
}

impl Operator for Slice {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x] = operands(inputs, "input")?;
        let ends = self.start.iter().zip(&self.size).map(|(start, size)| start.checked_add(*size));
        let inside = self.start.len() == x.shape.len()
            && self.size.len() == x.shape.len()
            && ends.zip(x.shape.iter()).all(|(end, n)| end.is_some_and(|end| end <= *n));
        if !inside {
            return Err(OpError::Attribute(format!(
                "a slice of {:?} from {:?} does not lie inside {}",
                self.size, self.start, x.shape
            )));
        }
        Ok(vec![x.with_shape(self.size.clone())])
    }

    fn flop(&self, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        Flop(0)
    }

    fn operand(&self, _: usize) -> Operand {
        Operand { read: Read::Part, ..Operand::MAP }
    }

    fn work(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        Work::Views {
            run: channel_run(inputs, outputs, outputs[0])
                .unwrap_or_else(|| inputs[0].shape.last().copied().unwrap_or(1) as u64 * outputs[0].dtype.bytes().0),
        }
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Moves
    }

    fn mixes_samples(&self, inputs: &[&TensorType]) -> bool {
        self.size.first() != samples(inputs)
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let whole = &grad.ty(grad.operand(0)).shape;
        let after = whole.iter().zip(self.start.iter().zip(&self.size)).map(|(n, (b, s))| n - b - s).collect();
        grad.through(Pad { before: self.start.clone(), after })
    }

    fn way(&self, call: Call<'_>, _known: Slot, part: &Part) -> Option<Way> {
        let size = part.local(&self.size[..].into(), call.ranks).to_vec();
        let whole = |axis: usize| call.inputs[0].shape[axis] == self.size[axis];
        Way::along(Self { size, ..self.clone() }, call, part, whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ops::Op, tensor::DType};

    /// No kernel gives indices: an operator that moves them has an error when the graph is built, with its line.
    #[test]
    fn indices_are_not_moved() {
        let slice = Op::from(Slice { start: vec![0, 1], size: vec![2, 1] });
        assert!(slice.infer(&[&TensorType::plain([2, 3], DType::F32)]).is_ok());
        let error = slice.infer(&[&TensorType::plain([2, 3], DType::U32)]).unwrap_err();
        assert_eq!(error.to_string(), "operand is u32, expected numbers");
    }
}
