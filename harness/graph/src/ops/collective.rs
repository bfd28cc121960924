//! Communication between the ranks along one axis of a mesh, for steps that are split ([`crate::parallel`]).

use super::{Element, OpError, Operand, Operator, Rounding, Summed, Work, one_float, per_element};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, MeshAxis, Part, Slot, Way},
    tensor::TensorType,
    units::Flop,
};

/// What is communicated. A value is *whole* if all ranks have the same, *split* if each has a part, and *partial* if it
/// is the sum of what the ranks have. The gradient of a whole value is whole, that of a partial one is whole, and that of
/// a split one is split in the same way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Exchange {
    /// From partial to whole.
    Sum,
    /// A whole value for operators that compute something else on each rank: the value itself, whose gradients are
    /// summed (Megatron-LM's `copy_to_tensor_model_parallel_region`).
    Copy,
    /// As [`Exchange::Copy`], for the ranks at one place alone: of a parameter that several stages of a pipeline have.
    CopyAt(usize),
    /// From split to whole.
    Gather(Part),
    /// As [`Exchange::Gather`] followed by [`Exchange::Copy`].
    GatherCopy(Part),
    /// From partial to split.
    SumPart(Part),
    /// From whole to split: the rank's own part, without communication.
    Own(Part),
    /// From split to partial: the rank's own part with zeros around it, without communication.
    Spread(Part),
    /// From the ranks at one place to those at another.
    Send {
        /// Who has it.
        from: usize,
        /// Who gets it.
        to: usize,
    },
    /// From split along one axis to split along another.
    Swap {
        /// What each rank has.
        from: Part,
        /// What each rank gets.
        to: Part,
    },
}

/// Operand: any tensor, or the rank's part of it. Result: as [`Exchange`] says.
///
/// Source: MPI's `Allreduce`, `Allgather`, `Reduce_scatter` and `Alltoall`; HCCL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collective {
    /// What is communicated.
    pub exchange: Exchange,
    /// The axis of the mesh along which ranks communicate.
    pub over: MeshAxis,
    /// Number of ranks along it.
    pub ranks: usize,
}

/// Device operators.
pub(super) const NAMES: [&str; 8] =
    ["HcomSend", "HcomAllReduce", "HcomAllGather", "HcomReduceScatter", "HcomAllToAll", "Identity", "SliceD", "PadD"];

impl Exchange {
    /// A word for the names of nodes.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Copy | Self::CopyAt(_) => "copy",
            Self::Gather(_) | Self::GatherCopy(_) => "gather",
            Self::SumPart(_) => "sum_part",
            Self::Own(_) => "own",
            Self::Spread(_) => "spread",
            Self::Send { .. } => "send",
            Self::Swap { .. } => "swap",
        }
    }
}

impl Collective {
    /// Whether values of other ranks are received.
    pub fn communicates(&self) -> bool {
        match self.exchange {
            Exchange::Sum | Exchange::Gather(_) | Exchange::GatherCopy(_) | Exchange::SumPart(_) => true,
            Exchange::Swap { .. } | Exchange::Send { .. } => true,
            Exchange::Copy | Exchange::CopyAt(_) | Exchange::Own(_) | Exchange::Spread(_) => false,
        }
    }

    fn gathered(&self, x: &TensorType, part: &Part) -> Result<TensorType, OpError> {
        let extent: usize = part.runs.iter().sum();
        let mut shape = x.shape.to_vec();
        match shape.get_mut(part.axis) {
            Some(own) if *own * self.ranks == extent && part.divides(self.ranks) => *own = extent,
            _ => return Err(self.misfit(x, part)),
        }
        Ok(x.with_shape(shape))
    }

    fn own(&self, x: &TensorType, part: &Part) -> Result<TensorType, OpError> {
        let extent = part.runs.iter().sum::<usize>();
        if x.shape.get(part.axis) != Some(&extent) || !part.divides(self.ranks) {
            return Err(self.misfit(x, part));
        }
        Ok(x.with_shape(part.local(&x.shape, self.ranks)))
    }

    fn misfit(&self, x: &TensorType, part: &Part) -> OpError {
        let (ranks, axis) = (self.ranks, part.axis);
        OpError::Attribute(format!("{ranks} equal parts of runs of {:?} along axis {axis} of {}", part.runs, x.shape))
    }
}

