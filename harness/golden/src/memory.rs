//! How much memory a check will take, before it computes anything.

use crate::{
    check::{CheckOptions, bound, under_conditions},
    error::GoldenError,
    manifest::Golden,
    run::Setup,
    variants,
};
use zoo_engine::{Kernels, StepMemory};
use zoo_graph::Bytes;
use zoo_recipe::Recipe;

/// Copies of the largest value that are made while it is compared: its row-major form, that in f64, and what it began as.
/// Measured: docs/reliability.md, "Memory".
const COPIES: u64 = 4;

/// What [`crate::check`] takes on top of what the process has, at its peak: the step; beside it the forward pass
/// without fusion, or all variables row-major (which reference kernels keep them in), or the step of a variant; and copies of
/// the largest value.
///
/// Not counted is the second judgement of a step in f32 whose ReLU inputs near zero fell on the other side
/// ([`crate::branch`]): it takes a further step in f32 and one in f64, and whether it is made only the first judgement tells.
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
    let beside = beside.max(variants);
    Ok(step.peak() + beside + step.inputs + Bytes(COPIES * step.largest.0))
}
