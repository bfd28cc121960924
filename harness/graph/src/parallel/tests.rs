//! An MLP over ranks: what is divided, and which collectives follow.

use super::{Home, MeshAxis, Part, Placement, Plan, Stages, distribute, pipeline};
use crate::{
    DType, Graph, Init, Op, Phase, Scope, TensorType, ValueId, VariableRole, differentiate,
    formula::Formula,
    ops::{Exchange, Map, MatMul, SmoothingOver, SoftmaxCrossEntropy},
    verify,
};

const FORWARD: Scope = Scope { phase: Phase::Forward, origin: None };

/// `[samples, tokens, width]` through `blocks` of two products with a residual, and a loss over 6 classes.
fn mlp(hidden: usize, blocks: usize) -> Graph {
    let mut graph = Graph::default();
    let f32 = |shape: &[usize]| TensorType::plain(shape, DType::F32);
    let mut x = graph.add_input("x", f32(&[2, 4, 8]));
    let label = graph.add_input("label", TensorType::plain([2, 4], DType::U32));
    let product = |graph: &mut Graph, x: ValueId, name: &str, (out, width): (usize, usize)| {
        let (one, zero) = (Init::Constant(1.0), Init::Constant(0.0));
        let weight = graph.add_variable(format!("{name}.weight"), VariableRole::Weight, f32(&[out, width]), one, None);
        let bias = graph.add_variable(format!("{name}.bias"), VariableRole::Bias, f32(&[out]), zero, None);
        let operands = [x, graph.variable(weight).value, graph.variable(bias).value];
        graph.add(&FORWARD, name, MatMul { transpose_a: false, transpose_b: true }, &operands).unwrap()
    };
    for n in 0..blocks {
        let wide = product(&mut graph, x, &format!("up{n}"), (hidden, 8));
        let tanh = Map::over(Formula::define(0, |[x]| [x.tanh()]), &graph.types(&[wide])).unwrap();
        let tanh = graph.add(&FORWARD, format!("tanh{n}"), tanh, &[wide]).unwrap();
        let narrow = product(&mut graph, tanh, &format!("down{n}"), (8, hidden));
        x = graph.add(&FORWARD, format!("add{n}"), crate::ops::Add, &[x, narrow]).unwrap();
    }
    let logits = product(&mut graph, x, "head", (6, 8));
    let entropy = SoftmaxCrossEntropy { smoothing: 0.0, over: SmoothingOver::AllClasses, ignored: None };
    let scope = Scope { phase: Phase::Loss, ..FORWARD };
    let loss = graph.add_node(&scope, "loss", entropy, &[logits, label]).unwrap()[0];
    graph.losses.push(("loss".to_owned(), loss));
    graph
}

/// The exchanges of a graph, as `PHASE NODE`.
fn exchanges(graph: &Graph) -> Vec<String> {
    let communicates = |op: &Op| matches!(op, Op::Collective(op) if op.communicates());
    let nodes = graph.nodes.iter().filter(|node| communicates(&node.op));
    nodes.map(|node| format!("{} {}", node.phase, node.name)).collect()
}

fn differentiated(mut graph: Graph) -> Graph {
    let all: Vec<_> = graph.parameters().map(|(id, _)| id).collect();
    differentiate(&mut graph, &all).unwrap();
    verify(&graph, None).unwrap();
    graph
}

#[test]
fn hidden_units_and_classes_are_divided() {
    let graph = mlp(12, 1);
    let (plan, unsplit) = Plan::units(&graph, 2);
    assert!(unsplit.is_empty());
    let divided = |(id, part): (&crate::VariableId, &Part)| (graph.variable(*id).name.clone(), part.axis);
    let divided: Vec<(String, usize)> = plan.variables.iter().map(divided).collect();
    let expected = [("up0.weight", 0), ("up0.bias", 0), ("down0.weight", 1), ("head.weight", 0), ("head.bias", 0)];
    assert_eq!(divided, expected.map(|(name, axis)| (name.to_owned(), axis)));
    let split = distribute(&graph, MeshAxis::Tensor, 2, &plan).unwrap();
    // The bias behind the sum is whole, and added once.
    let expected = [
        "forward down0/tensor_sum",
        "forward head/tensor_gather",
        "backward add0/tensor_copy/grad",
        // The input needs no gradient.
    ];
    assert_eq!(exchanges(&differentiated(split.graph)), expected);
}

