//! The graphs of the recipes in `recipes/`: sizes known from the literature, and passes that leave a sound graph.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    path::Path,
};
use zoo_graph::{
    Graph, GraphError, Layout, MemoryPlan, Op, Phase, TapState, ValueId,
    passes::{Applied, Pipeline},
};
use zoo_recipe::{BuildOptions, build};
use zoo_recipe::{Library, LoadOptions, Recipe};

fn recipe(name: &str) -> Recipe {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes");
    match Library::new([folder]).load(name, &LoadOptions::default()) {
        Ok(loaded) => loaded.recipe,
        Err(errors) => panic!("{errors}"),
    }
}

fn step(name: &str) -> Graph {
    let recipe = recipe(name);
    build(&recipe, &recipe.resolve().unwrap(), &BuildOptions::train(2)).unwrap()
}

fn parameters(graph: &Graph) -> usize {
    graph.parameters().map(|(_, v)| graph.ty(v.value).shape.numel()).sum()
}

/// Multiply-accumulates of convolutions and dense layers in the forward pass, per image.
fn macs(graph: &Graph, batch: u64) -> u64 {
    let products = graph.nodes.iter().filter(|n| n.phase == Phase::Forward);
    let products = products.filter(|n| matches!(n.op, Op::Conv2D(_) | Op::MatMul(_)));
    let flop = products.map(|n| {
        let types = |ids: &[zoo_graph::ValueId]| ids.iter().map(|v| graph.ty(*v).clone()).collect::<Vec<_>>();
        let (inputs, outputs) = (types(&n.inputs), types(&n.outputs));
        n.op.cost(&inputs.iter().collect::<Vec<_>>(), &outputs.iter().collect::<Vec<_>>()).flop.0
    });
    flop.sum::<u64>() / 2 / batch
}

#[test]
fn sizes_are_those_of_the_literature() {
    for (name, count, expected_macs) in [
        ("resnet50", 25_557_032, 4_089_184_256),
        ("resnet18", 11_689_512, 1_814_073_344),
        ("vgg16", 138_357_544, 15_470_264_320),
        ("alexnet-torchvision", 61_100_840, 714_188_480),
        // By hand: 105415200 + 335923200 + 112140288 + 149520384 + 99680256 + 58621952.
        ("alexnet", 61_266_088, 861_301_280),
    ] {
        let graph = step(name);
        assert_eq!(parameters(&graph), count, "{name}");
        assert_eq!(macs(&graph, 2), expected_macs, "{name}");
    }
}

#[test]
fn the_first_convolution_computes_no_input_gradient() {
    for name in ["resnet50", "alexnet", "vgg16"] {
        let graph = step(name);
        let input = graph.inputs[0].value;
        let first = graph.nodes.iter().find(|n| matches!(n.op, Op::Conv2D(_))).unwrap().name.clone();
        let wasted = graph.nodes.iter().any(|n| n.name == format!("{first}/grad_input"));
        assert!(!wasted, "{name}: nobody needs the gradient by {input:?}");
        assert_eq!(graph.gradients.len(), graph.parameters().count(), "{name}: every parameter has a gradient");
    }
}

fn fast(graph: &mut Graph, fusion: bool) -> Vec<Applied> {
    Pipeline::fast(fusion).run(graph, None).unwrap()
}

#[test]
fn fusion_of_resnet50_leaves_no_relu_and_no_lone_normalisation_gradient() {
    let mut graph = step("resnet50");
    let applied = fast(&mut graph, true);
    let patches = |pass: &str| applied.iter().find(|a| a.pass == pass).map(|a| a.patches.len());
    assert_eq!(patches("fuse_bn_grad"), Some(53));
    assert_eq!(patches("fuse_bn_relu"), Some(49), "one per ReLU");
    assert_eq!(patches("fuse_conv_statistics"), Some(53));
    let left = |wanted: fn(&Op) -> bool| graph.nodes.iter().filter(|n| wanted(&n.op)).count();
    assert_eq!(left(|op| matches!(op, Op::Relu(_) | Op::ReluGrad(_) | Op::BnTrainingReduce(_))), 0);
    assert_eq!(left(|op| matches!(op, Op::BnTrainingUpdateGrad(_) | Op::BnTrainingReduceGrad(_))), 0);
    assert!(graph.taps.iter().any(|t| matches!(t.state, TapState::Fused("fuse_bn_relu"))));
}

