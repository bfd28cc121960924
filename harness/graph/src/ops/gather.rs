//! `GatherV2` and its gradient `UnsortedSegmentSum`: rows of a table by index.

use super::{OpError, Operand, Operator, Read, Rounding, Summed, Work, expect_float, operands, per_element};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    graph::ValueId,
    parallel::{Call, Need, Outcome, Part, Slot, Way},
    tensor::{DType, Shape, TensorType},
    units::Flop,
};
use std::sync::Arc;

/// Indices of rows of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Indices {
    /// The last operand (u32), of any shape.
    Operand,
    /// This place of the last axis of the last operand (u32): a column of a table of samples.
    Column(usize),
    /// The same in every step.
    Fixed(Arc<[u32]>),
}

/// Operands: a table `[rows, ..]` and indices of any shape. Result: the row for each index, `[indices.., ..]`.
///
/// Source: `torch.nn.functional.embedding`, `tf.gather`.
#[derive(Clone, Debug, PartialEq)]
pub struct Gather {
    /// The rows.
    pub indices: Indices,
    /// A row that gets no gradient from here.
    pub padding: Option<u32>,
}

/// Operands: values `[indices.., ..]` and indices. Result: a table in which each row is the sum of the values with
/// its index, in order.
///
/// Source: `tf.math.unsorted_segment_sum`; the gradient of the table in [`Gather`]
/// (`torch.embedding_dense_backward`).
#[derive(Clone, Debug, PartialEq)]
pub struct ScatterAdd {
    /// Rows of the table.
    pub rows: usize,
    /// The rows to which values are added.
    pub indices: Indices,
    /// A row that stays 0: values with its number are left out.
    pub padding: Option<u32>,
}

impl Gather {
    /// The rows whose numbers are an operand.
    pub const BY_OPERAND: Self = Self { indices: Indices::Operand, padding: None };
}

impl Indices {
    /// The first operand, and the shape of the indices, which must be less than the number of rows.
    fn with<'t>(
        &self,
        first: &'static str,
        inputs: &[&'t TensorType],
        rows: impl FnOnce(&TensorType) -> usize,
    ) -> Result<(&'t TensorType, Shape), OpError> {
        match self {
            Self::Operand | Self::Column(_) => {
                let [x, indices] = operands(inputs, "two")?;
                expect_float(first, x)?;
                if indices.dtype != DType::U32 {
                    return Err(OpError::DType { operand: "indices", expected: "u32", found: indices.dtype });
                }
                match (self, indices.shape.split_last()) {
                    (Self::Column(place), Some((columns, rest))) if place < columns => Ok((x, Shape::from(rest))),
                    (Self::Column(place), _) => {
                        let message = format!("there is no column {place} of indices {}", indices.shape);
                        Err(OpError::Attribute(message))
                    }
                    _ => Ok((x, indices.shape.clone())),
                }
            }
            Self::Fixed(numbers) => {
                let [x] = operands(inputs, "one")?;
                expect_float(first, x)?;
                let rows = rows(x);
                match numbers.iter().max().filter(|row| **row as usize >= rows) {
                    Some(row) => Err(OpError::Attribute(format!("row {row} is not below {rows}, the number of rows"))),
                    None => Ok((x, [numbers.len()].into())),
                }
            }
        }
    }

    /// As operands after another one.
    fn behind(&self, first: ValueId, grad: &Gradient<'_>) -> Vec<ValueId> {
        match self {
            Self::Operand | Self::Column(_) => vec![first, grad.operand(1)],
            Self::Fixed(_) => vec![first],
        }
    }
}

/// Bytes of a row of a table.
fn row_bytes(table: &TensorType) -> u64 {
    table.shape.iter().skip(1).product::<usize>() as u64 * table.dtype.bytes().0
}

