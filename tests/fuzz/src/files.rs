//! Recipes, devices, studies, published figures; images and what is written about them.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use zoo_datasets::Annotated;
use zoo_datasets::image::{decode, decode_labels, decode_region, encoded_size};
use zoo_datasets::language::{Special, Subwords, Vocabulary};
use zoo_datasets::tracking::VideoDataset;
use zoo_datasets::{
    BoxFolder, Cifar10, Crop511, Dataset, FrameFolders, IdxImages, OnError, Part, Rect, TextFormat, parse_text_regions,
};
use zoo_graph::MemoryPlan;
use zoo_npu::{Device, DeviceLibrary, Throughput, Work, study};
use zoo_recipe::{BuildOptions, build};
use zoo_recipe::{Diagnostics, Document, Library, LoadOptions, Loaded, Recipe};

/// Longest report on a file of at most 256 KiB.
const LONGEST_REPORT: usize = 50_000_000;

/// The folder of the project.
pub fn project() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().find(|folder| folder.join("recipes/devices").is_dir()).unwrap().to_owned()
}

/// A new folder with one file.
pub fn folder(name: &str, data: &[u8]) -> TempDir {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, data).unwrap();
    folder
}

fn readable(errors: &Diagnostics) {
    assert!(errors.to_string().len() < LONGEST_REPORT);
}

fn load(folder: &Path, name: &str, sets: Vec<String>) -> Option<Loaded> {
    match Library::new([folder]).load(name, &LoadOptions { profile: None, sets }) {
        Ok(loaded) => Some(loaded),
        Err(errors) => {
            assert!(errors.has_errors());
            readable(&errors);
            None
        }
    }
}

/// A recipe file with all its profiles. What loads comes out of its own YAML as an equal.
pub fn recipe(data: &[u8]) {
    let folder = folder("mutant.yaml", data);
    readable(&Library::new([folder.path()]).validate("mutant"));
    if let Some(loaded) = load(folder.path(), "mutant", Vec::new()) {
        let yaml = loaded.recipe.to_yaml().unwrap();
        fs::write(folder.path().join("again.yaml"), &yaml).unwrap();
        let again = load(folder.path(), "again", Vec::new());
        assert_eq!(again.map(|again| again.recipe), Some(loaded.recipe), "{yaml}");
    }
}

/// A recipe file, its graphs, and what they cost on a device.
pub fn step(data: &[u8]) {
    let folder = folder("mutant.yaml", data);
    let Some(Loaded { recipe, .. }) = load(folder.path(), "mutant", Vec::new()) else { return };
    graphs(&recipe);
    let device = DeviceLibrary::new([project().join("recipes")]).load("ascend910").unwrap();
    cost(&recipe, &device);
}

fn graphs(recipe: &Recipe) {
    let model = recipe.resolve().unwrap();
    for options in [BuildOptions::train(2), BuildOptions::eval(2)] {
        if let Ok(graph) = build(recipe, &model, &options) {
            let _ = MemoryPlan::of(&graph).bytes();
        }
    }
}

fn cost(recipe: &Recipe, device: &Device) {
    for work in [Work::Train, Work::Eval] {
        if let Ok(profile) = zoo_npu::profile(recipe, device, work) {
            assert!(profile.step.0.is_finite() && profile.step.0 >= 0.0, "a step of {} s", profile.step.0);
        }
    }
}

/// Arguments of `--set`, one per line, on a recipe of the fixtures.
pub fn overrides(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let sets = text.lines().take(8).map(str::to_owned).collect();
    load(&project().join("tests/fixtures/recipes"), "operators", sets);
}

/// A device file, and a step on that device.
pub fn device(data: &[u8]) {
    let folder = folder("devices/mutant.yaml", data);
    // Its host is one of the project's.
    match DeviceLibrary::new([folder.path(), &project().join("recipes")]).load("mutant") {
        Ok(device) => {
            let tiny = load(&project().join("tests/fixtures/recipes"), "tiny", Vec::new()).unwrap();
            cost(&tiny.recipe, &device);
        }
        Err(error) => assert!(error.to_string().len() < LONGEST_REPORT),
    }
}

/// A study.
pub fn study(data: &[u8]) {
    let folder = folder("mutant.yaml", data);
    if let Err(errors) = study::read(&folder.path().join("mutant.yaml")) {
        readable(&errors);
    }
}

/// A file of published figures.
pub fn throughput(data: &[u8]) {
    let folder = folder("mutant.yaml", data);
    if let Err(errors) = Document::<Throughput>::read(&folder.path().join("mutant.yaml")) {
        readable(&errors);
    }
}

/// An annotation file of text, in both formats.
pub fn annotations(data: &[u8]) {
    for format in [TextFormat::Icdar2015, TextFormat::TotalText] {
        for region in parse_text_regions(data, format).into_iter().flatten() {
            assert!(region.polygon.is_simple());
        }
    }
}

/// The trace of a network. A recipe of it is one that loads and is the network, or there is none.
pub fn trace(data: &[u8]) {
    let imported = zoo_import::Trace::read(data).and_then(|trace| zoo_import::import(&trace, "mutant"));
    match imported {
        Ok(imported) => {
            let folder = folder("mutant.yaml", imported.text.as_bytes());
            assert!(load(folder.path(), "mutant", Vec::new()).is_some(), "{}", imported.text);
        }
        Err(error) => assert!(error.to_string().len() < LONGEST_REPORT),
    }
}

