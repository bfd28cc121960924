//! Goldens, dumps, recordings, weights, checkpoints, and the log of a run.

use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;
use std::sync::OnceLock;

use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};
use zoo_engine::Options;
use zoo_golden::{
    CheckOptions, Golden, Precision,
    dump::Dump,
    foreign::{Names, Recording},
    judge::{Declared, JudgeOptions, judge},
};
use zoo_graph::Graph;
use zoo_recipe::{BuildOptions, Library, LoadOptions, Recipe};
use zoo_train::weights::Naming;
use zoo_train::{Checkpoint, CheckpointError, RunRecord, Weights};

use crate::files::{folder, project};

fn read_golden(manifest: &[u8], tensors: &[u8]) -> Option<Golden> {
    let folder = folder("golden.json", manifest);
    fs::write(folder.path().join("golden.safetensors"), tensors).unwrap();
    let golden = Golden::read(&folder.path().join("golden.json")).ok()?;
    for (name, facts) in &golden.manifest.tensors {
        let numel = facts.shape.iter().try_fold(1, |n: usize, side| n.checked_mul(*side));
        if let Some(samples) = numel.and_then(|numel| golden.samples(name, None, numel).ok()) {
            assert_eq!(samples.positions.len(), samples.values.len());
        }
    }
    for variant in golden.manifest.variants.keys() {
        let _ = golden.bound_to(variant);
    }
    Some(golden)
}

fn fixture(name: &str) -> Vec<u8> {
    fs::read(project().join("tests/fixtures").join(name)).unwrap()
}

fn seed(name: &str) -> Vec<u8> {
    fs::read(project().join("tests/fuzz/seeds").join(name)).unwrap()
}

/// The manifest of a golden.
pub fn golden(data: &[u8]) {
    static TENSORS: OnceLock<Vec<u8>> = OnceLock::new();
    read_golden(data, TENSORS.get_or_init(|| fixture("golden/alexnet-salted.safetensors")));
}

/// The tensor file of a golden.
pub fn tensors(data: &[u8]) {
    static MANIFEST: OnceLock<Vec<u8>> = OnceLock::new();
    read_golden(MANIFEST.get_or_init(|| fixture("golden/alexnet-salted.json")), data);
}

/// A recipe whose step takes milliseconds, and the tensor file of its golden.
fn tiny() -> &'static (Recipe, Vec<u8>) {
    static TINY: OnceLock<(Recipe, Vec<u8>)> = OnceLock::new();
    TINY.get_or_init(|| {
        let library = Library::new([project().join("tests/fixtures/recipes")]);
        let recipe = library.load("tiny", &LoadOptions::default()).unwrap().recipe;
        (recipe, seed("tiny.safetensors"))
    })
}

/// The manifest of a golden, judged to the end on a network that takes milliseconds.
pub fn check(data: &[u8]) {
    let (recipe, tensors) = tiny();
    if let Some(golden) = read_golden(data, tensors) {
        let options = CheckOptions { precision: Precision::F32, engine: Options::of(recipe), room: None };
        if let Ok(report) = zoo_golden::check(recipe, &golden, &project(), &options, &mut |_| {}) {
            assert!(!report.stages.is_empty());
        }
    }
}

/// A dump: its description, or the file of its values.
pub fn dump(data: &[u8]) {
    for (name, other) in [("dump.json", "values.safetensors"), ("values.safetensors", "dump.json")] {
        let folder = folder(name, data);
        fs::write(folder.path().join(other), seed(&format!("dump/{other}"))).unwrap();
        if let Ok(dump) = Dump::open(folder.path()) {
            dump.manifest.sources.iter().for_each(|source| drop(dump.read(&source.name)));
        }
    }
}

