//! The arithmetic of a device: where values of the step are rounded, and to which type.
//!
//! The graph determines which values are half precision: `Arithmetic::place` inserts the casts. These values are
//! stored as f32 and rounded as soon as a node has computed them ([`zoo_kernels::half`]). So the matrix unit is
//! exact: operands of 11 bits, exact products, sums in f32, one rounding of the result. Vector operators compute in
//! f32 and round their result. An overflow sets a sticky flag, because a saturating device shows no infinity.

use crate::EngineError;
use std::{cell::Cell, collections::BTreeMap};
use zoo_graph::{
    DType, Graph, Node, Source, ValueId,
    passes::{Pass, Pipeline, PlaceCasts, PrecisionPolicy, ScaleLoss},
};
use zoo_kernels::{Isa, half::Rounding};
use zoo_ranks::{Ranks, RanksError};
use zoo_recipe::did_you_mean;

pub use zoo_kernels::half::{HalfType, Overflow, Range, Subnormals, Tally};

/// The arithmetic of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Arithmetic {
    /// The operators that compute in half precision.
    pub policy: PrecisionPolicy,
    /// The exponents of half precision.
    pub range: Range,
    /// Whether the loss is scaled, by [`crate::Scalars::loss_scale`], and which gradients are clipped.
    pub scales_loss: Option<ScaleLoss>,
    /// Whether the update of a step that overflows is skipped.
    pub skips_overflow: bool,
    /// Operators whose results are multiplied by a power of two before rounding, and divided by it afterwards:
    /// planted faults, to test whether they are found. By name of the node.
    pub planted: BTreeMap<String, i32>,
}

impl Arithmetic {
    /// Inserts casts, and the loss scale, into a graph in f32.
    ///
    /// # Errors
    /// The device does not support an operator in the requested type.
    pub(crate) fn place(&self, graph: &mut Graph) -> Result<Simulation, EngineError> {
        let mut passes: Vec<Box<dyn Pass + Send + Sync>> = vec![Box::new(PlaceCasts(self.policy.clone()))];
        if let Some(pass) = self.scales_loss {
            passes.push(Box::new(pass));
        }
        Pipeline::of(passes).run(graph, None)?;
        let Self { range, skips_overflow, planted, .. } = self.clone();
        Ok(Simulation { range, skips_overflow, planted })
    }

    /// Refuses planted faults without effect in a graph after all passes.
    ///
    /// # Errors
    /// There is no node with this name, or it computes in f32.
    pub(crate) fn expect_planted(&self, graph: &Graph) -> Result<(), EngineError> {
        self.planted.keys().try_for_each(|name| self.can_plant(graph, name))
    }

    /// Refuses a fault at a node that does not exist, or whose results are not rounded on this device. Nodes that the
    /// policy keeps in f32 are allowed, because [`PrecisionPolicy::keep`] is meant to make them safe.
    fn can_plant(&self, graph: &Graph, name: &str) -> Result<(), EngineError> {
        let half = |v: &ValueId| half_type(graph.ty(*v).dtype).is_some();
        let mut named = graph.nodes.iter().filter(|node| node.name == name).peekable();
        if named.peek().is_none() {
            let candidates = graph.nodes.iter().map(|node| node.name.as_str());
            let hint = did_you_mean(name, candidates).map(str::to_owned);
            return Err(EngineError::UnknownNode { name: name.to_owned(), hint });
        }
        if named.all(|node| !self.policy.keeps(node) && !node.outputs.iter().any(half)) {
            return Err(EngineError::NotRounded(name.to_owned()));
        }
        let view = graph.nodes.iter().find(|node| node.name == name && node.op.rules().is_view());
        match view.and_then(|node| node.inputs.first()).map(|v| graph.value(*v).source) {
            Some(Source::Node(of, _)) => {
                Err(EngineError::View { name: name.to_owned(), of: graph.nodes[of.0].name.clone() })
            }
            Some(Source::Input(_) | Source::Variable(_)) | None => Ok(()),
        }
    }
}

