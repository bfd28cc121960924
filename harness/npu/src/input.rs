//! The input pipeline: the time of the host for the samples of one step.
//!
//! Each device has a process with workers, and each worker prepares whole samples one after the other. So a sample
//! takes `cost / workers`, but at least its share of the server's cores, and at least the steps that only one worker
//! can execute at a time.

use crate::{
    Work,
    compile::{normalization, preprocessing},
    device::Device,
    host::{Host, HostStep, Pipeline},
    units::Seconds,
};
use serde::Serialize;
use zoo_recipe::{
    Recipe,
    schema::{NormalizePlace, Source, Step},
};

/// The input side of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Input {
    /// Time of the pipeline for the samples of one step.
    pub pipeline: Seconds,
    /// Time of the copy to the device.
    pub copy: Seconds,
    /// What limits the pipeline.
    pub limit: InputLimit,
    /// Time of one core for each step, per sample.
    pub steps: Vec<InputStep>,
}

/// A step of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct InputStep {
    /// The step.
    pub step: HostStep,
    /// Time of one core for a sample.
    pub time: Seconds,
}

/// What limits an input pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InputLimit {
    /// The workers of a device's process.
    Workers,
    /// The cores of the server, which all processes share.
    Cores,
    /// Steps that only one worker of a process can execute at a time.
    Lock,
    /// The rate that is set in the recipe.
    Given,
    /// There is no pipeline.
    None,
}

impl InputLimit {
    /// Its name in sentences.
    pub fn name(self) -> &'static str {
        match self {
            Self::Workers => "the workers of one process",
            Self::Cores => "the server's cores",
            Self::Lock => "the interpreter's lock",
            Self::Given => "the given rate",
            Self::None => "nothing",
        }
    }
}

/// Bytes of an index.
const INDEX: f64 = 4.0;
/// Pixels of ICDAR 2015's photographs (1280 x 720).
const SCENE_PIXELS: f64 = 1280.0 * 720.0;
/// Pixels of two of SiamMask's crops.
const CROP_PIXELS: f64 = 2.0 * 511.0 * 511.0;

/// The input side of a step with `batch` samples on each of `devices`.
pub fn input(recipe: &Recipe, device: &Device, work: Work, batch: usize, devices: usize) -> Input {
    let options = &recipe.npu.input;
    let samples = batch as f64;
    // Bytes if the device normalises, f32 otherwise.
    let width = if options.normalize == NormalizePlace::Device { 1.0 } else { 4.0 };
    let bytes = recipe.model.inputs.values().map(|input| {
        let numbers: f64 = input.extents().iter().map(|extent| extent.0 as f64).product();
        samples * numbers * input.image().map_or(INDEX, |_| width)
    });
    let bytes: f64 = bytes.sum();
    let links = &device.links;
    let copy = Seconds(links.host_copy_us.value * 1e-6 + bytes / (links.host_gb_per_s.value * 1e9));
    let none = |pipeline, limit| Input { pipeline, copy, limit, steps: Vec::new() };
    if !options.enabled {
        return none(Seconds::ZERO, InputLimit::None);
    }
    if let Some(rate) = options.images_per_s {
        return none(Seconds(samples / rate), InputLimit::Given);
    }
    let host = &device.host;
    let pipeline = host.pipeline(&recipe.name);
    let in_server = devices.min(links.devices_per_server.value as usize).max(1);
    let steps = steps(recipe, work, host, pipeline, host.core_time(pipeline, in_server));
    let cost: f64 = steps.iter().map(|step| step.time.0).sum();
    let one_at_a_time = |step: &&InputStep| pipeline.is_some_and(|pipeline| pipeline.locked.contains(&step.step));
    let locked: f64 = steps.iter().filter(one_at_a_time).map(|step| step.time.0).sum();
    let cores = host.cores.value / in_server as f64;
    let workers = workers(host, pipeline, in_server);
    let threads = pipeline.and_then(|pipeline| pipeline.threads.as_ref()).map_or(1.0, |threads| threads.value);
    let limits = [
        (cost / (workers * threads), InputLimit::Workers),
        (cost / cores, InputLimit::Cores),
        (locked, InputLimit::Lock),
    ];
    let (time, limit) =
        limits.into_iter().fold((0.0, InputLimit::None), |most, next| if next.0 > most.0 { next } else { most });
    Input { pipeline: Seconds(samples * time), copy, limit, steps }
}

/// Workers of one device's pipeline, if `in_server` devices share a server.
fn workers(host: &Host, pipeline: Option<&Pipeline>, in_server: usize) -> f64 {
    let (own, general) = match in_server {
        1 => (pipeline.and_then(|p| p.workers_alone.as_ref().or(p.workers.as_ref())), &host.workers_alone),
        _ => (pipeline.and_then(|p| p.workers.as_ref()), &host.workers),
    };
    own.unwrap_or(general).value
}

