//! `TopKV2`: the largest elements of each row.

use super::{OpError, Operator, Rounding, one_float, per_element};
use crate::{
    parallel::{Call, Part, Slot, Way},
    tensor::TensorType,
    units::Flop,
};

/// Operand: scores `[.., n]`. Result, of the same shape: 1 for the `count` largest elements of each row, 0 for the
/// others. Of equal elements, the first ones are chosen. The choice is a constant of the step: no gradient passes.
///
/// Source: `torch.topk`, which leaves the order of equal elements open.
#[derive(Clone, Debug, PartialEq)]
pub struct TopK {
    /// How many elements of a row are chosen.
    pub count: usize,
}

impl Operator for TopK {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let x = one_float(inputs)?;
        let row = x.shape.last().copied().unwrap_or(0);
        if self.count == 0 || self.count > row {
            return Err(OpError::Attribute(format!("{} of {row} elements cannot be chosen", self.count)));
        }
        Ok(vec![x.clone()])
    }

    /// One comparison for each chosen element.
    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(self.count as u64, inputs[0])
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Moves
    }

    fn mixes_samples(&self, inputs: &[&TensorType]) -> bool {
        inputs[0].shape.len() == 1
    }

    fn stops_gradient(&self) -> bool {
        true
    }

    fn way(&self, call: Call<'_>, _known: Slot, part: &Part) -> Option<Way> {
        Way::along(self.clone(), call, part, |axis| axis + 1 < call.inputs[0].shape.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn as_many_as_there_are() {
        let x = TensorType::plain([2, 5], DType::F32);
        let infer = |count| TopK { count }.infer(&[&x]);
        assert_eq!(infer(5).unwrap()[0], x);
        assert!(infer(6).is_err() && infer(0).is_err());
    }
}
