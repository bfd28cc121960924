//! Passes that devices apply, on the recipes of the repository: what they place, what they take away, what they leave.

use std::{collections::BTreeSet, path::Path};
use zoo_graph::{
    DType, Graph, GraphError, Layout, Op, Phase, Place,
    passes::{
        BlockedLayout, FoldPad, FuseBnRelu, FuseConvStatistics, HostPlacement, L2ToDecay, Pass, Pipeline, PlaceCasts,
        PrecisionMode, PrecisionPolicy, ScaleLoss, SplitDecay, crossings,
    },
};
use zoo_recipe::{BuildOptions, build};
use zoo_recipe::{Library, LoadOptions};

fn step(name: &str) -> Graph {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes");
    let loaded = Library::new([folder]).load(name, &LoadOptions::default());
    let recipe = loaded.unwrap_or_else(|errors| panic!("{errors}")).recipe;
    build(&recipe, &recipe.resolve().unwrap(), &BuildOptions::train(2)).unwrap()
}

/// The step of a recipe with this body, on images of 3 x 8 x 8.
fn step_of(body: &str) -> Graph {
    let text = format!(
        "name: r\nmodel: {{inputs: {{image: [3, 8, 8]}}, classes: 10, body: [{body}, flatten, linear: {{name: fc, out: \
         10}}]}}\ndata: {{source: {{characters: {{}}}}}}\nloss: {{softmax_cross_entropy: {{}}}}\noptimizer: sgd\n\
         schedule: {{constant: {{base_lr: 0.1}}}}\ntrain: {{batch: 32, epochs: 1}}\n"
    );
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(folder.path().join("r.yaml"), text).unwrap();
    let loaded = Library::new([folder.path()]).load("r", &LoadOptions::default());
    let recipe = loaded.unwrap_or_else(|errors| panic!("{errors}")).recipe;
    build(&recipe, &recipe.resolve().unwrap(), &BuildOptions::train(2)).unwrap()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| name.to_string()).collect()
}

