//! `TransposeD`: permutes the axes.

use super::{OpError, Operator, Rounding, Work, operands};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Need, Outcome, Part, Slot, Way},
    tensor::{C0, Layout, TensorType},
    units::Flop,
};

/// Operand: a row-major tensor. Result: axis `i` of the result is axis `permutation[i]` of the operand.
///
/// Source: `torch.permute`, `tf.transpose`.
#[derive(Clone, Debug, PartialEq)]
pub struct Transpose {
    /// For each axis of the result, the axis of the operand.
    pub permutation: Vec<usize>,
}

impl Transpose {
    /// Whether the fastest-changing axis stays the last one. Such a transpose only changes strides and moves nothing
    /// if operators can read any strides. All others copy the whole tensor (Gaudi's guide: logical and non-logical
    /// transposes).
    pub fn is_metadata(&self) -> bool {
        self.permutation.last().is_none_or(|last| last + 1 == self.permutation.len())
    }

    /// The transpose that reverses this one.
    pub fn inverse(&self) -> Self {
        let mut permutation = vec![0; self.permutation.len()];
        self.permutation.iter().enumerate().for_each(|(to, from)| permutation[*from] = to);
        Self { permutation }
    }
}

impl Operator for Transpose {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x] = operands(inputs, "input")?;
        let mut sorted = self.permutation.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..x.shape.len()) {
            let message =
                format!("{:?} is not an order of the {} axes of {}", self.permutation, x.shape.len(), x.shape);
            return Err(OpError::Attribute(message));
        }
        if x.layout != Layout::Plain {
            return Err(OpError::Attribute(format!("a transpose of a tensor in {}", x.layout)));
        }
        Ok(vec![x.with_shape(self.permutation.iter().map(|axis| x.shape[*axis]).collect::<Vec<_>>())])
    }

    fn flop(&self, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        Flop(0)
    }

    fn work(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        let long: Vec<usize> = self.permutation.iter().copied().filter(|axis| inputs[0].shape[*axis] > 1).collect();
        let bytes = outputs[0].dtype.bytes().0;
        if long.is_sorted() {
            return Work::Nothing;
        }
        if !self.is_metadata() {
            return Work::Moves { run: C0 as u64 * bytes };
        }
        let kept = self.permutation.iter().enumerate().rev().take_while(|(to, from)| to == *from);
        Work::Views { run: kept.map(|(axis, _)| inputs[0].shape[axis] as u64).product::<u64>() * bytes }
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Moves
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        self.permutation.first() != Some(&0)
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        grad.through(self.inverse())
    }

    fn way(&self, _call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        let from = match known {
            Slot::Operand(_) => part.axis,
            Slot::Result(_) => self.permutation[part.axis],
        };
        let to = self.permutation.iter().position(|axis| *axis == from)?;
        let (operands, results) = (vec![Need::Part(part.along(from))], vec![Outcome::Part(part.along(to))]);
        Some(Way { op: self.clone().into(), operands, results })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn the_guide_s_two_examples() {
        // tf.transpose of [32, 8000, 64]: perm (1, 0, 2) is logical, perm (0, 2, 1) is a DMA copy.
        let x = TensorType::plain([32, 8000, 64], DType::F32);
        let logical = Transpose { permutation: vec![1, 0, 2] };
        let copy = Transpose { permutation: vec![0, 2, 1] };
        assert!(logical.is_metadata() && !copy.is_metadata());
        assert_eq!(logical.infer(&[&x]).unwrap()[0].shape[..], [8000, 32, 64]);
        assert_eq!(copy.infer(&[&x]).unwrap()[0].shape[..], [32, 64, 8000]);
        assert!(Transpose { permutation: vec![0, 0, 2] }.infer(&[&x]).is_err());
    }

    #[test]
    fn the_inverse_brings_every_axis_back() {
        let t = Transpose { permutation: vec![0, 3, 1, 2] };
        assert_eq!(t.inverse().permutation, [0, 2, 3, 1]);
        assert_eq!(t.inverse().inverse(), t);
    }
}