#[test]
fn layout_keeps_maps_blocked_from_the_first_convolution_to_the_last_pool() {
    for fusion in [true, false] {
        let mut graph = step("resnet50");
        fast(&mut graph, fusion);
        let conversions: Vec<_> = graph.nodes.iter().filter(|n| matches!(n.op, Op::TransData(_))).collect();
        // The pooled features are flattened, and their gradient comes back flat.
        let names: Vec<&str> = conversions.iter().map(|n| n.name.as_str()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        let filters = graph.variables.iter().filter(|v| graph.ty(v.value).shape.len() == 4);
        assert!(filters.clone().all(|v| matches!(graph.ty(v.value).layout, Layout::FractalZ { .. })));
        assert_eq!(filters.count(), 2 * 53, "filters and their momentum");
    }
}

#[test]
fn every_recipe_survives_every_prefix_of_the_passes() {
    for name in ["resnet50", "resnet18", "vgg16", "alexnet", "alexnet-torchvision"] {
        let count = Pipeline::fast(true).names().count();
        for until in 0..=count {
            let mut graph = step(name);
            Pipeline::fast(true).run(&mut graph, Some(until)).unwrap();
        }
    }
}

#[test]
fn memory_is_never_shared_by_values_that_live_at_the_same_time() {
    for name in ["resnet50", "alexnet", "bert_base"] {
        for fusion in [true, false] {
            let mut graph = step(name);
            fast(&mut graph, fusion);
            let plan = MemoryPlan::of(&graph);
            let mut last_use = vec![0; graph.values.len()];
            for (n, node) in graph.nodes.iter().enumerate() {
                node.inputs.iter().chain(&node.outputs).for_each(|v| last_use[v.0] = n);
            }
            graph.results().for_each(|v| last_use[v.0] = usize::MAX);
            let place = |v: ValueId| plan.place(v).filter(|place| place.end as u64 <= plan.bytes().0);
            // Variables and inputs hold their memory to the end, unless their next value takes it over.
            let mut held: HashMap<ValueId, Range<usize>> = HashMap::new();
            let apart = |held: &HashMap<ValueId, Range<usize>>, place: &Range<usize>| {
                held.values().all(|other| other.end <= place.start || place.end <= other.start)
            };
            for v in graph.inputs.iter().map(|i| i.value).chain(graph.variables.iter().map(|v| v.value)) {
                if let Some(place) = place(v) {
                    assert!(apart(&held, &place), "{name}: {}", v.0);
                    held.insert(v, place);
                }
            }
            for (n, node) in graph.nodes.iter().enumerate() {
                for (r, v) in node.outputs.iter().enumerate() {
                    let (place, ty) = (place(*v).unwrap(), graph.ty(*v));
                    assert_eq!(place.len(), ty.stored_numel() * ty.dtype.bytes().0 as usize);
                    if node.op.rules().is_view() {
                        assert_eq!(plan.place(node.inputs[0]).as_ref(), Some(&place), "{}", node.name);
                        held.insert(*v, place);
                        continue;
                    }
                    if let Some(old) = plan.overwrites(n, r).map(|operand| node.inputs[operand]) {
                        assert_eq!(held.remove(&old).as_ref(), Some(&place), "{}", node.name);
                        assert_eq!(last_use[old.0], n, "{}", node.name);
                    }
                    assert!(apart(&held, &place), "{name}: {}", node.name);
                    held.insert(*v, place);
                }
                held.retain(|v, _| !matches!(graph.value(*v).source, zoo_graph::Source::Node(..)) || last_use[v.0] > n);
            }
            println!("{name} fusion {fusion}: {} planned, {} live", plan.bytes(), plan.live_bytes());
            assert!(plan.bytes().0 < plan.live_bytes().0 * 21 / 20, "{} for {}", plan.bytes(), plan.live_bytes());
        }
    }
}

#[test]
fn the_forward_half_keeps_what_the_network_says_and_updates_nothing() {
    for name in ["resnet50", "siammask", "db_resnet"] {
        let whole = step(name);
        let mut half = whole.forward();
        zoo_graph::verify(&half, None).unwrap();
        assert!(half.nodes.iter().all(|n| matches!(n.phase, Phase::Forward | Phase::Loss)), "{name}");
        assert!(half.gradients.is_empty() && half.variables.iter().all(|v| v.next.is_none()), "{name}");
        assert_eq!(half.losses, whole.losses, "{name}");
        let keys = |graph: &Graph| graph.taps.iter().map(zoo_graph::Tap::key).collect::<Vec<_>>();
        assert_eq!(keys(&half), keys(&whole), "{name}");
        Pipeline::fast(false).run(&mut half, None).unwrap();
        assert!(MemoryPlan::of(&half).bytes().0 < MemoryPlan::of(&whole).bytes().0, "{name}");
    }
}

#[test]
fn inputs_with_indices_know_how_many_there_are() {
    let graph = step("bert_base");
    let numbers: Vec<_> = graph.inputs.iter().map(|i| (i.name.as_str(), graph.numbers(i.value))).collect();
    for (input, count) in [("input_ids", Some(30522)), ("token_type_ids", Some(2)), ("attention_mask", None)] {
        assert!(numbers.contains(&(input, count)), "{numbers:?}");
    }
    assert!(numbers.contains(&("next_sentence_label", Some(2))), "{numbers:?}");
}

/// The step of a recipe with this model, loss and training.
fn step_of(model: &str, loss: &str, train: &str) -> Graph {
    try_step(model, loss, train).unwrap()
}

fn try_step(model: &str, loss: &str, train: &str) -> Result<Graph, GraphError> {
    let text = format!(
        "name: r\nmodel: {{classes: 10, {model}}}\ndata: {{source: {{characters: {{}}}}}}\n\
         loss: {{{loss}}}\noptimizer: sgd\nschedule: {{constant: {{base_lr: 0.1}}}}\ntrain: {{batch: 32, {train}}}\n"
    );
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(folder.path().join("r.yaml"), text).unwrap();
    let loaded = Library::new([folder.path()]).load("r", &LoadOptions::default());
    let recipe = loaded.unwrap_or_else(|errors| panic!("{errors}")).recipe;
    build(&recipe, &recipe.resolve().unwrap(), &BuildOptions::train(2))
}

/// Neither layers that are never called nor frozen ones are pulled towards zero, or counted.
#[test]
fn an_l2_loss_is_over_trained_parameters() {
    let model = "inputs: {image: [3, 8, 8]}, body: [conv: {name: stem, out: 8, kernel: 1}, bn: {name: norm}, unused: \
                 {body: [conv: {name: spare, out: 8, kernel: 1}]}, flatten, linear: {name: fc, out: 10}]";
    let terms = |loss: &str, train: &str| {
        let graph = step_of(model, &format!("softmax_cross_entropy: {{}}, l2: {loss}"), train);
        let terms = graph.nodes.iter().filter(|node| matches!(node.op, Op::L2Loss(_)));
        terms.map(|node| node.name.trim_start_matches("loss/l2/").to_owned()).collect::<Vec<_>>()
    };
    let all = ["stem.weight", "stem.bias", "norm.weight", "norm.bias", "fc.weight", "fc.bias"];
    assert_eq!(terms("{weight: 0.1}", "epochs: 2"), all);
    assert_eq!(terms("{weight: 0.1, over: weights}", "epochs: 2"), ["stem.weight", "fc.weight"]);
    let frozen = |part: &str| terms("{weight: 0.1}", &format!("epochs: 2, parts: [{{modules: [stem], {part}}}]"));
    assert_eq!(frozen("trained: false"), all[2..]);
    assert_eq!(frozen("from_epoch: 1"), all[2..]);
    assert_eq!(frozen("lr: 0.5"), all);
}

#[test]
fn axes_of_any_extent_are_rolled() {
    let model = "inputs: {image: [1, 65536, 65536]}, body: [flatten, roll: {by: [-3]}, linear: {name: fc, out: 10}]";
    let graph = step_of(model, "softmax_cross_entropy: {}", "epochs: 1");
    let split = graph.nodes.iter().find(|node| matches!(node.op, Op::Split(_))).unwrap();
    assert_eq!(*graph.ty(split.outputs[1]).shape, [2, (1 << 32) - 3]);
}

#[test]
fn attention_is_between_operands_of_equal_ranks() {
    let of = |queries: &str| {
        let attention = "dot_product_attention: {heads: 1, key: k, value: v}";
        let model = format!(
            "inputs: {{image: [3, 8, 8]}}, body: [tokens: {{}}, tap: k, tap: v, {queries}{attention}, flatten, linear: \
             {{name: fc, out: 10}}]"
        );
        try_step(&model, "softmax_cross_entropy: {}", "epochs: 1")
    };
    of("").unwrap();
    for queries in ["reshape: {to: [8, 8, 3]}, ", "reshape: {to: [2, 4, 8, 3]}, ", "reshape: {to: [192]}, "] {
        let refused = of(queries).unwrap_err().to_string();
        assert!(refused.contains("need the same number of axes") && refused.contains("r.yaml:2:"), "{refused}");
    }
}

/// Heads of windows have one more axis before them.
#[test]
fn positions_are_rotated_in_windows_too() {
    let model = "inputs: {image: [6, 4, 8]}, body: [windows: {size: [3, 2], body: [linear: {name: qkv, out: 24}, \
                 dot_product_attention: {heads: 2, rotary: {}}]}, flatten, linear: {name: fc, out: 10}]";
    let graph = step_of(model, "softmax_cross_entropy: {}", "epochs: 1");
    let turned = graph.nodes.iter().filter(|node| node.op.name() == "RotaryMul");
    let shapes: Vec<&[usize]> = turned.map(|node| &*graph.ty(node.outputs[0]).shape).collect();
    assert_eq!(shapes, [[2, 4, 2, 6, 4]; 2]);
}

#[test]
fn terms_of_a_loss_have_names_of_their_own() {
    let model = "inputs: {image: [3, 8, 8]}, body: [conv: {name: boxes, out: 4, kernel: 1}, tokens: {size: 4}, tap: \
                 boxes], outputs: {boxes: boxes}";
    let both = |name: &str| {
        let term = "prediction: boxes, target: box, label: anchor";
        try_step(model, &format!("smooth_l1: {{{term}}}, giou: {{{term}, {name}}}"), "epochs: 1")
    };
    both("name: overlap").unwrap();
    for (name, reason) in
        [("weight: 2", "two terms of the loss are called"), ("name: loss", "a term cannot be called `loss`")]
    {
        let refused = both(name).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains(reason) && refused.contains("r.yaml:4:"), "{refused}");
    }
}