fn policy(mode: PrecisionMode) -> PrecisionPolicy {
    PrecisionPolicy {
        mode,
        reduced: DType::F16,
        white: set(&["Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "MatMul"]),
        black: set(&["SoftmaxCrossEntropyWithLogits"]),
        reduced_only: set(&["MaxPool", "MaxPoolGrad"]),
        keep: Default::default(),
    }
}

fn run(graph: &mut Graph, passes: Vec<Box<dyn Pass + Send + Sync>>) -> Result<(), GraphError> {
    Pipeline::of(passes).run(graph, None).map(drop)
}

fn casts(graph: &Graph) -> usize {
    graph.nodes.iter().filter(|n| matches!(n.op, Op::Cast(_))).count()
}

fn dtypes(graph: &Graph, wanted: fn(&Op) -> bool) -> BTreeSet<TypeName> {
    let nodes = graph.nodes.iter().filter(|n| wanted(&n.op) && n.phase != Phase::Update);
    nodes.map(|n| TypeName(graph.ty(n.outputs[0]).dtype.to_string())).collect()
}

/// Element types by name, which sort.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TypeName(String);

fn only(name: &str) -> BTreeSet<TypeName> {
    [TypeName(name.to_owned())].into()
}

#[test]
fn mixed_precision_reduces_white_and_what_follows_it() {
    for name in ["resnet50", "densenet121", "googlenet", "mobilenetv2"] {
        let mut graph = step(name);
        run(&mut graph, vec![Box::new(PlaceCasts(policy(PrecisionMode::Mixed)))]).unwrap();
        assert_eq!(dtypes(&graph, |op| matches!(op, Op::Conv2D(_) | Op::Conv2DBackpropFilter(_))), only("f16"));
        // Grey operators follow: no cast stands between convolutions.
        assert_eq!(dtypes(&graph, |op| matches!(op, Op::BnTrainingUpdate(_) | Op::MaxPoolGrad(_))), only("f16"));
        assert_eq!(dtypes(&graph, |op| matches!(op, Op::SoftmaxCrossEntropy(_))), only("f32"));
        assert_eq!(dtypes(&graph, |op| matches!(op, Op::BnTrainingReduce(_))), only("f32"), "statistics");
        assert!(graph.variables.iter().all(|v| graph.ty(v.value).dtype == DType::F32), "master weights");
        assert!(graph.gradients.iter().all(|(_, v)| graph.ty(*v).dtype == DType::F32));
        assert_eq!(graph.ty(graph.outputs[0].1).dtype, DType::F32);
        // Weights and their gradients, the image, logits and their gradient.
        let weights = graph.parameters().filter(|(_, v)| graph.ty(v.value).shape.len() > 1).count();
        assert!(casts(&graph) <= 2 * weights + 8, "{name}: {} casts for {weights} weights", casts(&graph));
        let mut seen = BTreeSet::new();
        for node in graph.nodes.iter().filter(|n| matches!(n.op, Op::Cast(_))) {
            assert!(seen.insert((node.inputs[0], graph.ty(node.outputs[0]).dtype.to_string())), "{} twice", node.name);
        }
    }
}

#[test]
fn the_other_modes() {
    let mut graph = step("resnet50");
    run(&mut graph, vec![Box::new(PlaceCasts(policy(PrecisionMode::Reduced)))]).unwrap();
    assert_eq!(dtypes(&graph, |op| matches!(op, Op::SoftmaxCrossEntropy(_) | Op::MatMul(_))), only("f16"));
    assert!(graph.variables.iter().all(|v| graph.ty(v.value).dtype == DType::F32));
    let mut graph = step("resnet50");
    run(&mut graph, vec![Box::new(PlaceCasts(policy(PrecisionMode::PreferF32)))]).unwrap();
    assert_eq!(dtypes(&graph, |op| matches!(op, Op::MaxPool(_) | Op::MaxPoolGrad(_))), only("f16"));
    assert_eq!(dtypes(&graph, |op| matches!(op, Op::Conv2D(_) | Op::BnTrainingUpdate(_))), only("f32"));
    assert_eq!(casts(&graph), 4, "into and out of one pool and its gradient, whose output is reduced already");
    let refused = run(&mut step("resnet50"), vec![Box::new(PlaceCasts(policy(PrecisionMode::KeepF32)))]);
    let message = refused.unwrap_err().to_string();
    let named = message.split_once("no f32 form of MaxPool (").map(|(_, rest)| rest);
    assert!(named.is_some_and(|rest| rest.contains("MaxPoolGrad (") && rest.contains("resnet50.yaml:")), "{message}");
    let available = PrecisionPolicy { reduced_only: set(&[]), ..policy(PrecisionMode::KeepF32) };
    let mut graph = step("resnet50");
    run(&mut graph, vec![Box::new(PlaceCasts(available))]).unwrap();
    assert_eq!(casts(&graph), 0);
}

#[test]
fn casts_leave_fusion_and_layout_their_patterns() {
    let mut graph = step("resnet50");
    let passes: Vec<Box<dyn Pass + Send + Sync>> = vec![
        Box::new(PlaceCasts(policy(PrecisionMode::Mixed))),
        Box::new(FuseBnRelu),
        Box::new(FuseConvStatistics),
        Box::new(BlockedLayout::default()),
    ];
    run(&mut graph, passes).unwrap();
    let left = |wanted: fn(&Op) -> bool| graph.nodes.iter().filter(|n| wanted(&n.op)).count();
    assert_eq!(left(|op| matches!(op, Op::Relu(_) | Op::BnTrainingReduce(_))), 0);
    assert!(left(|op| matches!(op, Op::TransData(_))) <= 2);
    let filters = graph.variables.iter().filter(|v| graph.ty(v.value).shape.len() == 4);
    assert!(filters.clone().all(|v| matches!(graph.ty(v.value).layout, Layout::FractalZ { .. })));
}

#[test]
fn operators_without_a_blocked_form_are_wrapped_in_conversions() {
    let conversions = |row_major: &[&str]| {
        let mut graph = step("googlenet");
        run(&mut graph, vec![Box::new(BlockedLayout { row_major: set(row_major) })]).unwrap();
        let slices = graph.nodes.iter().filter(|n| matches!(n.op, Op::Slice(_)));
        let plain = slices.filter(|n| graph.ty(n.outputs[0]).layout == Layout::Plain).count();
        (graph.nodes.iter().filter(|n| matches!(n.op, Op::TransData(_))).count(), plain)
    };
    assert_eq!(conversions(&[]), (2, 0));
    let (count, plain) = conversions(&["SliceD"]);
    // Nine concatenations: the gradient of each is converted once, and each of its four parts back.
    assert_eq!(plain, 36);
    assert_eq!(count, 2 + 9 + 36);
}

#[test]
fn pads_go_into_their_convolutions() {
    let mut graph = step("alexnet");
    run(&mut graph, vec![Box::new(FoldPad)]).unwrap();
    assert!(!graph.nodes.iter().any(|n| matches!(n.op, Op::Pad(_) | Op::Slice(_))));
    let pads: Vec<usize> = graph
        .nodes
        .iter()
        .filter_map(|n| match &n.op {
            Op::Conv2D(conv) => Some(conv.window.pad[0]),
            _ => None,
        })
        .collect();
    assert_eq!(pads, [2, 2, 1, 1, 1]);
}

/// Each call folds its own gradients, and none if they cannot be told apart.
#[test]
fn pads_of_a_convolution_that_is_called_again() {
    let left = |body: &str| {
        let mut graph = step_of(body);
        run(&mut graph, vec![Box::new(FoldPad)]).unwrap();
        let count = |wanted: fn(&Op) -> bool| graph.nodes.iter().filter(|n| wanted(&n.op)).count();
        (count(|op| matches!(op, Op::Pad(_))), count(|op| matches!(op, Op::Slice(_))))
    };
    let module =
        |out: usize| format!("sequential: {{name: m, body: [pad: {{size: 1}}, conv: {{out: {out}, kernel: 3}}]}}");
    let stem = "conv: {name: stem, out: 8, kernel: 1}";
    assert_eq!(left(&format!("{stem}, {}, again: m", module(8))), (0, 0));
    // A sum passes the same gradient to both calls.
    let sum = |between: &str, out| format!("tap: x, {}, tap: y, from: x, {between}, again: m, add: y", module(out));
    assert_eq!(left(&format!("{stem}, {}", sum("relu", 8))), (2, 2));
    // Of the calls in this sum, only the second computes the gradient of its input.
    assert_eq!(left(&sum("conv: {name: c, out: 3, kernel: 1}", 3)), (2, 1));
}

#[test]
fn l2_becomes_decay() {
    let mut graph = step("alexnet");
    run(&mut graph, vec![Box::new(L2ToDecay)]).unwrap();
    assert!(!graph.nodes.iter().any(|n| matches!(n.op, Op::L2Loss(_) | Op::WeightedSum(_) | Op::Add(_))));
    let decays: Vec<f64> = graph.nodes.iter().filter_map(|n| Some(graph.optimized(n)?.group.weight_decay)).collect();
    assert_eq!(decays, [1e-4; 16]);
    let names: Vec<&str> = graph.losses.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["loss", "cross_entropy"]);
}

#[test]
fn scaling_and_decay_become_operators() {
    let mut graph = step("resnet50");
    run(&mut graph, vec![Box::new(ScaleLoss::default()), Box::new(SplitDecay)]).unwrap();
    let unscaled = graph.nodes.iter().filter(|n| matches!(&n.op, Op::LossScale(op) if op.inverse)).count();
    let decayed = graph.nodes.iter().filter(|n| matches!(n.op, Op::Scale(_))).count();
    // 161 gradients are scaled back; 54 weights decay, biases and normalisations do not.
    assert_eq!((unscaled, decayed), (161, 54));
    let seed = graph.nodes.iter().find(|n| n.name == "loss/seed").unwrap();
    assert!(matches!(&seed.op, Op::Fill(fill) if fill.value == 1.0));
    assert_eq!(graph.nodes.iter().filter(|n| n.name == "loss/scale").count(), 1);
    let decays = |n: &zoo_graph::Node| graph.optimized(n).is_some_and(|update| update.group.weight_decay != 0.0);
    assert!(!graph.nodes.iter().any(decays));
}

#[test]
fn host_operators_are_copied_to_and_from() {
    let mut graph = step("alexnet");
    run(&mut graph, vec![Box::new(HostPlacement { operators: set(&["MaxPool"]) })]).unwrap();
    let on_host: Vec<&zoo_graph::Node> = graph.nodes.iter().filter(|n| n.place == Place::Host).collect();
    assert_eq!(on_host.len(), 3);
    let crossing = crossings(&graph);
    for node in &on_host {
        assert!(
            crossing.contains(&(node.inputs[0], Place::Host)) && crossing.contains(&(node.outputs[0], Place::Device))
        );
    }
    assert_eq!(crossing.len(), 6);
    assert!(crossings(&step("alexnet")).is_empty());
}
