//! `ConcatV2`: concatenation along an axis.

use super::{OpError, Operand, Operator, Rounding, Slice, Work, channel_run, expect_same_storage};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Need, Outcome, Part, Slot, Way},
    tensor::TensorType,
    units::Flop,
};

/// Operands: one or more tensors that agree on all axes except one. Result: their concatenation along this axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Concat {
    /// The axis along which they are joined.
    pub axis: usize,
}

impl Operator for Concat {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let Some(first) = inputs.first() else {
            return Err(OpError::Arity { expected: "one or more", found: 0 });
        };
        if self.axis >= first.shape.len() {
            return Err(OpError::Attribute(format!("axis {} of a tensor {}", self.axis, first.shape)));
        }
        let mut joined = first.shape.to_vec();
        for other in &inputs[1..] {
            expect_same_storage("part", first, other)?;
            let mut expected = first.shape.to_vec();
            if let Some(n) = other.shape.get(self.axis) {
                expected[self.axis] = *n;
            }
            super::expect_shape("part", other, &expected)?;
            joined[self.axis] = joined[self.axis].checked_add(other.shape[self.axis]).ok_or(OpError::TooLarge)?;
        }
        Ok(vec![first.with_shape(joined)])
    }

    fn flop(&self, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        Flop(0)
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::MAP
    }

    fn work(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        Work::Moves {
            run: channel_run(inputs, outputs, inputs[0]).unwrap_or_else(|| {
                let row = inputs[0].shape.iter().skip(self.axis).product::<usize>() as u64;
                row * inputs[0].dtype.bytes().0
            }),
        }
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Moves
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        self.axis == 0
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        let mut start = vec![0; grad.ty(dy).shape.len()];
        for i in 0..grad.operands() {
            let size = grad.ty(grad.operand(i)).shape.to_vec();
            let next = start[self.axis] + size[self.axis];
            if grad.wants(i) {
                let dx = grad.emit("grad", Slice { start: start.clone(), size }, &[dy])?;
                grad.set(i, dx);
            }
            start[self.axis] = next;
        }
        Ok(())
    }

    fn way(&self, call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        if part.axis != self.axis {
            return Some(Way {
                op: self.clone().into(),
                operands: vec![Need::Part(part.clone()); call.inputs.len()],
                results: vec![Outcome::Part(part.clone())],
            });
        }
        let Slot::Operand(known) = known else { return None };
        let own = |(n, ty): (usize, &&TensorType)| match n == known {
            true => part.clone(),
            false => Part::of(&ty.shape, self.axis),
        };
        let parts: Vec<Part> = call.inputs.iter().enumerate().map(own).collect();
        let runs = parts.iter().flat_map(|part| part.runs.clone()).collect();
        let results = vec![Outcome::Part(Part { axis: self.axis, runs })];
        Some(Way { op: self.clone().into(), operands: parts.into_iter().map(Need::Part).collect(), results })
    }
}
