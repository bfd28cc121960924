//! A step on a simulated device: what it loses, and where that begins.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use zoo_engine::simulate::{Overflow, Range, Subnormals};
use zoo_engine::{Arithmetic, Kernels, Options};
use zoo_golden::device::{DeviceOptions, DeviceReport, bisect::bisect, check_device};
use zoo_golden::{Golden, Verdict};
use zoo_graph::{
    DType,
    passes::{PrecisionMode, PrecisionPolicy, ScaleLoss},
};
use zoo_recipe::{Library, LoadOptions, Recipe};

const SCALE: f64 = 1024.0;

fn case() -> (Recipe, Golden) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let recipe = Library::new([root.join("recipes")]).load("resnet50", &LoadOptions::default()).unwrap().recipe;
    (recipe, Golden::read(&root.join("tests/fixtures/golden/resnet50-small.json")).unwrap())
}

/// Saturating fp16 by lists, as the Ascend 910 computes.
fn arithmetic() -> Arithmetic {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
    Arithmetic {
        policy: PrecisionPolicy {
            mode: PrecisionMode::Mixed,
            reduced: DType::F16,
            white: set(&["Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "MatMul", "Relu"]),
            black: set(&["SoftmaxCrossEntropyWithLogits"]),
            reduced_only: set(&["MaxPool", "MaxPoolGrad"]),
            keep: BTreeSet::new(),
        },
        range: Range::Format { overflow: Overflow::Saturate, subnormals: Subnormals::Keep },
        scales_loss: Some(ScaleLoss::default()),
        skips_overflow: false,
        planted: BTreeMap::new(),
    }
}

fn options(arithmetic: &Arithmetic, loss_scale: f64) -> DeviceOptions<'_> {
    let engine = Options { kernels: Kernels::Fast { fusion: true }, threads: None, level: None };
    DeviceOptions { device: "test", arithmetic, loss_scale, engine }
}

fn check(recipe: &Recipe, golden: &Golden, arithmetic: &Arithmetic, loss_scale: f64) -> DeviceReport {
    check_device(recipe, golden, &options(arithmetic, loss_scale), &mut |_| ()).unwrap()
}

/// Nodes of every kind, forward and backward, the seed's MaxPoolGrad among them, and the power of two that they hold
/// their results times.
const VICTIMS: [(&str, i32); 7] = [
    ("conv1", 40),
    ("layer2.0.bn1", -40),
    ("layer3.1.conv2", -40),
    ("layer4.2.conv3/grad_filter", -40),
    ("layer2.3.conv1/grad_input", 40),
    ("maxpool/grad", 40),
    ("fc/grad_weight", 40),
];

#[test]
fn a_planted_fault_is_found_where_it_was_planted() {
    let (recipe, golden) = case();
    let clean = check(&recipe, &golden, &arithmetic(), SCALE);
    assert_eq!(clean.verdict, Verdict::Pass, "{:?}", clean.first_divergence);
    for (victim, power) in VICTIMS {
        let known = clean.nodes.iter().map(|node| node.node.as_str());
        assert!(known.clone().any(|name| name == victim), "no node {victim}");
        let planted = BTreeMap::from([(victim.to_owned(), power)]);
        let report = check(&recipe, &golden, &Arithmetic { planted, ..arithmetic() }, SCALE);
        let first = report.first_divergence.unwrap_or_else(|| panic!("{victim} times 2^{power} was not found"));
        assert_eq!(first.node.as_deref(), Some(victim), "times 2^{power}");
        let node = report.nodes.iter().find(|node| node.node == victim).unwrap();
        assert!(if power > 0 { node.overflow > 0.0 } else { node.underflow > 0.9 }, "{node:?}");
    }
}

#[test]
fn what_has_to_stay_f32_is_what_was_planted() {
    let (recipe, golden) = case();
    for victim in ["maxpool/grad", "layer3.1.conv2"] {
        let planted = BTreeMap::from([(victim.to_owned(), 40)]);
        let faulty = Arithmetic { planted, ..arithmetic() };
        let found = bisect(&recipe, &golden, &options(&faulty, SCALE), &mut |_, _| ()).unwrap();
        let keep: Vec<&str> = found.keep.iter().map(|kept| kept.node.as_str()).collect();
        assert!(found.passes && keep == [victim], "{found:?}");
    }
    let sound = bisect(&recipe, &golden, &options(&arithmetic(), SCALE), &mut |_, _| ()).unwrap();
    assert!(sound.passes && sound.keep.is_empty());
}

#[test]
fn a_loss_scale_is_recommended_that_loses_nothing() {
    let (recipe, golden) = case();
    let report = check(&recipe, &golden, &arithmetic(), 1.0);
    let scale = report.loss_scale.unwrap();
    assert!(scale.lost_at_1 > 0.001 && scale.lost_at_1 == scale.lost_at_present, "{scale:?}");
    assert!(scale.best > 1.0 && scale.lost_at_best < 0.05 * scale.lost_at_1, "{scale:?}");
    let with = check(&recipe, &golden, &arithmetic(), scale.best);
    assert_eq!(with.verdict, Verdict::Pass, "{:?}", with.first_divergence);
    let far_too_large = check(&recipe, &golden, &arithmetic(), 2f64.powi(40));
    assert_eq!(far_too_large.verdict, Verdict::Fail);
}

/// A device rounds what its kernels compute, and no more: relative to a whole result, at most half the distance of
/// neighbours in its type.
#[test]
fn nodes_are_judged_on_what_they_read() {
    let (recipe, golden) = case();
    let report = check(&recipe, &golden, &arithmetic(), SCALE);
    for node in &report.nodes {
        let bound = if node.dtype == DType::F16 { 2f64.powi(-11) } else { 2f64.powi(-24) };
        assert!(node.expected == bound && node.error <= bound, "{node:?}");
        assert!(node.kernel.as_ref().is_some_and(|kernel| kernel.ratio <= 1.0), "{node:?}");
    }
    let off = |name: &str| report.end_to_end.iter().find(|item| item.name == name).unwrap().error;
    assert!(off("@root#0") > 1e-5 && off("@root#0") < 1e-2, "{}", off("@root#0"));
    // Numbers so small that fp16 has only some of their bits: each node after the first loses them by itself.
    let tiny = check(&recipe, &golden, &arithmetic(), 2f64.powi(-10));
    let lost = tiny.nodes.iter().find(|node| node.verdict == Verdict::Fail).unwrap();
    assert!(lost.own && lost.error > lost.expected && lost.kernel.as_ref().unwrap().ratio <= 1.0, "{lost:?}");
    assert_eq!(tiny.first_divergence.unwrap().node.as_deref(), Some(lost.node.as_str()));
}

#[test]
fn infinities_and_what_follows_from_them_fail_and_end_nothing() {
    let (recipe, golden) = case();
    for (victim, power) in [("layer2.0.conv1", 40), ("maxpool/grad", 40), ("fc/grad_weight", 40)] {
        let range = Range::Format { overflow: Overflow::Infinite, subnormals: Subnormals::Keep };
        let planted = BTreeMap::from([(victim.to_owned(), power)]);
        let report = check(&recipe, &golden, &Arithmetic { range, planted, ..arithmetic() }, SCALE);
        assert_eq!(report.verdict, Verdict::Fail);
        assert_eq!(report.first_divergence.unwrap().node.as_deref(), Some(victim));
        let node = report.nodes.iter().find(|node| node.node == victim).unwrap();
        assert!(!node.error.is_finite() && node.verdict == Verdict::Fail, "{node:?}");
        // As JSON it is null, and everything can be written.
        assert!(serde_json::to_string(&report.nodes).unwrap().contains("\"error\":null"));
    }
}

#[test]
fn bf16_has_the_range_and_needs_no_loss_scale() {
    let (recipe, golden) = case();
    let half = arithmetic();
    let policy = PrecisionPolicy { reduced: DType::Bf16, ..half.policy.clone() };
    let range = Range::Format { overflow: Overflow::Infinite, subnormals: Subnormals::Keep };
    let bf16 = Arithmetic { policy, range, scales_loss: None, ..half };
    let report = check(&recipe, &golden, &bf16, 1.0);
    assert_eq!(report.verdict, Verdict::Pass, "{:?}", report.first_divergence);
    let scale = report.loss_scale.unwrap();
    assert_eq!((scale.best, scale.lost_at_1, scale.lost_at_best), (1.0, 0.0, 0.0));
    // Eight bits of significand cost about eight times as much as eleven.
    let conv1 = |nodes: &[zoo_golden::device::NodeReport]| {
        nodes.iter().find(|node| node.node == "conv1").map(|node| (node.dtype, node.error)).unwrap()
    };
    let fp16 = check(&recipe, &golden, &arithmetic(), SCALE);
    let ((a, coarse), (b, fine)) = (conv1(&report.nodes), conv1(&fp16.nodes));
    assert_eq!((a, b), (DType::Bf16, DType::F16));
    assert!((4.0..16.0).contains(&(coarse / fine)), "{coarse} and {fine}");
}

#[test]
fn operators_layers_and_nodes_stay_f32_if_the_recipe_says_so() {
    let (recipe, golden) = case();
    let dtypes = |keep: &str| {
        let mut arithmetic = arithmetic();
        arithmetic.policy.keep.insert(keep.to_owned());
        let nodes = check(&recipe, &golden, &arithmetic, SCALE).nodes;
        let of = |name: &str| nodes.iter().find(|node| node.node == name).unwrap().dtype;
        ["layer1.0.conv1", "layer1.0.conv1/grad_filter", "layer1.0.conv2", "layer2.0.conv1", "fc"].map(of)
    };
    let (half, full) = (DType::F16, DType::F32);
    assert_eq!(dtypes("layer1"), [full, full, full, half, half], "a part of the network");
    assert_eq!(dtypes("layer1.0.conv1"), [full, full, half, half, half], "a layer with its gradients");
    assert_eq!(dtypes("layer1.0.conv1/grad_filter"), [half, full, half, half, half], "a node");
    assert_eq!(dtypes("Conv2D"), [full, half, full, full, half], "an operator");
    let mut arithmetic = arithmetic();
    arithmetic.policy.keep.insert("layer9.conv1".to_owned());
    let refused = check_device(&recipe, &golden, &options(&arithmetic, SCALE), &mut |_| ()).unwrap_err().to_string();
    assert!(refused.contains("`layer9.conv1`"), "{refused}");
}