impl Operator for Gather {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let (table, indices) = self.indices.with("table", inputs, |table| table.shape.first().copied().unwrap_or(0))?;
        let [_, row @ ..] = &table.shape[..] else {
            let expected = "[rows, ..]".to_owned();
            return Err(OpError::Shape { operand: "table", expected, found: table.shape.clone() });
        };
        let shape = Shape::from([&indices[..], row].concat());
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

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Moves
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        false
    }

    fn numbered(&self, inputs: &[&TensorType]) -> Option<(usize, usize)> {
        (!matches!(self.indices, Indices::Fixed(_))).then(|| (1, inputs[0].shape[0]))
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        let rows = grad.ty(grad.operand(0)).shape[0];
        let operands = self.indices.behind(dy, grad);
        let dx =
            grad.emit("grad", ScatterAdd { rows, indices: self.indices.clone(), padding: self.padding }, &operands)?;
        grad.set(0, dx);
        Ok(())
    }

    fn way(&self, call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        let indices = call.outputs[0].shape.len() - (call.inputs[0].shape.len() - 1);
        let (table, numbers, result) = match known {
            // Rows of other ranks are zero.
            Slot::Operand(0) if part.axis == 0 => (Need::Partial, Need::Whole, Outcome::Partial),
            Slot::Operand(0) => {
                let result = part.along(part.axis - 1 + indices);
                (Need::Part(part.clone()), Need::Whole, Outcome::Part(result))
            }
            Slot::Operand(_) | Slot::Result(_) if part.axis < indices && self.indices != Indices::Operand => {
                return None;
            }
            Slot::Operand(_) | Slot::Result(_) if part.axis < indices => {
                (Need::Whole, Need::Part(part.clone()), Outcome::Part(part.clone()))
            }
            Slot::Operand(_) => return None,
            Slot::Result(_) => {
                let table = Need::Part(part.along(part.axis - indices + 1));
                (table, Need::Whole, Outcome::Part(part.clone()))
            }
        };
        let operands = [table, numbers].into_iter().take(call.inputs.len()).collect();
        Some(Way { op: self.clone().into(), operands, results: vec![result] })
    }
}

impl Operator for ScatterAdd {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let (values, indices) = self.indices.with("values", inputs, |_| self.rows)?;
        let Some(row) = values.shape.strip_prefix(&indices[..]) else {
            let expected = format!("axes that begin with {indices}");
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

    fn rounding(&self, inputs: &[&TensorType]) -> Rounding<'_> {
        let indices = match &self.indices {
            Indices::Operand => inputs.get(1).map_or(1, |indices| indices.shape.numel()),
            Indices::Column(_) => {
                inputs.get(1).map_or(1, |indices| indices.shape.iter().rev().skip(1).product::<usize>().max(1))
            }
            Indices::Fixed(numbers) => numbers.len(),
        };
        Rounding::Narrow(indices, Summed::All)
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        if self.padding.is_some() {
            return Err(grad.refuse("a sum that leaves out a row"));
        }
        let operands = self.indices.behind(dy, grad);
        let dx = grad.emit("grad", Gather { indices: self.indices.clone(), padding: None }, &operands)?;
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
        let column = |place| Gather { indices: Indices::Column(place), padding: None };
        assert_eq!(column(4).infer(&[&table, &tokens]).unwrap()[0].shape, [2, 3].into());
        assert!(column(5).infer(&[&table, &tokens]).is_err());
        let (gather, add) = (Gather::BY_OPERAND, ScatterAdd { rows: 10, indices: Indices::Operand, padding: None });
        let rows = gather.infer(&[&table, &tokens]).unwrap().remove(0);
        assert_eq!(rows.shape[..], [2, 5, 3]);
        assert_eq!(add.infer(&[&rows, &tokens]).unwrap()[0].shape[..], [10, 3]);
        assert!(gather.infer(&[&table, &table]).is_err());
        assert!(add.infer(&[&table, &tokens]).is_err());
    }

    #[test]
    fn fixed_rows_are_checked_once() {
        let table = TensorType::plain([10, 3], DType::F32);
        let rows = |numbers: &[u32]| Gather { indices: Indices::Fixed(numbers.into()), padding: None }.infer(&[&table]);
        assert_eq!(rows(&[0, 9, 9, 4]).unwrap()[0].shape[..], [4, 3]);
        assert_eq!(rows(&[0, 10]), Err(OpError::Attribute("row 10 is not below 10, the number of rows".to_owned())));
    }
}
