//! Reads a folder of images as in training or evaluation, and prints the speed as JSON, for
//! benches/against_torchvision.py.
//!
//!     cargo run --release -p zoo-datasets --example load -- FOLDER evaluation|training [IMAGES] [--pixels FILE]
//!
//! One thread; the first IMAGES images (all, by default) in the order of their names, resized to 256 and cropped to
//! 224, or cropped at random. `--pixels` writes what came out, as f32. Rates count the time on the processor from the
//! second batch on; memory is what is resident after each tenth of the images.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use zoo_datasets::{DataError, Dataset, ImageFolder, Loader, LoaderConfig, Normalize, OnError, Pipeline};

const BATCH: usize = 32;

fn main() -> Result<(), DataError> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let pixels = arguments.iter().position(|argument| argument == "--pixels").map(|at| arguments.drain(at..).nth(1));
    let [folder, mode, rest @ ..] = &arguments[..] else { return Err(DataError::Config("FOLDER MODE".into())) };

    let started = Instant::now();
    let set = ImageFolder::open(&PathBuf::from(folder), OnError::Fail)?;
    let opened = started.elapsed().as_secs_f64();
    let images = rest.first().and_then(|n| n.parse().ok()).unwrap_or(set.len()).min(set.len());

    let pipeline = match mode.as_str() {
        "training" => Pipeline::training(224, Normalize::IMAGENET),
        _ => Pipeline::evaluation(256, 224, Normalize::IMAGENET),
    }?;
    let config = LoaderConfig { batch: BATCH, threads: 1, ..Default::default() };
    let loader = Loader::new(Arc::new(set), pipeline, config)?;
    let batches = images.div_ceil(BATCH);
    let mut file = pixels.flatten().map(std::fs::File::create).transpose().map_err(at(folder))?;
    let (mut done, mut memory) = (0, Vec::new());
    let (started, mut first, mut before) = (Instant::now(), 0.0, 0.0);
    for (number, batch) in loader.epoch(0, 0)?.take(batches).enumerate() {
        let batch = batch?;
        if number == 0 {
            (first, before) = (started.elapsed().as_secs_f64(), processor());
        } else {
            done += batch.n;
        }
        if number % (batches / 10).max(1) == 0 {
            memory.push(resident());
        }
        if let Some(file) = &mut file {
            let bytes: Vec<u8> = batch.images.iter().flat_map(|value| value.to_le_bytes()).collect();
            file.write_all(&bytes).map_err(at(folder))?;
        }
    }
    let rate = done as f64 / (processor() - before);
    println!(
        "{{\"images\": {}, \"open_s\": {opened:.3}, \"first_batch_s\": {first:.3}, \"images_per_s\": {rate:.1}, \"resident_mib\": {memory:?}}}",
        loader.dataset().len()
    );
    Ok(())
}

fn at(folder: &str) -> impl Fn(std::io::Error) -> DataError + '_ {
    move |source| DataError::Io { path: folder.into(), source }
}

/// Seconds of all threads of this process on the processor: fields 14 and 15 of proc_pid_stat(5), in hundredths.
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Resident memory in MiB, if known.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}
