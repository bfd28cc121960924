//! The rehearsal: one step on the simulated device before a training, with recommendations.

use super::before;
use crate::Failure;
use crate::context::Context;
use crate::memory::MemoryArgs;
use crate::numbers::percent;
use crate::options::Format;
use crate::proof;
use crate::simulated::Simulated;
use std::io::Write;
use tracing::warn;
use zoo_golden::GoldenError;
use zoo_recipe::Recipe;
use zoo_train::Event;

/// Share of the gradients' elements that another loss scale would preserve, from which on it is recommended.
const NOTABLE: f64 = 0.01;

/// Runs the step of the golden of the recipe as written, except for its sections `npu` and `engine`, and warns about
/// losses of precision on the device. Does nothing without a golden.
pub(super) fn rehearse(
    name: &str,
    recipe: &Recipe,
    simulated: &Simulated,
    memory: MemoryArgs,
    context: &mut Context,
) -> Result<Option<Event>, Failure> {
    let mut written = context.catalog()?.load(name, None, &[])?;
    let golden = match proof::golden(&written, None, context) {
        Ok((golden, _)) => golden,
        Err(Failure::Golden(GoldenError::Absent { .. })) => return Ok(None),
        Err(other) => return Err(other),
    };
    (written.recipe.npu, written.recipe.engine) = (recipe.npu.clone(), recipe.engine.clone());
    let report = proof::on_device(&written.recipe, &golden, simulated, memory, context)?;
    let device = simulated.name();
    if let Some(scale) = report.loss_scale.filter(|scale| scale.lost_at_present > scale.lost_at_best + NOTABLE) {
        let (lost, best) = (percent(scale.lost_at_present), percent(scale.lost_at_best));
        warn!(
            "with the loss scale {}, {lost} of the gradient elements underflow on {device}; with \
             `npu.loss_scale={{fixed: {{scale: {}}}}}` only {best}",
            scale.present, scale.best
        );
    }
    if let Some(first) = &report.first_divergence {
        let node = first.node.as_deref().unwrap_or(&first.tensor);
        let hints = first.hints.join("; ");
        warn!(
            "on {device}, {node} is the first operator that loses more than rounding explains ({hints}): zoo check \
             {name} --device {device}"
        );
    }
    let event = Event::Device(Box::new(before::device(&report, device)));
    if context.format == Format::Json {
        context.out.json(&event)?;
        context.out.flush()?;
    }
    Ok(Some(event))
}
