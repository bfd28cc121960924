//! How much memory a check will take, before it computes anything.

use crate::{
    check::{CheckOptions, bound, under_conditions},
    compare::Precision,
    device::DeviceOptions,
    error::GoldenError,
    manifest::Golden,
    run::Setup,
    variants,
};
use zoo_engine::{Kernels, StepMemory};
use zoo_graph::{Bytes, Graph, Node};
use zoo_recipe::Recipe;

/// Copies of the largest value of a step in f32 that are made while it is compared: twice in f64.
/// Measured: docs/reliability.md, "Memory".
const COPIES: u64 = 4;

/// What [`crate::check`] takes on top of what the process has, at its peak: the step; beside it the forward pass
/// without fusion, or all variables row-major (which reference kernels keep them in), or the step of a variant; and
/// copies of the largest value.
///
/// In f32 every node is computed once more: `judged`. Not counted is the step in f64 that decides where f32 is beyond
/// the golden's floors: only the first judgement tells whether there is one. It is held against [`CheckOptions::room`]
/// then.
///
/// # Errors
/// A recipe whose layers do not fit the golden, or a step that the kernels cannot compute.
pub fn memory(recipe: &Recipe, golden: &Golden, options: &CheckOptions) -> Result<Bytes, GoldenError> {
    let golden = &bound(recipe, golden)?;
    let conditions = under_conditions(recipe, golden);
    let setup = Setup::new(&conditions, golden, options)?;
    let step = StepMemory::of(setup.graph().clone(), options.engine(), None)?;
    let beside = match options.engine().kernels {
        Kernels::Reference => Bytes(0),
        Kernels::Fast { .. } => {
            let unfused = StepMemory::of(setup.graph().forward(), options.engine().without_fusion(), None)?;
            unfused.peak().max(step.variables)
        }
    };
    let mut variants = Bytes(0);
    for (_, recipe) in variants::recipes(recipe, &conditions, golden) {
        let graph = Setup::new(&recipe, golden, options)?.graph().clone();
        variants = variants.max(StepMemory::of(graph, options.engine(), None)?.peak());
    }
    let judged = if options.precision == Precision::F32 { judged(setup.graph()) } else { Bytes(0) };
    let beside = beside.max(variants).max(judged);
    Ok(step.peak() + beside + step.inputs + Bytes(COPIES * step.largest.0))
}

/// The most that a node takes that is computed once more: what it reads and computes as row-major tensors, and, except
/// for updates, which are judged piece by piece, in f64 as well, with magnitudes and bounds.
fn judged(graph: &Graph) -> Bytes {
    const IN_F64: u64 = 5;
    let node = |node: &Node| {
        let values: u64 = node.inputs.iter().chain(&node.outputs).map(|v| graph.ty(*v).bytes().0).sum();
        if node.op.update().is_some() { values } else { IN_F64 * values }
    };
    Bytes(graph.nodes.iter().map(node).max().unwrap_or(0))
}

/// What the step in f64 takes that decides after the one in f32, of the graph `before`: itself, a copy of its largest
/// value, and what the allocator keeps of the other, three eighths of its smaller buffers (measured:
/// docs/reliability.md).
///
/// # Errors
/// A step that the kernels cannot compute.
pub(crate) fn deciding(
    exact: &Graph,
    exactly: &CheckOptions,
    before: &Graph,
    options: &CheckOptions,
) -> Result<Bytes, GoldenError> {
    let step = StepMemory::of(exact.clone(), exactly.engine(), None)?;
    let kept = StepMemory::of(before.clone(), options.engine(), None)?.kept;
    Ok(step.peak() + step.inputs + step.largest + Bytes(kept.0 / 8 * 3))
}

/// What [`crate::device::check_device`] takes on top of what the process has, at its peak: the step with the device's
/// arithmetic, the node that is judged, and copies of the largest value.
///
/// # Errors
/// As [`memory`], or an operator that the device does not have in the type that is asked for.
pub fn memory_on_device(recipe: &Recipe, golden: &Golden, options: &DeviceOptions<'_>) -> Result<Bytes, GoldenError> {
    let golden = &bound(recipe, golden)?;
    let check = CheckOptions { precision: Precision::F32, engine: options.engine, room: None };
    let setup = Setup::new(&under_conditions(recipe, golden), golden, &check)?;
    let engine = options.engine.without_fusion();
    let step = StepMemory::of(setup.graph().clone(), engine, Some(options.arithmetic))?;
    Ok(step.peak() + step.inputs + judged(setup.graph()) + Bytes(COPIES * step.largest.0))
}
