//! `TransData`: the same tensor in another memory layout.

use super::{OpError, Operand, OperandLayout, Operator, Rounding, Work, operands};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    tensor::{C0, Layout, TensorType},
    units::Flop,
};

/// Operand: a tensor with four axes in any layout. Result: the same tensor in layout `to`.
#[derive(Clone, Debug, PartialEq)]
pub struct TransData {
    /// Layout of the result.
    pub to: Layout,
}

impl Operator for TransData {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x] = operands(inputs, "input")?;
        super::feature_map("input", x)?;
        Ok(vec![x.with_layout(self.to)])
    }

    fn flop(&self, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        Flop(0)
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::in_layout(OperandLayout::Any)
    }

    fn work(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        // With one pixel per map, row-major order and blocks of channels are the same.
        let same = inputs[0].shape.nchw().is_some_and(|[_, c, h, w]| h * w == 1 && c.is_multiple_of(C0));
        if same { Work::Nothing } else { Work::Moves { run: C0 as u64 * outputs[0].dtype.bytes().0 } }
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Converts
    }

    fn passes_on(&self, _result: usize, _inputs: &[&TensorType]) -> bool {
        true
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let to = grad.ty(grad.operand(0)).layout;
        grad.through(TransData { to })
    }
}
