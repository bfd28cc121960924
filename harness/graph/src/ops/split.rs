//! `SplitVD`: splits a tensor along an axis.

use super::{Concat, OpError, Operand, Operator, Rounding, Work, channel_run, operands};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    ops::Fill,
    parallel::{Call, Need, Outcome, Part, Slot, Way},
    tensor::TensorType,
    units::Flop,
};

/// Operand: any tensor. Results: its parts along an axis, in order.
///
/// Source: `torch.split`; the opposite of [`Concat`].
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// The axis that is split.
    pub axis: usize,
    /// Extent of each part along it.
    pub sizes: Vec<usize>,
}

/// Runs in groups with the given sums.
fn cut(runs: &[usize], sizes: &[usize]) -> Option<Vec<Vec<usize>>> {
    let mut rest = runs.iter();
    let group = |size: &usize| {
        let (mut group, mut sum) = (Vec::new(), 0);
        while sum < *size {
            let run = rest.next()?;
            sum += run;
            group.push(*run);
        }
        (sum == *size).then_some(group)
    };
    sizes.iter().map(group).collect()
}

impl Operator for Split {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x] = operands(inputs, "input")?;
        let whole = self.sizes.iter().try_fold(0usize, |sum, size| sum.checked_add(*size));
        if self.sizes.is_empty() || x.shape.get(self.axis).copied() != whole {
            let message = format!("parts of {:?} along axis {} do not make {}", self.sizes, self.axis, x.shape);
            return Err(OpError::Attribute(message));
        }
        let part = |size: &usize| {
            let mut shape = x.shape.to_vec();
            shape[self.axis] = *size;
            x.with_shape(shape)
        };
        Ok(self.sizes.iter().map(part).collect())
    }

    fn flop(&self, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        Flop(0)
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::MAP
    }

    fn work(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        Work::Views {
            run: channel_run(inputs, outputs, outputs[0]).unwrap_or_else(|| {
                let row = outputs[0].shape.iter().skip(self.axis).product::<usize>() as u64;
                row * outputs[0].dtype.bytes().0
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
        let mut parts = Vec::with_capacity(self.sizes.len());
        for n in 0..self.sizes.len() {
            parts.push(match grad.result_grad(n) {
                Some(part) => part,
                None => {
                    let ty = grad.ty(grad.result(n)).clone();
                    grad.emit("grad_unused", Fill { value: 0.0, ty }, &[])?
                }
            });
        }
        let dx = grad.emit("grad", Concat { axis: self.axis }, &parts)?;
        grad.set(0, dx);
        Ok(())
    }

    fn way(&self, call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        if part.axis != self.axis {
            return Some(Way {
                op: self.clone().into(),
                operands: vec![Need::Part(part.clone())],
                results: vec![Outcome::Part(part.clone()); self.sizes.len()],
            });
        }
        // Each result is divided: by its runs in the operand, or in the way of the known one, as whole runs.
        let runs: Vec<Vec<usize>> = match known {
            Slot::Operand(_) => cut(&part.runs, &self.sizes)?,
            Slot::Result(n) => {
                let own = |(m, size): (usize, &usize)| if m == n { part.runs.clone() } else { vec![*size] };
                self.sizes.iter().enumerate().map(own).collect()
            }
        };
        let sizes = self.sizes.iter().map(|size| size / call.ranks).collect();
        let whole = Part { axis: self.axis, runs: runs.concat() };
        let results = runs.into_iter().map(|runs| Outcome::Part(Part { axis: self.axis, runs })).collect();
        Some(Way { op: Self { axis: self.axis, sizes }.into(), operands: vec![Need::Part(whole)], results })
    }
}
