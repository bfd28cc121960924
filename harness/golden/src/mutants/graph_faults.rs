//! Mistakes in operators, gradients and updates.

use super::{Fault, Mutant, shift};
use crate::report::Stage;
use zoo_graph::{
    Graph, Node, Op, Phase, ValueId, Variable, VariableRole,
    ops::{AvgPool, AvgPoolGrad, BnInferGrad, Scale},
};
use zoo_recipe::schema::Init;

pub(super) fn all() -> Vec<Mutant> {
    let mutant = |name, expected, plant| Mutant { name, expected, fault: Fault::Graph(plant) };
    vec![
        mutant("running variances start at zero", Stage::Init, |g| {
            let variances = g.variables.iter_mut().filter(|v| v.role == VariableRole::RunningVar);
            variances.map(|v| v.init = Init::Constant(0.0)).count() > 0
        }),
        mutant("momentum starts at one", Stage::Init, |g| {
            let momentum = g.variables.iter_mut().filter(|v| is_momentum(&v.role));
            momentum.map(|v| v.init = Init::Constant(1.0)).count() > 0
        }),
        mutant("gradient of the sum over the batch, not of the mean", Stage::Backward, |g| {
            let batch = g.inputs.first().and_then(|i| g.ty(i.value).shape.first().copied()).unwrap_or(1) as f64;
            // Tables of positions are filled in the forward pass.
            first(g, |n| match &mut n.op {
                Op::Fill(fill) if n.phase != Phase::Forward && fill.value != batch => Some(fill.value = batch),
                _ => None,
            })
        }),
        mutant("a ReLU passes every gradient", Stage::Backward, |g| {
            first(g, |n| matches!(n.op, Op::ReluGrad(_)).then(|| pass(n)))
        }),
        mutant("one consumer's gradient overwrites another's", Stage::Backward, |g| {
            every(g, |n| (matches!(n.op, Op::Add(_)) && n.phase == Phase::Backward).then(|| pass(n)))
        }),
        mutant("a max pool's gradient is spread over the window", Stage::Backward, |g| {
            let shapes: Vec<_> = g.values.iter().map(|v| v.ty.shape.clone()).collect();
            first(g, |n| match &n.op {
                Op::MaxPoolGrad(pool) => {
                    let pool = AvgPool { window: pool.window, count_include_pad: true };
                    n.op = AvgPoolGrad { pool, input: shapes[n.inputs[0].0].clone() }.into();
                    n.inputs = vec![n.inputs[2]];
                    Some(())
                }
                _ => None,
            })
        }),
        mutant("a normalisation's gradient forgets its statistics", Stage::Backward, |g| {
            first(g, |n| match &n.op {
                Op::BnTrainingReduceGrad(op) => {
                    let op = BnInferGrad { eps: op.eps };
                    (n.op, n.inputs) = (op.into(), vec![n.inputs[0], n.inputs[4], n.inputs[3]]);
                    Some(())
                }
                _ => None,
            })
        }),
        mutant("an input gradient is shifted by a pixel", Stage::Backward, |g| {
            first(g, |n| match &mut n.op {
                Op::Conv2DBackpropInput(op) => shift(&mut op.conv.window.pad),
                _ => None,
            })
        }),
        mutant("a convolution's filter gradient is shifted by a pixel", Stage::Backward, |g| {
            first(g, |n| match &mut n.op {
                Op::Conv2DBackpropFilter(op) => shift(&mut op.conv.window.pad),
                _ => None,
            })
        }),
        mutant("running variance from n, not n - 1", Stage::Update, |g| {
            every(g, |n| match &mut n.op {
                Op::BnRunningUpdate(op) => Some(op.count = usize::MAX >> 12),
                _ => None,
            })
        }),
        mutant("running statistics are not kept", Stage::Update, |g| forget(g, VariableRole::is_statistic)),
        mutant("biases learn twice as fast", Stage::Update, |g| {
            let is_bias = |v: &&Variable| matches!(v.role, VariableRole::Bias | VariableRole::NormBias);
            let biases: Vec<ValueId> = g.variables.iter().filter(is_bias).map(|v| v.value).collect();
            every(g, |n| {
                let group = n.op.group().filter(|_| biases.contains(&n.inputs[0]));
                group.map(|group| group.lr_scale = 2.0)
            })
        }),
        mutant("one parameter is frozen", Stage::Update, |g| {
            let weight = g.variables.iter_mut().find(|v| v.role == VariableRole::Weight && v.next.is_some());
            weight.map(|w| w.next = None).is_some()
        }),
        mutant("momentum is forgotten after each step", Stage::Update, |g| forget(g, is_momentum)),
        mutant("learning rate off by one per cent", Stage::Update, |g| {
            every(g, |n| n.op.group().map(|group| group.lr_scale = 1.01))
        }),
    ]
}

fn is_momentum(role: &VariableRole) -> bool {
    matches!(role, VariableRole::Slot { slot: "momentum_buffer", .. })
}

/// Variables of the roles are not updated.
pub(super) fn forget(graph: &mut Graph, is_one: fn(&VariableRole) -> bool) -> bool {
    graph.variables.iter_mut().filter(|v| is_one(&v.role)).map(|v| v.next = None).count() > 0
}

/// A node passes its first operand.
fn pass(node: &mut Node) {
    node.op = Scale { factor: 1.0 }.into();
    node.inputs.truncate(1);
}

/// Changes the first node that `change` accepts.
pub(super) fn first(graph: &mut Graph, change: impl FnMut(&mut Node) -> Option<()>) -> bool {
    graph.nodes.iter_mut().find_map(change).is_some()
}

/// Changes all nodes that `change` accepts.
fn every(graph: &mut Graph, change: impl FnMut(&mut Node) -> Option<()>) -> bool {
    graph.nodes.iter_mut().filter_map(change).count() > 0
}
