//! Steps of whole recipes: the order of their events, and what they leave out.

use crate::{Device, DeviceLibrary, Profile, Work, advise::advise, host::HostStep, input::input, matrix};
use std::path::{Path, PathBuf};
use zoo_recipe::{
    Library, LoadOptions, Recipe,
    schema::{PatchesForm, Precision},
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes")
}

fn device(name: &str) -> Device {
    DeviceLibrary::new([folder()]).load(name).unwrap_or_else(|error| panic!("{error}"))
}

fn recipe(name: &str, sets: &[&str]) -> Recipe {
    let options = LoadOptions { profile: None, sets: sets.iter().map(ToString::to_string).collect() };
    Library::new([folder()]).load(name, &options).unwrap_or_else(|errors| panic!("{errors}")).recipe
}

fn train(recipe: &Recipe, device: &Device) -> Profile {
    crate::profile(recipe, device, Work::Train).unwrap_or_else(|error| panic!("{error}"))
}

/// Requires that every kernel starts after the kernels that compute its operands.
fn expect_order(profile: &Profile) {
    let mut made = vec![0.0; profile.graph.values.len()];
    let mut events: Vec<_> = profile.timeline.events.iter().filter(|event| event.kernel.is_some()).collect();
    events.sort_by(|a, b| a.end.0.total_cmp(&b.end.0));
    for event in &events {
        let nodes = &profile.kernels[event.kernel.unwrap()].nodes;
        nodes.iter().flat_map(|n| &profile.graph.nodes[*n].outputs).for_each(|v| made[v.0] = event.end.0);
    }
    for event in &events {
        let nodes = &profile.kernels[event.kernel.unwrap()].nodes;
        let own: Vec<_> = nodes.iter().flat_map(|n| &profile.graph.nodes[*n].outputs).collect();
        let operands = nodes.iter().flat_map(|n| &profile.graph.nodes[*n].inputs).filter(|v| !own.contains(v));
        for v in operands {
            assert!(made[v.0] <= event.start.0 + 1e-12, "{} starts before its operand is computed", event.name);
        }
    }
}

/// The norm of all gradients waits for the last bucket, all scaled gradients and updates for the norm, and averages for
/// the updates.
#[test]
fn no_kernel_runs_before_its_operands_are_computed() {
    for (name, sets) in [
        ("gpt_shakespeare", ["npu.devices=8", "train.batch=12"]),
        ("db_resnet", ["npu.devices=16", "train.batch=2"]),
        ("resnet18", ["npu.devices=8", "train.batch=8"]),
    ] {
        let profile = train(&recipe(name, &sets), &device("ascend910"));
        assert!(profile.timeline.buckets.len() > 1 || name != "resnet18", "{name} sends one bucket");
        expect_order(&profile);
    }
}

/// A reshape costs nothing, but its result is there no sooner than its operand.
#[test]
fn a_reshaped_value_is_copied_after_it_is_computed() {
    let sets = ["train.batch=8", "npu.host_operators=[MatMul]"];
    let profile = train(&recipe("resnet18", &sets), &device("ascend910"));
    let end = |name: &str| profile.timeline.events.iter().find(|event| event.name == name).unwrap().end;
    let first = profile.timeline.events.iter().find(|event| event.op == "Memcpy" && event.start > end("conv1"));
    assert!(first.is_some_and(|copy| copy.start >= end("avgpool")), "{first:?}");
}

/// A grouped convolution and the gradient of its filters have the same operations, so on tiles that are not cubes too
/// neither takes many times the tiles of the other. Tiles that are not full cost at most a factor of two here.
#[test]
fn gradients_of_grouped_filters_take_as_many_tiles() {
    for name in ["gaudi", "a100", "ascend910"] {
        let device = device(name);
        let sets = ["train.batch=64", "npu.input.enabled=false"];
        let profile = train(&recipe("resnext50_32x4d", &sets), &device);
        let tiles = |name: &str| {
            let node = profile.graph.nodes.iter().find(|node| node.name == name).unwrap();
            let product = matrix::product(&profile.graph, node, &device).unwrap();
            (product.m * product.n * product.k) as f64
        };
        let ratio = tiles("layer1.1.conv2/grad_filter") / tiles("layer1.1.conv2");
        assert!((0.5..=2.0).contains(&ratio), "{name}: {ratio}");
    }
}