/// A file of a profiler, under the names that decide. All parts of what is read add up to its steps.
pub fn measured(data: &[u8]) {
    for name in ["mutant", "trace_view.json"] {
        let folder = folder(name, data);
        match zoo_measured::open(&folder.path().join(name)) {
            Ok(recording) => {
                let steps: i64 = recording.steps.iter().map(|step| step.end - step.start).sum();
                let kernels: i64 = recording.kernels.iter().map(|kernel| kernel.own).sum();
                assert_eq!(kernels + recording.gaps.iter().map(|gap| gap.duration).sum::<i64>(), steps);
            }
            Err(error) => assert!(error.to_string().len() < LONGEST_REPORT),
        }
    }
}

/// The outlines of a video of VOT.
pub fn outlines(data: &[u8]) {
    let folder = folder("groundtruth.txt", data);
    fs::write(folder.path().join("00000001.jpg"), b"").unwrap();
    for on_error in [OnError::Fail, OnError::Skip] {
        if let Ok(videos) = FrameFolders::open_root(folder.path(), None, on_error) {
            assert!(videos.outline(0, 0).is_none_or(|outline| outline.is_simple()));
        }
    }
}

/// A file of CIFAR-10's binary version.
pub fn cifar(data: &[u8]) {
    let folder = folder("test_batch.bin", data);
    if let Ok(set) = Cifar10::test(folder.path()) {
        (0..set.len().min(8)).for_each(|index| drop(set.image(index).unwrap()));
    }
}

/// A file of grey images in MNIST's format; the labels are those of two images.
pub fn idx(data: &[u8]) {
    let folder = folder("train-images-idx3-ubyte", data);
    fs::write(folder.path().join("train-labels-idx1-ubyte"), [0, 0, 8, 1, 0, 0, 0, 2, 4, 1]).unwrap();
    if let Ok(set) = IdxImages::open(folder.path(), Part::Train) {
        (0..2).for_each(|index| drop(set.image(index).unwrap()));
    }
}

/// The index of SiamMask's crops; frames may lie nowhere but below its folder.
pub fn index(data: &[u8]) {
    let folder = folder("index.json", data);
    for on_error in [OnError::Fail, OnError::Skip] {
        if let Ok(set) = Crop511::open(folder.path(), &folder.path().join("index.json"), true, on_error) {
            for track in 0..set.len() {
                let error = set.frame(track, set.frames(track) - 1).unwrap_err().to_string();
                assert!(error.starts_with(folder.path().to_str().unwrap()) && !error.contains("/../"), "{error}");
            }
        }
    }
}

/// A tokenizer, which encodes and decodes a text.
pub fn tokenizer(data: &[u8]) {
    let folder = folder("tokenizer.json", data);
    if let Ok(subwords) = Subwords::read(&folder.path().join("tokenizer.json")) {
        let vocabulary = Vocabulary::Subwords(subwords);
        let known = vocabulary.len();
        Special::ALL.into_iter().for_each(|token| drop(vocabulary.special(token)));
        if let Ok(tokens) = vocabulary.encode("The cat, the é:\n 12 [MASK]") {
            assert!(tokens.iter().all(|token| (*token as usize) < known));
            let _ = vocabulary.decode(&tokens);
        }
    }
}

/// COCO's annotations of two images.
pub fn coco(data: &[u8]) {
    let folder = folder("annotations/instances_val.json", data);
    for image in ["a.jpg", "b.jpg"] {
        fs::create_dir_all(folder.path().join("val")).unwrap();
        fs::write(folder.path().join("val").join(image), b"").unwrap();
    }
    boxes(folder.path());
}

/// An annotation of PASCAL VOC.
pub fn voc(data: &[u8]) {
    let folder = folder("Annotations/a.xml", data);
    for (file, content) in [("ImageSets/Main/val.txt", "a"), ("JPEGImages/a.jpg", "")] {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    boxes(folder.path());
}

fn boxes(folder: &Path) {
    for on_error in [OnError::Fail, OnError::Skip] {
        match BoxFolder::open_root(folder, Part::Val, on_error) {
            Ok(set) => {
                for index in 0..set.len() {
                    let error = set.load(index).unwrap_err().to_string();
                    assert!(error.starts_with(folder.to_str().unwrap()) && !error.contains("/../"), "{error}");
                }
            }
            Err(error) => assert!(error.to_string().len() < LONGEST_REPORT),
        }
    }
}

/// A PNG or JPEG file: whole, in part, and its size alone.
pub fn image(data: &[u8]) {
    let size = encoded_size(data);
    if let Ok(labels) = decode_labels(data) {
        assert_eq!(encoded_size(data).unwrap(), labels.size());
    }
    if let Ok(image) = decode(data) {
        assert_eq!(size.unwrap(), image.size());
        let part = Rect::new(image.width() / 3, image.height() / 2, image.width().div_ceil(2), 1);
        assert_eq!(decode_region(data, part).unwrap(), image.crop(part).unwrap());
    }
}
