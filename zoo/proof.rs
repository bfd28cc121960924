//! The golden check of a step, for all commands that need one.

pub mod cases;
pub mod report;
pub mod split;

use crate::Failure;
use crate::context::Context;
use crate::memory::{self, MemoryArgs};
use crate::simulated::Simulated;
use std::path::{Path, PathBuf};
use tracing::debug;
use zoo_engine::Options;
use zoo_golden::{
    CheckOptions, Golden, GoldenError, Precision, Report,
    device::{DeviceReport, check_device},
};
use zoo_graph::Bytes;
use zoo_recipe::{Loaded, Recipe};

/// Steps that are computed to judge a device: with unbounded exponents, on the device, and in f64.
const STEPS_ON_DEVICE: usize = 2;

/// Checks a recipe against its own golden, or against another.
///
/// # Errors
/// A golden that is missing or unreadable, or an engine that fails.
pub fn check(
    loaded: &Loaded,
    other: Option<&Path>,
    precision: Precision,
    memory: MemoryArgs,
    context: &Context,
) -> Result<Report, Failure> {
    let (golden, folder) = golden(loaded, other, context)?;
    let recipe = &loaded.recipe;
    let (limit, before) = (memory.limit(), memory::beyond_now(Bytes(0)));
    let room = limit.as_ref().map(|limit| Bytes(limit.bytes.0.saturating_sub(before.0)));
    let options = CheckOptions { precision, engine: Options::of(recipe), room };
    expect_room(recipe, || zoo_golden::memory(recipe, &golden, &options), memory)?;
    let mut progress = context.progress.named(zoo_golden::phases(&golden, precision), &recipe.name);
    match (zoo_golden::check(recipe, &golden, &folder, &options, &mut progress), limit) {
        (Err(GoldenError::NoRoom { needed }), Some(limit)) => Err(Failure::Memory {
            what: format!("the golden check of {}, which needs a step in f64 (golden/README.md),", recipe.name),
            needed: before + needed,
            limit: (limit.bytes, limit.by),
            instead: "`zoo check --dtype f64` needs less memory; `zoo run --no-check` skips the check".to_owned(),
        }),
        (report, _) => Ok(report?),
    }
}

/// Refuses a check whose forecast exceeds the memory.
///
/// # Errors
/// [`Failure::Memory`].
pub fn expect_room(
    recipe: &Recipe,
    forecast: impl FnOnce() -> Result<Bytes, GoldenError>,
    memory: MemoryArgs,
) -> Result<(), Failure> {
    // Without a forecast the step cannot be built either: the report contains the reason.
    let Ok(more) = forecast() else { return Ok(()) };
    let (what, needed) = (format!("the golden check of {}", recipe.name), memory::beyond_now(more));
    debug!("memory: {what} takes about {needed}");
    let instead = "the batch is given by the golden; `zoo run --no-check` skips the check";
    memory.expect(&what, needed, |_| instead.to_owned())
}

/// Computes and judges the step of a golden on a simulated device.
///
/// # Errors
/// Too little memory, or an engine that fails.
pub fn on_device(
    recipe: &Recipe,
    golden: &Golden,
    simulated: &Simulated,
    memory: MemoryArgs,
    context: &Context,
) -> Result<DeviceReport, Failure> {
    let options = simulated.options(recipe);
    expect_room(recipe, || zoo_golden::memory_on_device(recipe, golden, &options), memory)?;
    Ok(check_device(recipe, golden, &options, &mut context.progress.named(STEPS_ON_DEVICE, &recipe.name))?)
}

/// The golden to check against, and the folder with the other goldens of the recipe.
///
/// # Errors
/// A golden that is missing or unreadable.
pub fn golden(loaded: &Loaded, other: Option<&Path>, context: &Context) -> Result<(Golden, PathBuf), Failure> {
    let recipe = &loaded.recipe;
    let own = context.catalog()?.golden(recipe, &loaded.path);
    let (manifest, folder) = match other {
        Some(other) => (other.to_owned(), folder_of(recipe, own.ok().flatten().as_deref().unwrap_or(other))),
        None => {
            let own = own?.ok_or_else(|| GoldenError::Absent { recipe: recipe.name.clone() })?;
            let folder = folder_of(recipe, &own);
            (own, folder)
        }
    };
    Ok((Golden::read(&manifest)?, folder))
}

/// The folder of the other golden files of a recipe: the folder with its name next to that of its step golden, which
/// may belong to another recipe, or else the folder of the step golden.
fn folder_of(recipe: &Recipe, manifest: &Path) -> PathBuf {
    let beside = manifest.parent().unwrap_or(Path::new(""));
    let own = beside.parent().map(|goldens| goldens.join(&recipe.name));
    own.filter(|own| own.is_dir()).unwrap_or_else(|| beside.to_owned())
}
