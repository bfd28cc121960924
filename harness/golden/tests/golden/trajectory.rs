//! Twenty steps of ResNet-50 on real images against PyTorch's losses (`trajectory.*` of the reference data).
//!
//! The reference data are no part of the repository: `.ci/run` runs these tests where it finds them.

use candle_core::{Device, Tensor};
use safetensors::SafeTensors;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use zoo_datasets::{Image, Size, image, transforms};
use zoo_engine::{Inputs, Kernels, Options, Scalars, Step, candle_dtype};
use zoo_golden::{Golden, weights};
use zoo_graph::DType;
use zoo_recipe::{BuildOptions, Mode};
use zoo_recipe::{Library, LoadOptions};

const BATCH: usize = 16;
const SIDE: usize = 64;
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const STD: [f32; 3] = [0.229, 0.224, 0.225];

#[derive(Deserialize)]
struct Trajectory {
    files: Vec<String>,
    labels: Vec<u32>,
    lr: Vec<f64>,
    loss_f64: Vec<f64>,
    loss_f32: Vec<f64>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The reference trajectory and its images at 64x64 in u8 NHWC.
fn reference() -> (Trajectory, Vec<u8>) {
    let path = root().join("../shared/reference/trajectory.json");
    let trajectory = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let bytes = std::fs::read(path.with_extension("safetensors")).unwrap();
    let pixels = SafeTensors::deserialize(&bytes).unwrap().tensor("pixels64").unwrap().data().to_vec();
    (trajectory, pixels)
}

/// Losses of the recipe's step from hash weights, on images in u8 NHWC.
fn losses(trajectory: &Trajectory, pixels: &[u8], dtype: DType, kernels: Kernels) -> Vec<f64> {
    let sets = ["model.inputs.image=[3, 64, 64]", "model.classes=10"].map(String::from).to_vec();
    let options = LoadOptions { sets, ..LoadOptions::default() };
    let recipe = Library::new([root().join("recipes")]).load("resnet50", &options).unwrap().recipe;
    let build = BuildOptions { mode: Mode::Train, batch: BATCH, dtype, dropout: true, epoch: 0 };
    let graph = zoo_recipe::build(&recipe, &recipe.resolve().unwrap(), &build).unwrap();
    let mut step = Step::new(graph, Options { kernels, threads: None, level: None }).unwrap();
    let rules = Golden::read(&root().join("golden/resnet50/step.json")).unwrap().manifest.init;
    let graph = step.graph().clone();
    for variable in &graph.variables {
        let shape = graph.ty(variable.value).shape.to_vec();
        let numel = shape.iter().product();
        let values = match rules.get(&variable.name) {
            Some(rule) => weights::initial(rule, "", &variable.name, numel),
            None => vec![0.0; numel],
        };
        let tensor = Tensor::from_vec(values, shape, &Device::Cpu).unwrap().to_dtype(candle_dtype(dtype)).unwrap();
        step.set_variable(&variable.name, &tensor).unwrap();
    }
    let image = |i: usize, c: usize, p: usize| {
        let level = pixels[(i * SIDE * SIDE + p) * 3 + c];
        (f32::from(level) / 255.0 - MEAN[c]) / STD[c]
    };
    let steps = trajectory.lr.iter().zip(trajectory.labels.chunks_exact(BATCH)).enumerate();
    let loss = steps.map(|(n, (lr, labels))| {
        let images = n * BATCH..(n + 1) * BATCH;
        let values: Vec<f32> = images
            .flat_map(|i| (0..3).flat_map(move |c| (0..SIDE * SIDE).map(move |p| (i, c, p))))
            .map(|(i, c, p)| image(i, c, p))
            .collect();
        let x = Tensor::from_vec(values, (BATCH, 3, SIDE, SIDE), &Device::Cpu).unwrap();
        let labels = Tensor::from_slice(labels, BATCH, &Device::Cpu).unwrap();
        let inputs = Inputs::new().with("image", x.to_dtype(candle_dtype(dtype)).unwrap()).with("label", labels);
        let scalars = Scalars { learning_rate: *lr, step: n as u64, seed: 0, ..Scalars::default() };
        step.run(&inputs, scalars, &mut ()).unwrap().losses[0].1
    });
    loss.collect()
}

fn largest_distance(found: &[f64], truth: &[f64]) -> f64 {
    assert_eq!(found.len(), truth.len());
    found.iter().zip(truth).fold(0.0, |worst, (f, t)| if (f - t).abs() <= worst { worst } else { (f - t).abs() })
}

#[test]
#[ignore = "needs ../shared"]
fn twenty_steps_in_f64_are_pytorchs_to_1e_8() {
    let (trajectory, pixels) = reference();
    let found = losses(&trajectory, &pixels, DType::F64, Kernels::Reference);
    let distance = largest_distance(&found, &trajectory.loss_f64);
    println!("largest distance {distance:e}");
    assert!(distance <= 1e-8, "{distance:e}");
}

#[test]
#[ignore = "needs ../shared"]
fn twenty_steps_in_f32_stay_as_close_to_f64_as_pytorchs_do() {
    let (trajectory, pixels) = reference();
    let theirs = largest_distance(&trajectory.loss_f32, &trajectory.loss_f64);
    for fusion in [true, false] {
        let found = losses(&trajectory, &pixels, DType::F32, Kernels::Fast { fusion });
        let ours = largest_distance(&found, &trajectory.loss_f64);
        println!("fusion {fusion}: largest distance {ours:e}, PyTorch's {theirs:e}");
        assert!(ours <= 3.0 * theirs, "fusion {fusion}: {ours:e} against {theirs:e}");
    }
}

#[test]
#[ignore = "needs ../shared"]
fn the_jpeg_files_decode_and_resize_to_the_reference_pixels() {
    let (trajectory, pixels) = reference();
    let folder = root().join("../shared/data/cifar10/train");
    for (file, expected) in trajectory.files.iter().zip(pixels.chunks_exact(SIDE * SIDE * 3)) {
        let bytes = std::fs::read(folder.join(file)).unwrap();
        let decoded: Image = image::decode(&bytes).unwrap();
        let resized = transforms::resize(&decoded, Size::square(SIDE), transforms::Filter::Bilinear);
        assert_eq!(resized.pixels(), expected, "{file}");
    }
}
