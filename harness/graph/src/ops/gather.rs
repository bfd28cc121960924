//! `GatherV2` and its gradient `UnsortedSegmentSum`: rows of a table by their numbers.

use super::{Kind, OpError, Operand, Operator, Read, Work, expect_float, operands, per_element};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    tensor::{DType, Shape, TensorType},
    units::Flop,
};

/// Operands: a table `[rows, ..]` and indices of any shape (u32). Result: for each index the row of that number,
/// `[indices.., ..]`.
///
/// Source: `torch.nn.functional.embedding`, `tf.gather`.
#[derive(Clone, Debug, PartialEq)]
pub struct Gather;

/// Operands: values `[indices.., ..]` and indices (u32). Result: a table in which each row is the sum of the values
/// whose index is its number, in their order.
///
/// Source: `tf.math.unsorted_segment_sum`; the gradient of [`Gather`] by its table.
#[derive(Clone, Debug, PartialEq)]
pub struct ScatterAdd {
    /// Rows of the table.
    pub rows: usize,
}

fn expect_indices(ty: &TensorType) -> Result<(), OpError> {
    if ty.dtype == DType::U32 {
        return Ok(());
    }
    Err(OpError::DType { operand: "indices", expected: "u32", found: ty.dtype })
}

/// Bytes of a row of a table.
fn row_bytes(table: &TensorType) -> u64 {
    table.shape.iter().skip(1).product::<usize>() as u64 * table.dtype.bytes().0
}

impl Operator for Gather {
    fn names() -> &'static [&'static str] {
        &["GatherV2"]
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [table, indices] = operands(inputs, "table and indices")?;
        expect_float("table", table)?;
        expect_indices(indices)?;
        let [_, row @ ..] = &table.shape[..] else {
            let expected = "[rows, ..]".to_owned();
            return Err(OpError::Shape { operand: "table", expected, found: table.shape.clone() });
        };
        let shape = Shape::from([&indices.shape[..], row].concat());
        shape.checked_numel().ok_or(OpError::TooLarge)?;
        Ok(vec![table.with_shape(shape)])
    }

    fn flop(&self, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        Flop(0)
    }

    fn operand(&self, i: usize) -> Operand {
        if i == 0 { Operand { read: Read::Part, ..Operand::PLAIN } } else { Operand::AS_IS }
    }

    fn work(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Work<'_> {
        Work::Moves { run: row_bytes(inputs[0]) }
    }

    fn kind(&self) -> Kind {
        Kind::Other
    }

    fn passes_on(&self, _result: usize) -> bool {
        true
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        let rows = grad.ty(grad.operand(0)).shape[0];
        let dx = grad.emit("grad", ScatterAdd { rows }, &[dy, grad.operand(1)])?;
        grad.set(0, dx);
        Ok(())
    }
}

impl Operator for ScatterAdd {
    fn names() -> &'static [&'static str] {
        &["UnsortedSegmentSum"]
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [values, indices] = operands(inputs, "values and indices")?;
        expect_float("values", values)?;
        expect_indices(indices)?;
        let Some(row) = values.shape.strip_prefix(&indices.shape[..]) else {
            let expected = format!("axes that begin with {}", indices.shape);
            return Err(OpError::Shape { operand: "values", expected, found: values.shape.clone() });
        };
        let shape = Shape::from([&[self.rows], row].concat());
        shape.checked_numel().ok_or(OpError::TooLarge)?;
        Ok(vec![values.with_shape(shape)])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(1, inputs[0])
    }

    fn operand(&self, i: usize) -> Operand {
        if i == 0 { Operand::PLAIN } else { Operand::AS_IS }
    }

    fn work(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        Work::counted(self, inputs, outputs)
    }

    fn kind(&self) -> Kind {
        Kind::Other
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        let dx = grad.emit("grad", Gather, &[dy, grad.operand(1)])?;
        grad.set(0, dx);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        let table = TensorType::plain([10, 3], DType::F32);
        let tokens = TensorType::plain([2, 5], DType::U32);
        let rows = Gather.infer(&[&table, &tokens]).unwrap().remove(0);
        assert_eq!(rows.shape[..], [2, 5, 3]);
        assert_eq!(ScatterAdd { rows: 10 }.infer(&[&rows, &tokens]).unwrap()[0].shape[..], [10, 3]);
        assert!(Gather.infer(&[&table, &table]).is_err());
        assert!(ScatterAdd { rows: 10 }.infer(&[&table, &tokens]).is_err());
    }
}