#[test]
fn tokens_between_layers_take_sums_apart() {
    let graph = mlp(12, 1);
    let (plan, _) = Plan::units(&graph, 2);
    let split = distribute(&graph, MeshAxis::Tensor, 2, &Plan { home: Some(Home::Tokens), ..plan }).unwrap();
    let exchanges = exchanges(&differentiated(split.graph));
    assert!(exchanges.contains(&"forward down0/tensor_sum_part".to_owned()), "{exchanges:?}");
    assert!(exchanges.contains(&"forward add0/tensor_gather".to_owned()), "{exchanges:?}");
    assert!(exchanges.contains(&"backward add0/tensor_gather/grad".to_owned()), "{exchanges:?}");
    // The bias of the second product is whole and added to a part of the tokens: its gradient is a sum over the ranks.
    assert!(exchanges.contains(&"backward down0.bias/tensor_copy/grad".to_owned()), "{exchanges:?}");
}

#[test]
fn samples_sum_every_gradient() {
    let graph = mlp(12, 1);
    let split = distribute(&graph, MeshAxis::Data, 2, &Plan::samples(&graph)).unwrap();
    let exchanges = exchanges(&differentiated(split.graph));
    let gradients = exchanges.iter().filter(|name| name.ends_with("data_copy/grad")).count();
    assert_eq!((gradients, exchanges.len()), (6, 7), "and the loss: {exchanges:?}");
}

#[test]
fn what_cannot_be_divided_is_told() {
    let (plan, unsplit) = Plan::units(&mlp(9, 1), 2);
    assert_eq!((unsplit[0].parameter.as_str(), &unsplit[0].runs[..]), ("down0.weight", &[9][..]));
    assert_eq!(plan.variables.len(), 2, "the classes");
}

#[test]
fn parameters_between_their_uses() {
    let graph = mlp(12, 1);
    let plan = Plan::samples(&graph).with_gathered_parameters(&graph, 2);
    let split = distribute(&graph, MeshAxis::Data, 2, &plan).unwrap();
    let own = &split.graph;
    let shapes: Vec<usize> = own.variables.iter().map(|variable| own.ty(variable.value).shape[0]).collect();
    assert_eq!(shapes, [6, 6, 4, 4, 3, 3]);
    let exchanges = exchanges(&differentiated(split.graph));
    assert_eq!(exchanges.iter().filter(|name| name.contains("weight/data_gather")).count(), 6, "{exchanges:?}");
}

#[test]
fn stages_send_one_activation() {
    let graph = mlp(12, 4);
    let piped = pipeline(&graph, Stages { ranks: 2, interleave: 2 }).unwrap();
    let own = differentiated(piped.distributed.graph);
    let exchange =
        |node: &crate::Node| if let Op::Collective(op) = &node.op { Some(op.exchange.clone()) } else { None };
    let sends = |node: &crate::Node| match exchange(node)? {
        Exchange::Send { from, to } => Some((from, to)),
        Exchange::Sum | Exchange::Copy | Exchange::CopyAt(_) | Exchange::Gather(_) | Exchange::GatherCopy(_) => None,
        Exchange::SumPart(_) | Exchange::Own(_) | Exchange::Spread(_) | Exchange::Swap { .. } => None,
    };
    let sends: Vec<(usize, usize)> = own.nodes.iter().filter_map(sends).collect();
    assert_eq!(sends, [(0, 1), (1, 0), (0, 1), (1, 0), (0, 1), (1, 0)]);
    let places = |name: &str| piped.holders[&graph.find_variable(name).unwrap()].iter().copied().collect::<Vec<_>>();
    assert_eq!([places("up0.weight"), places("up1.weight"), places("head.weight")], [[0], [1], [1]]);
    assert!(pipeline(&graph, Stages { ranks: 64, interleave: 1 }).is_err());
}

#[test]
fn placements_are_words() {
    let part = |runs: &[usize]| Placement::Split(Part { axis: 1, runs: runs.to_vec() });
    assert_eq!(part(&[8]).to_string(), "split along axis 1");
    assert_eq!(part(&[4, 4]).to_string(), "split along axis 1 in runs of [4, 4]");
}
