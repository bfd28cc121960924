//! Images per second of one core: reading, decoding, transforming and normalising the files of a folder.
//!
//!     cargo bench -p zoo-datasets --bench transforms [-- FOLDER]
//!
//! FOLDER (or the variable ZOO_BENCH_IMAGES) contains one folder of images per class; by default
//! `../shared/data/imagenet-sample`, if it exists. `pillow.py` next to this file measures Pillow and torchvision on the
//! same files; run both alternately.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use zoo_datasets::{DataError, Dataset, ImageFolder, Loader, LoaderConfig, Normalize, OnError, Pipeline};

const ROUNDS: u64 = 7;
const BATCH: usize = 8;
/// Batches per round, at most.
const MOST_BATCHES: usize = 100;

fn main() -> Result<(), DataError> {
    let folder = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'))
        .or_else(|| std::env::var("ZOO_BENCH_IMAGES").ok())
        .map_or_else(
            || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/imagenet-sample")),
            PathBuf::from,
        );
    if !folder.is_dir() {
        println!("skipped: {} is not a folder of images", folder.display());
        return Ok(());
    }
    let start = Instant::now();
    let folder = ImageFolder::open(&folder, OnError::Skip)?;
    println!("{} images listed in {:.2?}", folder.len(), start.elapsed());
    measure("decode", || (0..folder.len()).try_for_each(|index| folder.image(index).map(drop)).map(|()| folder.len()))?;
    let dataset: Arc<dyn Dataset> = Arc::new(folder);
    for (name, pipeline) in [
        ("evaluation", Pipeline::evaluation(256, 224, Normalize::IMAGENET)?),
        ("training", Pipeline::training(224, Normalize::IMAGENET)?),
    ] {
        let config = LoaderConfig { batch: BATCH, threads: 1, on_error: OnError::Skip, ..Default::default() };
        let loader = Loader::new(Arc::clone(&dataset), pipeline, config)?;
        let mut epoch = 0;
        measure(name, || {
            epoch += 1;
            loader.epoch(epoch, 0)?.take(MOST_BATCHES).map(|batch| batch.map(|batch| batch.n)).sum()
        })?;
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().filter(|line| line.starts_with("VmHWM")).for_each(|line| println!("{line}"));
    Ok(())
}

/// Prints the best of several rounds of `work`, which returns the number of images it did.
fn measure(name: &str, mut work: impl FnMut() -> Result<usize, DataError>) -> Result<(), DataError> {
    let mut best = 0.0_f64;
    for _ in 0..ROUNDS {
        let start = cpu_seconds();
        let images = work()?;
        best = best.max(images as f64 / (cpu_seconds() - start));
    }
    println!("{name} {best:.0} images/s");
    Ok(())
}

/// Time that all threads of this process have spent on a processor (Linux; other work on the machine does not count).
fn cpu_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux's /proc");
    let nanoseconds = tasks.flatten().filter_map(|task| {
        let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        stat.split_whitespace().next()?.parse::<u64>().ok()
    });
    nanoseconds.sum::<u64>() as f64 * 1e-9
}
