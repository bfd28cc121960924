//! Forecast of the memory of a training.
//!
//! Most of it is the buffer plan of the step, which is exact. The rest are the evaluation network, prefetched batches,
//! cached generated images, and variables being written to a checkpoint. The current memory of the process (code,
//! libraries, the index of the data) is measured.

use std::fs;
use zoo_engine::{Kernels, Options, StepMemory};
use zoo_graph::Bytes;
use zoo_recipe::BuildOptions;

use crate::{
    TrainError,
    event::{Memory, MemoryPart},
    job::Job,
};

/// Additional memory of a process: stacks and arenas of its threads, and code that is not loaded yet. Measured:
/// docs/reliability.md, "Memory".
pub const OVERHEAD: Bytes = Bytes(8 << 20);

/// Name of the part of a forecast for the step.
pub const STEP: &str = "step";

/// Memory that this process uses now (`VmRSS`, without what it has freed and kept); `None` if unknown.
pub fn resident() -> Option<Bytes> {
    zoo_engine::release_memory();
    status("VmRSS:")
}

/// Peak memory of this process (`VmHWM`); `None` if unknown.
pub fn peak() -> Option<Bytes> {
    status("VmHWM:")
}

/// A line of /proc/self/status, proc_pid_status(5).
fn status(key: &str) -> Option<Bytes> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    Some(Bytes(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024))
}

/// Memory of the network for evaluation.
fn network(job: Job<'_>) -> Result<StepMemory, TrainError> {
    let graph = zoo_recipe::build(job.recipe, job.model, &BuildOptions::eval(job.eval_batch()))?;
    Ok(StepMemory::of(graph, Options::of(job.recipe), job.device.map(|device| device.arithmetic))?)
}

/// Number of batches at the same time: those waiting, the one being filled, the one being passed on, and the one in
/// the step.
fn ahead(job: Job<'_>) -> u64 {
    (job.eval_loader_config().prefetch + 3) as u64
}

/// Peak memory of an evaluation, including cached generated images.
///
/// # Errors
/// A recipe from which no network can be built, or one that the kernels cannot compute.
pub fn evaluation(job: Job<'_>) -> Result<Bytes, TrainError> {
    let (network, kept) = (network(job)?, job.data.samples.kept_bytes().iter().sum());
    let batches = Bytes(ahead(job) * network.inputs.0);
    Ok(resident().unwrap_or_default() + OVERHEAD + network.peak() + network.variables + batches + Bytes(kept))
}

/// Forecast peak memory of a training, by part.
///
/// # Errors
/// A recipe from which no step or no network can be built, or one that the kernels cannot compute.
pub fn forecast(job: Job<'_>) -> Result<Memory, TrainError> {
    let Job { recipe, model, data, .. } = job;
    let (options, arithmetic) = (Options::of(recipe), job.device.map(|device| device.arithmetic));
    let mut step: Option<StepMemory> = None;
    for epoch in zoo_recipe::stages(recipe) {
        let options_of = BuildOptions { epoch, ..BuildOptions::train(recipe.train.batch) };
        let graph = zoo_recipe::build(recipe, model, &options_of)?;
        let memory = StepMemory::of(graph, options, arithmetic)?;
        step = step.filter(|largest| largest.peak() >= memory.peak()).or(Some(memory));
    }
    let Some(step) = step else { return Err(TrainError::Mismatch("no epochs to train".into())) };
    let network = network(job)?;
    let ahead = ahead(job);
    let kept: u64 = data.samples.kept_bytes().iter().sum();
    let evaluating = ahead * network.inputs.0;
    // Reference kernels already store variables in the form of a checkpoint.
    let saving = if options.kernels == Kernels::Reference { 0 } else { step.variables.0 };
    let parts = [
        ("process and index of the data", (resident().unwrap_or_default() + OVERHEAD).0),
        (STEP, step.peak().0),
        ("evaluation", network.peak().0 + network.variables.0),
        ("batches", ahead * step.inputs.0),
        ("generated images", kept),
        ("checkpoint, or batches of an evaluation", evaluating.max(saving)),
    ];
    let parts: Vec<MemoryPart> =
        parts.into_iter().map(|(what, bytes)| MemoryPart { what: what.to_owned(), bytes }).collect();
    Ok(Memory { peak: parts.iter().map(|part| part.bytes).sum(), limit: None, parts })
}