#[test]
fn samples_for_evaluation_are_neither_varied_nor_mixed() {
    let recipe = recipe("swin_t", &["train.batch=128"]);
    let device = device("a100");
    let steps = |work| -> Vec<HostStep> {
        input(&recipe, &device, work, 128, 1).steps.into_iter().map(|step| step.step).collect()
    };
    let varied = [HostStep::Flip, HostStep::RandAugment, HostStep::Mix];
    assert!(varied.iter().all(|step| steps(Work::Train).contains(step)));
    assert!(!varied.iter().any(|step| steps(Work::Eval).contains(step)), "{:?}", steps(Work::Eval));
    assert!([HostStep::Decode, HostStep::Resize, HostStep::Normalize].iter().all(|s| steps(Work::Eval).contains(s)));
}

/// With an input pipeline that is fast enough, the step takes what the device needs.
#[test]
fn what_the_device_needs_is_the_step_without_waiting() {
    for sets in [["npu.devices=8", "npu.input.prefetch=true"], ["npu.devices=1", "npu.input.prefetch=false"]] {
        let slow = recipe("resnet18", &[sets[0], sets[1], "train.batch=64", "npu.input.images_per_s=1"]);
        let free = recipe("resnet18", &[sets[0], sets[1], "train.batch=64", "npu.input.enabled=false"]);
        let device = device("gaudi");
        let (slow, free) = (train(&slow, &device), train(&free, &device));
        assert!(slow.step > free.step && (slow.device_step.0 / free.step.0 - 1.0).abs() < 1e-12);
    }
}

#[test]
fn patches_that_the_host_cuts_are_a_fallback() {
    let mut recipe = recipe("siammask", &["train.batch=8"]);
    recipe.npu.extract_patches = PatchesForm::Host;
    let found = advise(&recipe, &device("ascend910"), Work::Train).unwrap();
    let fallback = found.iter().find(|advice| advice.pattern == "host fallback");
    assert!(
        fallback.is_some_and(|advice| advice.cost_ms.max(advice.hidden_ms.unwrap_or_default()) > 100.0),
        "{found:?}"
    );
}

/// Micro-batches repeat all kernels but the update's: each costs what a step of its size costs.
#[test]
fn advice_counts_all_micro_batches() {
    let cost = |sets: &[&str]| {
        let recipe = recipe("vit_b_16", sets);
        let found = advise(&recipe, &device("ascend910"), Work::Train).unwrap();
        let transposes = found.into_iter().find(|advice| advice.pattern == "DMA transpose").unwrap();
        assert!(!transposes.remedy.contains("loader"), "{}", transposes.remedy);
        transposes.cost_ms.max(transposes.hidden_ms.unwrap_or_default())
    };
    let (one, eight) = (cost(&["train.batch=8"]), cost(&["train.batch=64", "npu.accumulate=8"]));
    assert!((eight / one - 8.0).abs() < 0.01, "{one} {eight}");
}

#[test]
fn bf16_needs_a_device_that_computes_in_it() {
    let mut recipe = recipe("resnet18", &["train.batch=8"]);
    recipe.npu.precision = Precision::Bf16;
    for (name, has) in [("v100", false), ("ascend910", false), ("a100", true), ("ascend910b", true), ("gaudi", true)] {
        let refused = crate::profile(&recipe, &device(name), Work::Train).err().map(|error| error.to_string());
        assert_eq!(refused.is_none(), has, "{name}: {refused:?}");
    }
}