impl Operator for Collective {
    fn name(&self) -> Option<&'static str> {
        Some(match self.exchange {
            Exchange::Sum => "HcomAllReduce",
            Exchange::Copy | Exchange::CopyAt(_) => "Identity",
            Exchange::Gather(_) | Exchange::GatherCopy(_) => "HcomAllGather",
            Exchange::SumPart(_) => "HcomReduceScatter",
            Exchange::Own(_) => "SliceD",
            Exchange::Spread(_) => "PadD",
            Exchange::Send { .. } => "HcomSend",
            Exchange::Swap { .. } => "HcomAllToAll",
        })
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x] = super::operands(inputs, "one")?;
        if x.dtype.is_float() {
            one_float(inputs)?;
        }
        Ok(vec![match &self.exchange {
            Exchange::Sum | Exchange::Copy | Exchange::CopyAt(_) | Exchange::Send { .. } => x.clone(),
            Exchange::Gather(part) | Exchange::GatherCopy(part) | Exchange::Spread(part) => self.gathered(x, part)?,
            Exchange::SumPart(part) | Exchange::Own(part) => self.own(x, part)?,
            Exchange::Swap { from, to } => self.own(&self.gathered(x, from)?, to)?,
        }])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        match self.exchange {
            Exchange::Sum | Exchange::SumPart(_) => per_element(self.ranks as u64 - 1, inputs[0]),
            Exchange::Copy | Exchange::CopyAt(_) | Exchange::Gather(_) | Exchange::GatherCopy(_) => Flop(0),
            Exchange::Own(_) | Exchange::Spread(_) | Exchange::Swap { .. } | Exchange::Send { .. } => Flop(0),
        }
    }

    fn operand(&self, _: usize) -> Operand {
        Operand { element: Element::AsIs, ..Operand::PLAIN }
    }

    fn work(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        match self.exchange {
            Exchange::Copy | Exchange::CopyAt(_) => Work::Nothing,
            Exchange::Sum | Exchange::SumPart(_) => Work::counted(self.flop(inputs, outputs), inputs, outputs),
            Exchange::Gather(_) | Exchange::GatherCopy(_) | Exchange::Swap { .. } => Work::one(inputs, outputs),
            Exchange::Own(_) | Exchange::Spread(_) | Exchange::Send { .. } => Work::one(inputs, outputs),
        }
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        match self.exchange {
            Exchange::Sum | Exchange::SumPart(_) => Rounding::Narrow(self.ranks, Summed::All),
            Exchange::Copy | Exchange::CopyAt(_) | Exchange::Gather(_) | Exchange::GatherCopy(_) => Rounding::Moves,
            Exchange::Own(_) | Exchange::Spread(_) | Exchange::Swap { .. } | Exchange::Send { .. } => Rounding::Moves,
        }
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let through = |exchange| Self { exchange, ..self.clone() };
        let back = match &self.exchange {
            Exchange::Sum => {
                if let Some(dy) = grad.result_grad(0) {
                    grad.set(0, dy);
                }
                return Ok(());
            }
            Exchange::Copy | Exchange::CopyAt(_) => through(Exchange::Sum),
            Exchange::Gather(part) | Exchange::Spread(part) => through(Exchange::Own(part.clone())),
            Exchange::GatherCopy(part) => through(Exchange::SumPart(part.clone())),
            Exchange::SumPart(part) | Exchange::Own(part) => through(Exchange::Gather(part.clone())),
            Exchange::Send { from, to } => through(Exchange::Send { from: *to, to: *from }),
            Exchange::Swap { from, to } => through(Exchange::Swap { from: to.clone(), to: from.clone() }),
        };
        grad.through(back)
    }

    fn way(&self, call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        let along = |own: &Part| own.axis == part.axis;
        let same = match &self.exchange {
            Exchange::Sum | Exchange::Copy | Exchange::CopyAt(_) | Exchange::Send { .. } => false,
            Exchange::Gather(own) | Exchange::GatherCopy(own) | Exchange::SumPart(own) => along(own),
            Exchange::Own(own) | Exchange::Spread(own) => along(own),
            Exchange::Swap { from, to } => along(from) || along(to),
        };
        Way::along(self.clone(), call, part, |_| !same && matches!(known, Slot::Operand(_) | Slot::Result(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn parts_of_runs() {
        let part = Part { axis: 1, runs: vec![4, 2] };
        let whole = TensorType::plain([3, 6], DType::F32);
        let infer = |exchange, x: &TensorType| {
            let op = Collective { exchange, over: MeshAxis::Tensor, ranks: 2 };
            op.infer(&[x]).map(|types| types[0].clone())
        };
        let own = infer(Exchange::Own(part.clone()), &whole).unwrap();
        assert_eq!(own.shape, [3, 3].into());
        for exchange in [Exchange::Gather(part.clone()), Exchange::Spread(part.clone())] {
            assert_eq!(infer(exchange, &own).unwrap(), whole);
        }
        let swap = Exchange::Swap { from: part.clone(), to: Part { axis: 0, runs: vec![3] } };
        assert!(infer(swap, &own).is_err(), "3 rows for 2 ranks");
        assert!(infer(Exchange::SumPart(part), &own).is_err(), "3 columns are not the 6 of the runs");
    }
}
