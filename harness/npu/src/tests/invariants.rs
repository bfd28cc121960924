//! What holds for every network, device and option: physics does not depend on how the model is fitted.

use crate::{
    Device, DeviceLibrary, Seconds, Work,
    collective::{self, Bucket, Gradient},
    input::input,
    memory::peak_memory,
    price::pipelined,
    profile::largest_batch,
};
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use zoo_recipe::{
    Library, LoadOptions, Recipe,
    schema::{Split, SplitWord},
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes")
}

fn device(name: &str) -> Device {
    DeviceLibrary::new([folder()]).load(name).unwrap_or_else(|error| panic!("{error}"))
}

fn recipe(name: &str, batch: usize) -> Recipe {
    let loaded = Library::new([folder()]).load(name, &LoadOptions::default());
    let mut recipe = loaded.unwrap_or_else(|errors| panic!("{errors}")).recipe;
    recipe.train.batch = batch;
    recipe.npu.input.enabled = false;
    // As small as in their goldens.
    let side = match name {
        "swin_t" => Some(56),
        "retinanet_resnet50_fpn" => Some(96),
        _ => None,
    };
    side.into_iter().for_each(|side| recipe.model.inputs.values_mut().for_each(|input| input.set_side(side)));
    recipe
}

fn step(recipe: &Recipe, device: &Device) -> f64 {
    crate::profile(recipe, device, Work::Train).unwrap_or_else(|error| panic!("{error}")).step.0
}

/// Makes a device better by a factor.
type Improvement = fn(&mut Device, f64);

/// Ways in which a device can be better.
const BETTER: &[(&str, Improvement)] = &[
    ("memory bandwidth", |device, by| device.hbm.gb_per_s.value *= by),
    ("cache bandwidth", |device, by| device.l2.bytes_per_cycle.value *= by),
    ("clock", |device, by| {
        device.matrix.clock_ghz.value *= by;
        device.vector.clock_ghz.value *= by;
    }),
    ("cores", |device, by| device.cores.value = (device.cores.value * by).ceil()),
    ("Vector width", |device, by| device.vector.bytes_per_cycle.value *= by),
    ("launch", |device, by| device.control.launch_us.value /= by),
    ("functions", |device, by| {
        device.vector.function_instructions.value = (device.vector.function_instructions.value / by).max(1.0);
    }),
    ("depthwise rate", |device, by| {
        device.matrix.depthwise_rate.value = (device.matrix.depthwise_rate.value * by).min(1.0);
    }),
    ("spread", |device, by| device.links.spread.value /= by),
    ("links", |device, by| {
        device.links.gb_per_s.value *= by;
        device.links.server_gb_per_s.value *= by;
    }),
];

#[test]
fn options_that_make_no_step_are_refused() {
    let mut recipe = recipe("resnet18", 10);
    recipe.npu.accumulate = 3;
    let refused = crate::profile(&recipe, &device("ascend910"), Work::Train).unwrap_err().to_string();
    assert!(refused.contains("batch 10 cannot be divided into 3 micro-batches"), "{refused}");
    recipe.npu.accumulate = 1;
    recipe.npu.fused_attention = true;
    let refused = crate::profile(&recipe, &device("ascend910"), Work::Train).unwrap_err().to_string();
    assert!(refused.contains("has no fused attention"), "{refused}");
}

#[test]
fn a_fused_attention_holds_no_scores() {
    let mut recipe = recipe("vit_b_16", 64);
    let device = device("a100");
    let composed = crate::profile(&recipe, &device, Work::Train).unwrap();
    recipe.npu.fused_attention = true;
    let fused = crate::profile(&recipe, &device, Work::Train).unwrap();
    // Of each of 12 layers, 64 x 12 products of 197 x 197 probabilities in fp16 live until the gradient.
    let probabilities = 12 * 64 * 12 * 197 * 197 * 2;
    assert!(fused.peak_memory.0 + probabilities <= composed.peak_memory.0);
    assert!(fused.step < composed.step);
}

