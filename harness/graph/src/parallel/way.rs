//! How an operator is split over ranks: what its file says about it.

use super::{MeshAxis, Part};
use crate::{
    ops::Op,
    tensor::{Shape, TensorType},
};

/// An operator's application before it is split.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// Types of the operands.
    pub inputs: &'a [&'a TensorType],
    /// Types of the results.
    pub outputs: &'a [&'a TensorType],
    /// The axis of the mesh.
    pub over: MeshAxis,
    /// Number of ranks along it.
    pub ranks: usize,
}

/// An operand or a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The n-th operand.
    Operand(usize),
    /// The n-th result.
    Result(usize),
}

/// How ranks need an operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// All of it.
    Whole,
    /// Their part of it.
    Part(Part),
    /// As a partial sum: the operator is linear in it.
    Partial,
    /// As each rank has it: see [`Outcome::Local`].
    Local,
    /// Not at all: it is added to the first result, after this has been summed over the ranks.
    AddedLater,
}

/// What ranks have of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of it.
    Whole,
    /// Their part of it.
    Part(Part),
    /// A partial sum.
    Partial,
    /// Each something of its own, of which nothing is put together: the rows of the tokens of a rank's experts.
    Local,
    /// The mean over their part of the elements.
    Mean,
    /// The variance over their part of the elements; the result before it is the mean of these.
    Variance,
    /// The mean over those elements of their part for which this operand (u32) is another number. There may be none.
    MeanOf {
        /// The operand.
        operand: usize,
        /// The number.
        ignored: u32,
    },
}

/// One way to split an operator.
#[derive(Clone, Debug)]
pub struct Way {
    /// The operator that each rank computes.
    pub op: Op,
    /// How it needs each operand.
    pub operands: Vec<Need>,
    /// What it gives.
    pub results: Vec<Outcome>,
}

impl Way {
    /// An operator whose elements depend on those at the same place: all operands and results of the same shape as the
    /// given one are split in the same way, all others are whole.
    pub fn elementwise(op: impl Into<Op>, call: Call<'_>, known: Slot, part: &Part) -> Self {
        let shape = call.shape(known);
        let operands = call.inputs.iter().map(|ty| match ty.shape == *shape {
            true => Need::Part(part.clone()),
            false => Need::Whole,
        });
        let results = call.outputs.iter().map(|ty| match ty.shape == *shape {
            true => Outcome::Part(part.clone()),
            false => Outcome::Whole,
        });
        Self { op: op.into(), operands: operands.collect(), results: results.collect() }
    }

    /// An operator that treats each element of some axes of the first operand alike: along one of them, this operand and
    /// all results are split in the same way. `axes` are those axes, which are the same in operand and results.
    pub fn along(op: impl Into<Op>, call: Call<'_>, part: &Part, axes: impl Fn(usize) -> bool) -> Option<Self> {
        let operands = (0..call.inputs.len()).map(|n| if n == 0 { Need::Part(part.clone()) } else { Need::Whole });
        let results = call.outputs.iter().map(|_| Outcome::Part(part.clone()));
        axes(part.axis).then(|| Self { op: op.into(), operands: operands.collect(), results: results.collect() })
    }
}

impl<'a> Call<'a> {
    /// The shape of an operand or a result.
    pub fn shape(&self, slot: Slot) -> &'a Shape {
        match slot {
            Slot::Operand(n) => &self.inputs[n].shape,
            Slot::Result(n) => &self.outputs[n].shape,
        }
    }
}
