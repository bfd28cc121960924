//! Reference values of a recipe that are not part of a step: learning rates and preprocessing.
//!
//! They are stored next to the step in `golden/<recipe>/`, and were computed by the reference framework.

use crate::{
    error::GoldenError,
    golden::{Golden, Samples, read_capped},
    manifest::ScheduleTable,
    report::Item,
};
use safetensors::SafeTensors;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use zoo_datasets::{Rng, hash::sample_positions, image};
use zoo_recipe::{Recipe, schema::Length};

/// Largest relative difference of a learning rate.
pub const SCHEDULE_TOLERANCE: f64 = 1e-12;
/// Largest relative error of preprocessed pixels: one rounding of f32.
pub const PIXEL_TOLERANCE: f64 = 1.0 / (1u64 << 23) as f64;

/// Compares the recipe's learning rates with those in the golden, or else with `schedule.json`, step by step. Without
/// either, there are no items.
///
/// # Errors
/// A file that exists but cannot be read.
pub fn schedule(recipe: &Recipe, golden: &Golden, folder: &Path) -> Result<Vec<Item>, GoldenError> {
    let Some((path, table)) = table(golden, folder)? else { return Ok(Vec::new()) };
    let mut items = vec![
        same("train.epochs", recipe.train.epochs as f64, table.epochs as f64),
        same("train.batch", recipe.train.batch as f64, table.batch as f64),
    ];
    let length = Length::new(table.steps_per_epoch, table.epochs, recipe.train.max_steps);
    let mut rates: Vec<(usize, f64)> = Vec::new();
    for (step, lr) in &table.lr {
        let malformed = |_| crate::error::malformed(&path, format!("step `{step}`"));
        let step = step.parse().map_err(malformed)?;
        rates.push((step, *lr));
    }
    rates.sort_unstable_by_key(|(step, _)| *step);
    items.extend(rates.into_iter().map(|(step, truth)| {
        let ours = recipe.schedule.lr(step, length);
        let error = if truth == 0.0 { ours.abs() } else { ((ours - truth) / truth).abs() };
        Item::measured(format!("lr of step {step}"), error, SCHEDULE_TOLERANCE)
    }));
    Ok(items)
}

/// The golden's learning rates with their file, or those of `schedule.json`.
fn table(golden: &Golden, folder: &Path) -> Result<Option<(PathBuf, ScheduleTable)>, GoldenError> {
    if let Some(table) = &golden.manifest.schedule {
        return Ok(Some((golden.path.clone(), table.clone())));
    }
    let path = folder.join("schedule.json");
    Ok(read_json::<ScheduleTable>(&path)?.map(|table| (path, table)))
}

/// The learning rates of the first steps by the recipe's schedule, with the length of a training that the golden names.
///
/// # Errors
/// Neither the golden nor a `schedule.json` says how many steps an epoch has.
pub fn rates(recipe: &Recipe, golden: &Golden, folder: &Path, steps: usize) -> Result<Vec<f64>, GoldenError> {
    let Some((_, table)) = table(golden, folder)? else {
        let message = "neither the golden nor schedule.json beside it says how many steps an epoch has: without that, \
                       the schedule has no learning rates"
            .to_owned();
        return Err(crate::error::malformed(folder, message));
    };
    let length = Length::new(table.steps_per_epoch, table.epochs, recipe.train.max_steps);
    Ok((0..steps).map(|step| recipe.schedule.lr(step, length)).collect())
}

fn same(name: &str, ours: f64, truth: f64) -> Item {
    match ours == truth {
        true => Item::measured(name, 0.0, 1.0),
        false => Item::wrong(name, format!("the recipe has {ours}, the table {truth}")),
    }
}

#[derive(Deserialize)]
struct PreprocessTable {
    entries: Vec<PreprocessEntry>,
}

#[derive(Deserialize)]
struct PreprocessEntry {
    key: String,
    file: PathBuf,
    shape: [usize; 3],
    mean: f64,
    l2: f64,
}

/// Compares the recipe's preprocessing for evaluation with `preprocess.json`. Without the file, there are no items.
///
/// # Errors
/// A file that exists but cannot be read.
pub fn preprocess(recipe: &Recipe, folder: &Path) -> Result<Vec<Item>, GoldenError> {
    let path = folder.join("preprocess.json");
    let Some(table) = read_json::<PreprocessTable>(&path)? else { return Ok(Vec::new()) };
    let malformed = |message: String| crate::error::malformed(&path, message);
    let bytes = read_capped(&path.with_extension("safetensors"))?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(|e| malformed(e.to_string()))?;
    let shape = recipe.model.inputs.values().next().and_then(|input| input.image()).unwrap_or_default();
    let pipeline = match zoo_tasks::task(recipe.data.source.kind()).preprocessing(recipe, shape) {
        Ok(pipeline) => pipeline,
        Err(error) => return Ok(vec![Item::wrong("pipeline", error.to_string())]),
    };
    let mut items = Vec::new();
    for entry in table.entries {
        let view = tensors.tensor(&entry.key).map_err(|e| malformed(format!("`{}`: {e}", entry.key)))?;
        let truth = floats(&view).ok_or_else(|| malformed(format!("`{}` is not floating point", entry.key)))?;
        let file = folder.join(&entry.file);
        let picture = image::decode(&read_capped(&file)?).map_err(|e| crate::error::malformed(&file, e))?;
        let cropped = pipeline.apply(&picture, &mut Rng::new(0, 0, 0));
        let (size, channels) = (cropped.size(), pipeline.normalize().planes());
        if [channels, size.height, size.width] != entry.shape {
            let note = format!("{channels}x{}x{} pixels instead of {:?}", size.height, size.width, entry.shape);
            items.push(Item::wrong(entry.key, note));
            continue;
        }
        let mut pixels = vec![0.0; channels * size.area()];
        pipeline.normalize().apply(&cropped, &mut pixels);
        let positions: Vec<usize> = sample_positions(&entry.key, pixels.len(), truth.len()).collect();
        let samples = Samples { positions, values: &truth };
        let found: Vec<f64> = samples.positions.iter().map(|p| f64::from(pixels[*p])).collect();
        let norm = pixels.iter().map(|p| f64::from(*p).powi(2)).sum::<f64>().sqrt();
        let mean = pixels.iter().map(|p| f64::from(*p)).sum::<f64>() / pixels.len() as f64;
        let rms = entry.l2 / (pixels.len() as f64).sqrt();
        let error = crate::compare::relative_l2(&found, samples.values, entry.l2, pixels.len())
            .max((norm - entry.l2).abs() / entry.l2)
            .max((mean - entry.mean).abs() / rms);
        items.push(Item::measured(entry.key, error, PIXEL_TOLERANCE));
    }
    Ok(items)
}

/// Reads an optional JSON file.
pub(crate) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, GoldenError> {
    if !path.exists() {
        return Ok(None);
    }
    let parsed = serde_json::from_slice(&read_capped(path)?);
    parsed.map(Some).map_err(|e| crate::error::malformed(path, e))
}

fn floats(view: &safetensors::tensor::TensorView<'_>) -> Option<Vec<f64>> {
    let data = view.data();
    match view.dtype() {
        safetensors::Dtype::F64 => Some(data.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect()),
        safetensors::Dtype::F32 => Some(data.as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect()),
        _ => None,
    }
}