#[test]
fn memory_without_options_is_what_is_live() {
    for network in NETWORKS {
        let recipe = recipe(network, 8);
        let graph = crate::compile::compile(&recipe, &device("ascend910"), Work::Train, 8).unwrap().graph;
        assert_eq!(peak_memory(&graph, &recipe.npu), zoo_graph::MemoryPlan::of(&graph).live_bytes(), "{network}");
    }
}

const NETWORKS: [&str; 8] = [
    "alexnet",
    "resnet18",
    "squeezenet1_1",
    "mobilenetv2",
    "gpt_shakespeare",
    "convnext_tiny",
    "swin_t",
    "retinanet_resnet50_fpn",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_better_device_is_never_slower(
        network in 0..NETWORKS.len(), batch in 2usize..40, way in 0..BETTER.len(), by in 1.01f64..4.0,
        devices in prop::sample::select(vec![1usize, 8, 16]),
    ) {
        let mut recipe = recipe(NETWORKS[network], batch);
        recipe.npu.devices = devices;
        let base = device("ascend910");
        let mut better = base.clone();
        BETTER[way].1(&mut better, by);
        let (before, after) = (step(&recipe, &base), step(&recipe, &better));
        prop_assert!(after <= before * (1.0 + 1e-9), "{} x {by}: {before} -> {after}", BETTER[way].0);
    }

    #[test]
    fn no_kernel_beats_arithmetic_or_bandwidth(network in 0..NETWORKS.len(), batch in 2usize..40, fusion: bool) {
        let mut recipe = recipe(NETWORKS[network], batch);
        recipe.npu.fusion = fusion;
        for name in ["ascend910", "v100", "gaudi", "gaudi2"] {
            let device = device(name);
            let profile = crate::profile(&recipe, &device, Work::Train).unwrap();
            let [m, n, k] = device.matrix.tile;
            let peak = 2.0 * (m * n * k) as f64 * device.cores.value * device.matrix.clock_ghz.value * 1e9;
            let bandwidth = device.hbm.gb_per_s.value * 1e9;
            for (kernel, price) in profile.kernels.iter().zip(&profile.prices) {
                let bound = (price.flop as f64 / peak).max(price.bytes as f64 / bandwidth);
                prop_assert!(price.time.0 >= bound, "{name} {}: {} < {bound}", profile.kernel_name(kernel), price.time.0);
                let stages = price.cube + price.vector + price.hbm + price.l2;
                let launch = Seconds(device.control.launch_us.value * 1e-6);
                prop_assert!(price.time.0 <= (stages + launch).0 * (1.0 + 1e-12), "{}", profile.kernel_name(kernel));
            }
            prop_assert!(profile.utilisation().iter().all(|share| (0.0..=1.0).contains(share)));
        }
    }

    #[test]
    fn recomputation_trades_time_for_memory(
        network in prop::sample::select(vec!["resnet18", "mobilenetv2", "squeezenet1_1", "gpt_shakespeare", "vit_b_16"]),
        batch in 8usize..40, segments in 2usize..20,
    ) {
        let mut recipe = recipe(network, batch);
        let device = device("ascend910");
        let kept = crate::profile(&recipe, &device, Work::Train).unwrap();
        recipe.npu.recompute = segments;
        let again = crate::profile(&recipe, &device, Work::Train).unwrap();
        prop_assert!(again.peak_memory <= kept.peak_memory, "{} {}", again.peak_memory, kept.peak_memory);
        prop_assert!(again.step.0 >= kept.step.0 * (1.0 - 1e-9));
        // Not more than the forward pass is done once more, and none of it counts as useful.
        let time = |profile: &crate::Profile| profile.prices.iter().map(|price| price.time.0).sum::<f64>();
        let (_, forward) = kept.by_phase()[0];
        prop_assert!(time(&again) - time(&kept) <= 1.2 * forward.0, "{} {} {}", time(&again), time(&kept), forward.0);
        prop_assert_eq!(again.flop, kept.flop);
        prop_assert!(again.flop_utilisation() <= kept.flop_utilisation() * (1.0 + 1e-9));
    }

    #[test]
    fn micro_batches_trade_time_for_memory(
        network in prop::sample::select(vec!["resnet18", "gpt_shakespeare", "convnext_tiny"]),
        micro in 4usize..12, accumulate in 2usize..6, devices in prop::sample::select(vec![1usize, 8]),
    ) {
        let mut recipe = recipe(network, micro * accumulate);
        recipe.npu.devices = devices;
        let device = device("ascend910");
        let whole = crate::profile(&recipe, &device, Work::Train).unwrap();
        recipe.npu.accumulate = accumulate;
        let cut = crate::profile(&recipe, &device, Work::Train).unwrap();
        recipe.npu.accumulate = 1;
        recipe.train.batch = micro;
        let one = crate::profile(&recipe, &device, Work::Train).unwrap();
        // No faster than all at once, and less than as many steps, which update and sum gradients each time.
        prop_assert!(cut.step.0 >= whole.step.0 * (1.0 - 1e-9), "{} {}", cut.step.0, whole.step.0);
        let sums = crate::memory::gradient_bytes(&cut.graph);
        prop_assert_eq!(cut.peak_memory.0, one.peak_memory.0 + sums);
        prop_assert_eq!(cut.flop, accumulate as u64 * one.flop);
        // Kernels, launches and gradients of each micro-batch, one update.
        let phase = |p: &crate::Profile, name| p.by_phase().into_iter().find(|(phase, _)| *phase == name).unwrap().1.0;
        let (several, single) = (phase(&cut, zoo_graph::Phase::Backward), phase(&one, zoo_graph::Phase::Backward));
        prop_assert!((several / single / accumulate as f64 - 1.0).abs() < 1e-9);
        prop_assert!((phase(&cut, zoo_graph::Phase::Update) / phase(&one, zoo_graph::Phase::Update) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_fused_attention_keeps_its_scores_to_itself(
        network in prop::sample::select(vec!["vit_b_16", "gpt_shakespeare", "gpt2"]), batch in 1usize..9,
        name in prop::sample::select(vec!["a100", "ascend910b"]),
    ) {
        let mut recipe = recipe(network, batch);
        let device = device(name);
        let composed = crate::profile(&recipe, &device, Work::Train).unwrap();
        recipe.npu.fused_attention = true;
        let fused = crate::profile(&recipe, &device, Work::Train).unwrap();
        let bytes = |profile: &crate::Profile| profile.prices.iter().map(|price| price.bytes).sum::<u64>();
        let products = |profile: &crate::Profile, k: usize| {
            let nodes = profile.kernels[k].nodes.iter().map(|n| &profile.graph.nodes[*n].op);
            nodes.filter(|op| matches!(op, zoo_graph::Op::MatMul(_))).count()
        };
        let kernels = |wanted| (0..fused.kernels.len()).filter(|k| products(&fused, *k) == wanted).count();
        // Two products in the forward pass; with the scores once more, five in the gradient.
        let layers = zoo_graph::attention::attentions(&composed.graph).len();
        prop_assert!(layers > 0);
        prop_assert_eq!([kernels(2), kernels(5)], [layers, layers]);
        // What is not written is at least the scores, once each way and for each attention.
        let attentions = zoo_graph::attention::attentions(&composed.graph);
        let scores: u64 = attentions.iter().map(|attention| {
            let first = &composed.graph.nodes[attention.scores[0]];
            composed.graph.ty(first.outputs[0]).bytes().0
        }).sum();
        prop_assert!(bytes(&fused) + 2 * scores <= bytes(&composed), "{} {} {scores}", bytes(&fused), bytes(&composed));
        // In small batches the update is where most is live.
        prop_assert!(fused.peak_memory <= composed.peak_memory);
        prop_assert_eq!(fused.flop, composed.flop);
    }

    #[test]
    fn operators_term_by_term_are_never_faster(network in 0..NETWORKS.len(), batch in 2usize..40, all: bool) {
        let recipe = recipe(NETWORKS[network], batch);
        let device = device("ascend910");
        let mut composing = device.clone();
        let names = ["ApplyAdamW", "Gelu", "GeluGrad", "LayerNorm", "LayerNormGrad", "SoftmaxV2", "SoftmaxGrad"];
        composing.operators.composed = names.iter().take(if all { 7 } else { 1 }).map(|name| (*name).to_owned()).collect();
        prop_assert!(step(&recipe, &device) <= step(&recipe, &composing) * (1.0 + 1e-9));
    }

    #[test]
    fn a_better_host_is_never_slower(
        network in prop::sample::select(vec!["resnet18", "db_resnet", "siammask", "gpt2", "efficientnet_b0"]),
        stack in prop::sample::select(vec!["mindspore", "mindcv"]), devices in 1usize..17, batch in 1usize..300,
        by in 1.0f64..4.0, way in 0usize..3,
    ) {
        let mut recipe = recipe(network, batch);
        recipe.npu.input.enabled = true;
        let base = device("ascend910");
        let stack = base.stacks.iter().find(|known| known.name == stack).unwrap().clone();
        let base = base.under(&stack);
        let mut better = base.clone();
        match way {
            0 => better.host.core_time.value /= by,
            1 => better.host.cores.value *= by,
            _ => {
                better.host.workers.value *= by;
                better.host.workers_alone.value *= by;
            }
        }
        let time = |device: &Device, devices| input(&recipe, device, Work::Train, batch, devices).pipeline;
        let (before, after) = (time(&base, devices), time(&better, devices));
        prop_assert!(after.0 <= before.0 * (1.0 + 1e-12) && after.0 > 0.0);
        // Devices of one server share its cores: each gets no more than it had alone.
        prop_assert!(devices > 8 || time(&base, 8).0 >= before.0 * (1.0 - 1e-12) || devices == 1);
    }

    #[test]
    fn overlapping_stages_lie_between_the_longest_and_the_sum(
        stages in prop::array::uniform4(0.0f64..1e-2), tiles in 1.0f64..1e6, overlap in 0.0f64..=1.0,
    ) {
        let time = pipelined(stages.map(Seconds), tiles, overlap).0;
        let (longest, sum) = (stages.into_iter().fold(0.0, f64::max), stages.iter().sum::<f64>());
        prop_assert!(time >= longest && time <= sum * (1.0 + 1e-12));
        prop_assert!(time <= pipelined(stages.map(Seconds), 1.0, overlap).0 * (1.0 + 1e-12), "more tiles hide more");
        prop_assert!(time >= pipelined(stages.map(Seconds), tiles, 1.0).0, "reordering never costs");
    }

    #[test]
    fn memory_grows_with_the_batch(network in 0..NETWORKS.len(), batch in 2usize..64, more in 1usize..64) {
        let device = device("ascend910");
        let memory = |batch| {
            let compiled = crate::compile::compile(&recipe(NETWORKS[network], batch), &device, Work::Train, batch).unwrap();
            peak_memory(&compiled.graph, &recipe(NETWORKS[network], batch).npu)
        };
        prop_assert!(memory(batch) < memory(batch + more));
    }

    #[test]
    fn searched_buckets_are_never_worse_than_others(
        gradients in prop::collection::vec((0.0f64..0.1, 1u64..50_000_000, 0.0f64..1e-3), 1..60),
        latency in 0.0f64..2e-3, rate in 1e9f64..1e11, cut in 0u32..60, updates: bool,
    ) {
        let gradient = |(parameter, (ready, bytes, update)): (usize, (f64, u64, f64))| {
            let update = if updates { Seconds(update) } else { Seconds::ZERO };
            Gradient { parameter, ready: Seconds(ready), bytes, update }
        };
        let gradients: Vec<Gradient> = gradients.into_iter().enumerate().map(gradient).collect();
        let computed = gradients.iter().map(|g| g.ready).fold(Seconds::ZERO, Seconds::max);
        let cost = |bytes: u64| Seconds(latency + bytes as f64 / rate);
        let end = |split: &Split, overlap| {
            let buckets = collective::schedule(gradients.clone(), computed, split, overlap, &cost);
            assert_eq!(buckets.iter().map(|b| b.parameters.len()).sum::<usize>(), gradients.len());
            assert!(buckets.windows(2).all(|pair| pair[0].end <= pair[1].start), "one after the other");
            let updates = |bucket: &Bucket| bucket.parameters.iter().map(|p| gradients[*p].update.0).sum::<f64>();
            buckets.iter().fold(computed.0, |free, bucket| free.max(bucket.end.0) + updates(bucket))
        };
        let auto = end(&Split::Word(SplitWord::Auto), true) * (1.0 - 1e-11);
        prop_assert!(auto <= end(&Split::Word(SplitWord::One), true));
        prop_assert!(auto <= end(&Split::Word(SplitWord::One), false));
        prop_assert!(auto <= end(&Split::Word(SplitWord::Auto), false));
        // A split by parameters need not follow the order in which gradients come, and only then could it be better.
        prop_assert!(updates || auto <= end(&Split::At(vec![cut]), true));
    }

    #[test]
    fn no_cut_of_few_gradients_is_better_than_the_searched_one(
        gradients in prop::collection::vec((0.0f64..0.01, 1u64..50_000_000, 0.0f64..5e-3), 1..8),
        latency in 0.0f64..5e-3, rate in 1e9f64..1e11, computed in 0.0f64..0.02,
    ) {
        let mut gradients: Vec<Gradient> = gradients
            .into_iter()
            .map(|(ready, bytes, update)| Gradient { parameter: 0, ready: Seconds(ready), bytes, update: Seconds(update) })
            .collect();
        gradients.sort_by(|a, b| b.ready.0.total_cmp(&a.ready.0));
        gradients.iter_mut().enumerate().for_each(|(parameter, gradient)| gradient.parameter = parameter);
        let computed = gradients.iter().map(|g| g.ready).fold(Seconds(computed), Seconds::max);
        let cost = |bytes: u64| Seconds(latency + bytes as f64 / rate);
        let end = |split: &Split| {
            let buckets = collective::schedule(gradients.clone(), computed, split, true, &cost);
            let updates = |bucket: &Bucket| bucket.parameters.iter().map(|p| gradients[*p].update.0).sum::<f64>();
            let end = buckets.iter().fold(computed.0, |free, bucket| free.max(bucket.end.0) + updates(bucket));
            (end, buckets.len())
        };
        let (auto, buckets) = end(&Split::Word(SplitWord::Auto));
        for cuts in 0u32..1 << (gradients.len() - 1) {
            let at = (1..gradients.len() as u32).filter(|i| cuts >> (i - 1) & 1 == 1).collect();
            let (other, count) = end(&Split::At(at));
            prop_assert!(auto <= other * (1.0 + 1e-11), "{auto} {other} {cuts:b}");
            prop_assert!(other > auto * (1.0 + 1e-11) || buckets <= count, "{buckets} buckets, {count} do");
        }
    }

    #[test]
    fn sums_over_devices_grow_with_bytes(
        bytes in 1u64..1_000_000_000, more in 1u64..1_000_000_000, devices in 1usize..300,
    ) {
        let device = device("ascend910");
        let time = |bytes| collective::all_reduce(&device, devices, bytes);
        prop_assert!(time(bytes) <= time(bytes + more));
        prop_assert!(devices > 1 || time(bytes) == Seconds::ZERO);
    }
}

#[test]
fn buckets_bring_the_step_forward_or_leave_it() {
    for devices in [8, 64, 256] {
        let device = device("ascend910");
        let mut recipe = recipe("resnet18", 32);
        recipe.npu.devices = devices;
        let auto = step(&recipe, &device);
        recipe.npu.all_reduce.split = Split::Word(SplitWord::One);
        assert!(auto <= step(&recipe, &device), "{devices} devices");
    }
}

#[test]
fn the_largest_batch_fits_and_one_more_does_not() {
    let device = device("ascend910");
    let mut recipe = recipe("resnet50", 256);
    let largest = largest_batch(&recipe, &device, Work::Train).unwrap().unwrap();
    assert!(largest > 256, "the published batch fits, so the largest is above: {largest}");
    recipe.train.batch = largest;
    crate::profile(&recipe, &device, Work::Train).unwrap();
    recipe.train.batch = largest + 1;
    let refused = crate::profile(&recipe, &device, Work::Train).unwrap_err().to_string();
    assert!(refused.contains(&format!("the largest that fits is {largest}")), "{refused}");
}