/// Judges the contents of a folder.
fn judge_recording(path: &Path) {
    let (recipe, tensors) = tiny();
    static GOLDEN: OnceLock<Golden> = OnceLock::new();
    let golden = GOLDEN.get_or_init(|| read_golden(&seed("tiny.json"), tensors).unwrap());
    let options = JudgeOptions {
        declared: Declared::F32,
        loss_scale: 1.0,
        allow_unmatched: false,
        allow_missing: &[],
        rates: None,
        engine: Options::of(recipe),
    };
    let judged = Recording::open(path, &Names::default())
        .and_then(|recording| judge(recipe, golden, &[recording], &options, &mut |_| {}));
    match judged {
        Ok(steps) => assert!(steps.iter().all(|report| !report.stages.is_empty())),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// `dump.json` of msprobe, beside two tensors that it may name.
pub fn msprobe(data: &[u8]) {
    let folder = folder("dump.json", data);
    let tensors = folder.path().join("dump_tensor_data");
    fs::create_dir(&tensors).unwrap();
    for name in ["tensor.pt", "tensor.npy"] {
        fs::write(tensors.join(name), seed(&format!("msprobe/{name}"))).unwrap();
    }
    judge_recording(folder.path());
}

/// `report.json` and `params.json` of PaDiff, beside a tensor that they may name.
pub fn padiff(data: &[u8]) {
    let folder = folder("report.json", data);
    fs::write(folder.path().join("params.json"), data).unwrap();
    for tensors in ["tensors", "weights", "grads"] {
        fs::create_dir(folder.path().join(tensors)).unwrap();
        fs::write(folder.path().join(tensors).join("tensor.npy"), seed("msprobe/tensor.npy")).unwrap();
    }
    judge_recording(folder.path());
}

/// A file of a recording, as NumPy and PyTorch write them: alone, named as an output.
pub fn recorded(data: &[u8]) {
    for name in ["out/fc#0.npy", "out/fc#0.pt", "step.npz", "step.safetensors"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, data).unwrap();
        judge_recording(folder.path());
    }
}

/// What says of a recording what its names and tensors are: `names.yaml` and `capture.json`.
pub fn described(data: &[u8]) {
    let folder = folder("names.yaml", data);
    if let Err(error) = Names::read(&folder.path().join("names.yaml")) {
        assert!(error.to_string().contains("names.yaml"), "{error}");
    }
    let capture = tempfile::tempdir().unwrap();
    fs::write(capture.path().join("capture.json"), data).unwrap();
    fs::write(capture.path().join("x.npy"), seed("msprobe/tensor.npy")).unwrap();
    judge_recording(capture.path());
}

/// The network of the recipe.
fn network() -> Graph {
    let (recipe, _) = tiny();
    zoo_recipe::build(recipe, &recipe.resolve().unwrap(), &BuildOptions::eval(1)).unwrap()
}

fn read_weights(data: &[u8]) {
    let folder = folder("weights", data);
    let path = folder.path().join("weights");
    if let Err(error) = Weights::read(&path, None, &network(), &Naming::default()) {
        assert!(error.to_string().starts_with(path.to_str().unwrap()), "{error}");
    }
}

/// A file with weights, of any kind.
pub fn weights(data: &[u8]) {
    read_weights(data);
}

/// `data.pkl` in a file of PyTorch with one storage.
pub fn pickle(data: &[u8]) {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in [("data.pkl", data), ("byteorder", b"little"), ("data/0", &[0x3c; 256])] {
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        zip.start_file(format!("archive/{name}"), options).unwrap();
        zip.write_all(content).unwrap();
    }
    read_weights(&zip.finish().unwrap().into_inner());
}

/// A checkpoint; where its checksum alone is wrong, with the right one.
pub fn checkpoint(data: &[u8]) {
    let folder = folder("step-00000001.safetensors", data);
    let path = folder.path().join("step-00000001.safetensors");
    let load =
        |path: &Path| Checkpoint::load(path).map(|checkpoint| checkpoint.not_finite().map(|name| name.is_some()));
    if let Err(CheckpointError::Damaged { expected, found, .. }) = load(&path) {
        let (old, new) = (format!("{expected:08x}"), format!("{found:08x}"));
        let mut data = data.to_vec();
        if let Some(at) = data.windows(8).position(|window| window == old.as_bytes()) {
            data[at..at + 8].copy_from_slice(new.as_bytes());
            fs::write(&path, data).unwrap();
            let _ = load(&path);
        }
    }
}

/// The log of a run.
pub fn events(data: &[u8]) {
    let folder = folder("events.jsonl", data);
    fs::write(folder.path().join("recipe.yaml"), fixture("recipes/tiny.yaml")).unwrap();
    if let Ok(run) = RunRecord::read(folder.path()) {
        let _ = (run.started(), run.end(), run.last_evaluation());
        let _ = zoo_train::rewrite_report(&run);
    }
}