/// The rounding of values in a graph with casts.
#[derive(Clone, Debug)]
pub(crate) struct Simulation {
    range: Range,
    skips_overflow: bool,
    planted: BTreeMap<String, i32>,
}

/// Overflow and underflow of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Effects of rounding on the results of each node of the graph.
    pub tallies: Vec<Tally>,
    /// Whether there was an overflow: the device's sticky flag.
    pub overflow: bool,
    /// Whether the update was skipped.
    pub skipped: bool,
}

impl Findings {
    /// Before the step.
    pub(crate) fn of(graph: &Graph) -> Self {
        Self { tallies: vec![Tally::default(); graph.nodes.len()], overflow: false, skipped: false }
    }
}

impl Simulation {
    /// The rounding of the `r`-th result of a node; none if the device stores it as computed. Observed results (`seen`)
    /// are rounded after the kernel.
    pub(crate) fn held(&self, isa: Isa, graph: &Graph, node: &Node, r: usize, seen: bool) -> Option<Held> {
        let dtype = graph.ty(*node.outputs.get(r)?).dtype;
        let ty = half_type(dtype)?;
        let planted = self.planted.get(&node.name).map(|power| 2f32.powi(*power));
        if planted.is_none() && node.op.rules().passes_on(r, &graph.types(&node.inputs)) {
            return None;
        }
        Some(Held { rounding: Rounding::new(isa, ty, self.range), planted, seen, rounded: Cell::new(false) })
    }

    /// The exponents of half precision.
    pub(crate) fn range(&self) -> Range {
        self.range
    }

    /// Exchanges overflow flags with the other ranks, so that all of them update or none.
    pub(crate) fn agree(&self, ranks: &Ranks, findings: &mut Findings) -> Result<(), RanksError> {
        findings.overflow = ranks.any(findings.overflow)?;
        findings.skipped = findings.overflow && self.skips_overflow;
        Ok(())
    }

    /// Records the effects of rounding on results of node `n`.
    pub(crate) fn note(&self, n: usize, tally: Tally, findings: &mut Findings) {
        findings.tallies[n] = findings.tallies[n].plus(tally);
        findings.overflow |= tally.overflowed > 0;
        findings.skipped = findings.overflow && self.skips_overflow;
    }
}

/// How a device stores a result.
#[derive(Debug)]
pub(crate) struct Held {
    rounding: Rounding,
    /// A factor on the result before rounding: a planted fault.
    planted: Option<f32>,
    /// Whether the result is observed before rounding.
    seen: bool,
    rounded: Cell<bool>,
}

impl Held {
    /// For a kernel that rounds its own results. Calling this obliges the kernel to do so.
    pub(crate) fn by_kernel(&self) -> Option<&Rounding> {
        if self.planted.is_some() || self.seen {
            return None;
        }
        self.rounded.set(true);
        Some(&self.rounding)
    }

    /// Whether the result is observed before and after rounding.
    pub(crate) fn seen(&self) -> bool {
        self.seen
    }

    /// Rounds results that no kernel has rounded, and returns the effects.
    pub(crate) fn finish(self, values: &mut [f32]) -> Tally {
        if !self.rounded.get() {
            let factor = self.planted.unwrap_or(1.0);
            values.iter_mut().filter(|_| factor != 1.0).for_each(|x| *x *= factor);
            self.rounding.whole(values);
            values.iter_mut().filter(|_| factor != 1.0).for_each(|x| *x /= factor);
        }
        self.rounding.tally()
    }
}

/// The simulated format of a type.
pub(crate) fn half_type(dtype: DType) -> Option<HalfType> {
    match dtype {
        DType::F16 => Some(HalfType::Fp16),
        DType::Bf16 => Some(HalfType::Bf16),
        DType::F32 | DType::F64 | DType::U32 => None,
    }
}
