//! Checks whether the memory suffices for a training.

use crate::Failure;
use crate::context::Context;
use crate::memory::MemoryArgs;
use crate::options::Format;
use tracing::info;
use zoo_graph::Bytes;
use zoo_recipe::Recipe;
use zoo_train::{Event, Job, memory};

/// Forecasts the memory of a training, prints it, and refuses a training that does not fit.
///
/// # Errors
/// [`Failure::Memory`] with the largest batch that fits; a recipe whose step cannot be built.
pub(super) fn expect(job: Job<'_>, args: MemoryArgs, context: &mut Context) -> Result<Event, Failure> {
    let mut forecast = memory::forecast(job)?;
    forecast.limit = args.limit().map(|limit| limit.bytes.0);
    args.expect("this training", Bytes(forecast.peak), |limit| match largest_batch(job, limit) {
        Some(batch) => format!("the largest batch that fits is {batch} (--set train.batch={batch})"),
        None => "not even a batch of 1 fits".to_owned(),
    })?;
    let step =
        forecast.parts.iter().filter(|part| part.what == memory::STEP).map(|part| Bytes(part.bytes)).sum::<Bytes>();
    info!("memory: about {} at the peak, {step} of it for the step", Bytes(forecast.peak));
    let event = Event::Memory(Box::new(forecast));
    if context.format == Format::Json {
        context.out.json(&event)?;
    }
    Ok(event)
}

/// The largest batch with which the training stays within a limit.
fn largest_batch(job: Job<'_>, limit: Bytes) -> Option<usize> {
    let fits = |batch: usize| {
        let mut recipe: Recipe = job.recipe.clone();
        recipe.train.batch = batch;
        memory::forecast(Job { recipe: &recipe, ..job }).is_ok_and(|forecast| Bytes(forecast.peak) <= limit)
    };
    // Bisection: `fitting` fits and `beyond` does not. The current batch does not fit; a batch of zero would.
    let (mut fitting, mut beyond) = (0, job.recipe.train.batch);
    while fitting + 1 < beyond {
        let middle = fitting + (beyond - fitting) / 2;
        if fits(middle) { fitting = middle } else { beyond = middle }
    }
    (fitting > 0).then_some(fitting)
}
