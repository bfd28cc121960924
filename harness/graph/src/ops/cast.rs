//! `Cast`: the same values with another element type.

use super::{OpError, Operand, Operator, Rounding, Work, one_float, per_element};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Part, Slot, Way},
    tensor::{DType, TensorType},
    units::Flop,
};

/// Operand: any floating-point tensor. Result: its values rounded to `to`, in the same layout.
///
/// The gradient is converted back, as in every framework: rounding counts as identity.
#[derive(Clone, Debug, PartialEq)]
pub struct Cast {
    /// Element type of the result.
    pub to: DType,
}

impl Operator for Cast {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let x = one_float(inputs)?;
        if !self.to.is_float() {
            return Err(OpError::Attribute(format!("a cast to {}, which has no gradient", self.to)));
        }
        Ok(vec![x.with_dtype(self.to)])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(1, inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::ELEMENTS
    }

    fn work(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        Work::one(inputs, outputs)
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Converts
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let to = grad.ty(grad.operand(0)).dtype;
        grad.through(Self { to })
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn way(&self, call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        Some(Way::elementwise(self.clone(), call, known, part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Layout;

    #[test]
    fn only_the_element_type_changes() {
        let x = TensorType::plain([2, 20, 3, 5], DType::F32).with_layout(Layout::Nc1hwc0);
        let y = Cast { to: DType::F16 }.infer(&[&x]).unwrap().remove(0);
        assert_eq!((y.dtype, y.layout, &y.shape), (DType::F16, Layout::Nc1hwc0, &x.shape));
        assert_eq!(2 * y.bytes().0, x.bytes().0);
        assert!(Cast { to: DType::U32 }.infer(&[&x]).is_err());
        assert!(Cast { to: DType::F32 }.infer(&[&TensorType::plain([4], DType::U32)]).is_err());
    }
}