/// A label that is no class is ignored by all terms that read it, or is refused when the step is built.
#[test]
fn terms_agree_on_labels_that_are_no_class() {
    let model = "inputs: {image: [3, 4, 4]}, body: [conv: {name: c, out: $classes, kernel: 1}]";
    let of = |entropy: &str, dice: &str| {
        let loss = format!("softmax_cross_entropy: {{{entropy}}}, softmax_dice: {{{dice}}}");
        try_step(model, &loss, "epochs: 1").map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(of("ignore: 255", "ignore: 255"), Ok(()));
    assert_eq!(of("ignore: 0", ""), Ok(()), "class 0");
    for (entropy, dice) in [("ignore: 255", ""), ("", "ignore: 255"), ("ignore: 255", "ignore: 254")] {
        let refused = of(entropy, dice).unwrap_err();
        assert!(refused.contains("another term of the loss ignores the label 25") && refused.contains("r.yaml:4:"));
    }
    let formula = "softmax_cross_entropy: {ignore: 4000000000}, formulas: {own: {formula: \"logits * label\"}}";
    let model = "inputs: {image: [3, 4, 4]}, body: [flatten, linear: {name: fc, out: $classes}]";
    let refused = try_step(model, formula, "epochs: 1").map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("labels as numbers are below"), "{refused}");
}

#[test]
fn every_operator_of_every_recipe_has_a_known_name() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes");
    let known: HashSet<&str> = Op::names().collect();
    let mut graphs: Vec<(String, Graph)> =
        Library::new([folder]).list().into_iter().map(|(name, _)| (name.clone(), step(&name))).collect();
    let affine =
        "inputs: {image: [3, 8, 8]}, body: [tokens: {}, affine: {name: a}, flatten, linear: {name: fc, out: 10}]";
    graphs.push(("affine".into(), step_of(affine, "softmax_cross_entropy: {}", "epochs: 1")));
    for (name, graph) in graphs {
        for node in &graph.nodes {
            assert!(known.contains(node.op.name()), "{name}: {} ({})", node.op.name(), node.name);
        }
    }
}