/// The steps of a sample: those of the recipe, or, for training, of a known published pipeline.
fn steps(recipe: &Recipe, work: Work, host: &Host, pipeline: Option<&Pipeline>, core_time: f64) -> Vec<InputStep> {
    let mut found = of_recipe(recipe, work);
    if let Some(pipeline) = pipeline.filter(|_| work == Work::Train) {
        found.retain(|step| !pipeline.without.contains(step));
        found.extend(pipeline.with.iter().copied().filter(|step| !found.contains(step)).collect::<Vec<_>>());
    }
    let time = |step| host.time(step, units(step, recipe, host), core_time);
    found.into_iter().map(|step| InputStep { step, time: time(step) }).collect()
}

/// How samples are stored, and the steps to load one.
struct Stored {
    steps: Vec<HostStep>,
    files: f64,
    /// Stored pixels, if they differ from the host's usual photographs.
    pixels: Option<f64>,
}

fn stored(source: &Source) -> Stored {
    let (steps, files, pixels): (&[HostStep], f64, Option<f64>) = match source {
        Source::ImageFolder(_) | Source::ClassFolders(_) => (&[HostStep::Read, HostStep::Decode], 1.0, None),
        // These are in memory, or generated before the training.
        Source::Cifar10(_) | Source::Idx(_) | Source::Characters(_) => (&[], 0.0, None),
        Source::TextFolder(_) => {
            (&[HostStep::Read, HostStep::Decode, HostStep::Warp, HostStep::TextTargets], 1.0, Some(SCENE_PIXELS))
        }
        Source::TextScenes(_) => (&[HostStep::Warp, HostStep::TextTargets], 0.0, None),
        Source::Crop511(_) | Source::FrameFolder(_) => {
            (&[HostStep::Read, HostStep::Decode, HostStep::Warp], 2.0, Some(CROP_PIXELS))
        }
        Source::LabelMaps(_) => (&[HostStep::Read, HostStep::Decode, HostStep::Resize, HostStep::Flip], 2.0, None),
        Source::Shapes(_) => (&[HostStep::Resize, HostStep::Flip], 0.0, None),
        Source::Boxes(_) => (&[HostStep::Read, HostStep::Decode, HostStep::Resize, HostStep::Flip], 1.0, None),
        Source::BoxedShapes(_) => (&[HostStep::Resize, HostStep::Flip], 0.0, None),
        Source::Videos(_) => (&[HostStep::Warp], 0.0, None),
        Source::TextFile(_) | Source::Sentences(_) => (&[HostStep::Tokens], 0.0, None),
    };
    Stored { steps: steps.to_vec(), files, pixels }
}

/// The steps that a recipe applies to its samples.
fn of_recipe(recipe: &Recipe, work: Work) -> Vec<HostStep> {
    let mut found = stored(&recipe.data.source).steps;
    // Only samples for training are mirrored.
    found.retain(|step| work == Work::Train || *step != HostStep::Flip);
    for step in preprocessing(recipe, work) {
        match step {
            Step::Resize(_) | Step::ResizeTo(_) | Step::RandomResizedCrop(_) => found.push(HostStep::Resize),
            Step::HorizontalFlip(_) => found.push(HostStep::Flip),
            Step::Normalize(_) => found.push(HostStep::Normalize),
            Step::ColorJitter(_) => found.push(HostStep::ColorJitter),
            // TrivialAugment applies one operation where RandAugment applies two: an upper bound.
            Step::RandAugment(_) | Step::TrivialAugment(_) => found.push(HostStep::RandAugment),
            // Views of what is there, or less of it.
            Step::CenterCrop(_) | Step::RandomCoveringCrop(_) | Step::RandomCrop(_) | Step::RandomErasing(_) => {}
        }
    }
    if recipe.preprocess.mix.is_some() && work == Work::Train {
        found.push(HostStep::Mix);
    }
    let on_device = recipe.npu.input.normalize == NormalizePlace::Device && normalization(recipe, work).is_some();
    found.retain(|step| !(on_device && *step == HostStep::Normalize));
    found
}

/// Number of units of a step per sample.
fn units(step: HostStep, recipe: &Recipe, host: &Host) -> f64 {
    let inputs = || recipe.model.inputs.values();
    match step {
        HostStep::Read => stored(&recipe.data.source).files,
        HostStep::Decode => stored(&recipe.data.source).pixels.unwrap_or(host.steps.stored_pixels.value),
        HostStep::Tokens => {
            let tokens = inputs().filter(|input| input.image().is_none());
            tokens.map(|input| input.extents().iter().map(|extent| extent.0 as f64).product::<f64>()).sum()
        }
        HostStep::Resize
        | HostStep::Flip
        | HostStep::Normalize
        | HostStep::ColorJitter
        | HostStep::AutoAugment
        | HostStep::RandAugment
        | HostStep::Mix
        | HostStep::Warp
        | HostStep::TextTargets => inputs().filter_map(|input| input.image()).map(|[_, h, w]| (h * w) as f64).sum(),
    }
}
