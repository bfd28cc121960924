//! Forecasts the memory of a check before it computes anything.

use crate::{
    bound::Bound, compare::Precision, device::DeviceOptions, error::GoldenError, golden::Golden, options::CheckOptions,
    variants,
};
use zoo_engine::{Kernels, StepMemory};
use zoo_graph::{Bytes, Graph, Node};
use zoo_recipe::Recipe;

/// Temporary copies of the largest value of a step in f32 while it is compared: two, in f64. Measured:
/// docs/reliability.md, "Memory".
const COPIES: u64 = 4;

/// Peak memory of [`crate::check`], on top of what the process has: the step; in addition the forward pass without
/// fusion, or all variables in row-major order (as reference kernels store them), or the step of a variant; and
/// copies of the largest value.
///
/// In f32, every node is recomputed: `judged`. The forecast does not include the step in f64 that decides if f32
/// exceeds the limits: only the first verdict shows whether it is needed. Its memory is then compared with
/// [`CheckOptions::room`].
///
/// # Errors
/// A recipe with layers that do not fit the golden, or a step that the kernels cannot compute.
pub fn memory(recipe: &Recipe, golden: &Golden, options: &CheckOptions) -> Result<Bytes, GoldenError> {
    let bound = Bound::new(recipe, golden, options.precision, options.engine)?;
    let step = of_step(&bound)?;
    let beside = match bound.engine.kernels {
        Kernels::Reference => Bytes(0),
        Kernels::Fast { .. } => {
            let unfused = StepMemory::of(bound.graph.forward(), bound.engine.without_fusion(), None)?;
            unfused.peak().max(step.variables)
        }
    };
    let mut variants = Bytes(0);
    for (_, recipe) in variants::recipes(recipe, &bound.recipe, &bound.golden) {
        variants = variants.max(of_step(&bound.variant(recipe)?)?.peak());
    }
    let judged = if options.precision == Precision::F32 { judged(&bound.graph) } else { Bytes(0) };
    let beside = beside.max(variants).max(judged);
    Ok(step.peak() + beside + step.inputs + Bytes(COPIES * step.largest.0))
}

fn of_step(bound: &Bound) -> Result<StepMemory, GoldenError> {
    Ok(StepMemory::of(bound.graph.clone(), bound.engine, None)?)
}

/// The largest memory of a recomputed node: its operands and results as row-major tensors, and, except for updates
/// (which are judged piece by piece), also in f64 with magnitudes and bounds.
fn judged(graph: &Graph) -> Bytes {
    const IN_F64: u64 = 5;
    let node = |node: &Node| {
        let values: u64 = node.inputs.iter().chain(&node.outputs).map(|v| graph.ty(*v).bytes().0).sum();
        if node.op.update().is_some() { values } else { IN_F64 * values }
    };
    Bytes(graph.nodes.iter().map(node).max().unwrap_or(0))
}

/// Memory of the deciding step in f64, when the step in f32 has given its memory back: the step itself, and a copy of
/// its largest value.
///
/// # Errors
/// A step that the kernels cannot compute.
pub(crate) fn deciding(exact: &Bound) -> Result<Bytes, GoldenError> {
    let step = of_step(exact)?;
    Ok(step.peak() + step.inputs + step.largest)
}

/// Peak memory of [`crate::device::check_device`], on top of what the process has: the step with the device's
/// arithmetic, the judged node, and copies of the largest value.
///
/// # Errors
/// As [`memory`], or an operator that the device does not have in the requested type.
pub fn memory_on_device(recipe: &Recipe, golden: &Golden, options: &DeviceOptions<'_>) -> Result<Bytes, GoldenError> {
    let bound = Bound::new(recipe, golden, Precision::F32, options.engine)?;
    let step = StepMemory::of(bound.graph.clone(), bound.engine.without_fusion(), Some(options.arithmetic))?;
    Ok(step.peak() + step.inputs + judged(&bound.graph) + Bytes(COPIES * step.largest.0))
}
