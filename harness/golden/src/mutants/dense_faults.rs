//! Mistakes in networks with an output per pixel: upsampling, heads, losses of maps.

use super::{
    Fault, Mutant,
    graph_faults::{self, forget},
    model_faults::{every, first, nothing},
};
use crate::report::Stage;
use zoo_graph::{
    Graph, Op, VariableRole,
    ops::{Interpolation, Window},
};
use zoo_recipe::{
    Layer, Recipe, ResolvedModel,
    layers::{Add, UpsampleMode},
    schema::{MineOver, Optimizer, WeightInit},
};

pub(super) fn all() -> Vec<Mutant> {
    [model(), losses(), updates()].into_iter().flatten().collect()
}

fn model() -> Vec<Mutant> {
    let mutant = |name, expected, plant| Mutant { name, expected, fault: Fault::Model(plant) };
    vec![
        mutant("layers that are never called are missing", Stage::Init, |m| {
            first(m, |k| matches!(k, Layer::Unused(_)).then(|| *k = nothing()))
        }),
        mutant("transposed convolutions without bias", Stage::Init, |m| {
            every(m, |k| match k {
                Layer::ConvTranspose(conv) => std::mem::take(&mut conv.bias).then_some(()),
                _ => None,
            })
        }),
        mutant("a bias before a normalisation", Stage::Init, |m| {
            first(m, |k| match k {
                Layer::Conv(conv) if !conv.bias => {
                    conv.init = WeightInit { bias: None, ..conv.init.clone() };
                    Some(conv.bias = true)
                }
                _ => None,
            })
        }),
        mutant("bilinear for nearest upsampling", Stage::Forward, |m| {
            first(m, |k| match k {
                Layer::Upsample(up) if up.mode == UpsampleMode::Nearest => Some(up.mode = UpsampleMode::Bilinear),
                _ => None,
            })
        }),
        mutant("the fused maps in the order fine to coarse", Stage::Forward, |m| {
            first(m, |k| match k {
                Layer::Concat(concat) if concat.branches.len() > 1 => Some(concat.branches.reverse()),
                _ => None,
            })
        }),
        mutant("a lateral connection is left out", Stage::Forward, |m| {
            first(m, |k| matches!(k, Layer::Add(_)).then(|| *k = nothing()))
        }),
        mutant("a head without its sigmoid", Stage::Forward, |m| {
            first(m, |k| matches!(k, Layer::Sigmoid(_)).then(|| *k = nothing()))
        }),
        mutant("the step function with k = 10 for 50", Stage::Forward, |m| rescale(m, 10.0)),
        mutant("threshold minus probability", Stage::Forward, |m| rescale(m, -50.0)),
        mutant("probability plus threshold", Stage::Forward, |m| {
            first(m, |k| match k {
                Layer::Subtract(tap) => Some(*k = Layer::Add(Add(tap.0.clone()))),
                _ => None,
            })
        }),
    ]
}

/// Changes the factor of the step function.
fn rescale(model: &mut ResolvedModel, by: f64) -> bool {
    first(model, |k| match k {
        Layer::Scale(scale) if scale.by == 50.0 => Some(scale.by = by),
        _ => None,
    })
}

fn losses() -> Vec<Mutant> {
    let mutant = |name, expected, plant| Mutant { name, expected, fault: Fault::Recipe(plant) };
    vec![
        mutant("hard negatives of each image, not of the batch", Stage::Loss, |r| {
            r.loss.balanced_bce.as_mut().map(|term| term.mine_over = MineOver::Image).is_some()
        }),
        mutant("one negative per positive for three", Stage::Loss, |r| {
            r.loss.balanced_bce.as_mut().map(|term| term.negative_ratio = 1.0).is_some()
        }),
        mutant("cross entropy over one pixel more than there are", Stage::Loss, |r| {
            r.loss.balanced_bce.as_mut().map(|term| term.eps = 1.0).is_some()
        }),
        mutant("weights of cross entropy and distance exchanged", Stage::Loss, |r| {
            let loss = &mut r.loss;
            let pair = loss.balanced_bce.as_mut().zip(loss.masked_l1.as_mut());
            pair.map(|(bce, l1)| std::mem::swap(&mut bce.weight, &mut l1.weight)).is_some()
        }),
        mutant("the threshold map's distance under the text mask", Stage::Loss, |r| {
            let loss = &mut r.loss;
            let pair = loss.balanced_bce.as_ref().zip(loss.masked_l1.as_mut());
            pair.map(|(bce, l1)| l1.mask.clone_from(&bce.mask)).is_some()
        }),
        mutant("Dice under the threshold map's mask", Stage::Loss, |r| {
            let loss = &mut r.loss;
            let pair = loss.masked_l1.as_ref().zip(loss.dice.as_mut());
            pair.map(|(l1, dice)| dice.mask.clone_from(&l1.mask)).is_some()
        }),
        mutant("Dice of the probabilities, not of the binary map", Stage::Loss, |r| {
            let loss = &mut r.loss;
            let pair = loss.balanced_bce.as_ref().zip(loss.dice.as_mut());
            pair.map(|(bce, dice)| dice.prediction.clone_from(&bce.prediction)).is_some()
        }),
        mutant("Dice with one in the denominator", Stage::Loss, |r| {
            r.loss.dice.as_mut().map(|term| term.eps = 1.0).is_some()
        }),
    ]
}

fn updates() -> Vec<Mutant> {
    let recipe =
        |name, expected, plant: fn(&mut Recipe) -> bool| Mutant { name, expected, fault: Fault::Recipe(plant) };
    let graph = |name, expected, plant: fn(&mut Graph) -> bool| Mutant { name, expected, fault: Fault::Graph(plant) };
    vec![
        recipe("Adam's eps 1e-4 for 1e-8", Stage::Update, |r| adam(r, |adam| adam.eps = 1e-4)),
        recipe("Adam with decay", Stage::Update, |r| adam(r, |adam| adam.weight_decay = 1e-4)),
        recipe("Adam's second moment with 0.99 for 0.999", Stage::Update, |r| adam(r, |adam| adam.beta2 = 0.99)),
        recipe("Adam's first moment with 0.8 for 0.9", Stage::Update, |r| adam(r, |adam| adam.beta1 = 0.8)),
        graph("Adam's moments are forgotten after each step", Stage::Update, |g| {
            forget(g, |role| matches!(role, VariableRole::Slot { slot: "exp_avg" | "exp_avg_sq", .. }))
        }),
        graph("a transposed convolution's filter gradient takes another window", Stage::Backward, |g| {
            graph_faults::first(g, |n| match &mut n.op {
                Op::Conv2DBackpropFilter(op) if op.conv.window.kernel == [2, 2] => {
                    Some(op.conv.window = Window { pad: [1, 1, 1, 1], dilation: [3, 3], ..op.conv.window })
                }
                _ => None,
            })
        }),
        graph("upsampling's gradient is that of the other interpolation", Stage::Backward, |g| {
            graph_faults::first(g, |n| match &mut n.op {
                Op::ResizeGrad(op) => Some(op.resize.interpolation = Interpolation::Bilinear { align_corners: false }),
                _ => None,
            })
        }),
    ]
}

fn adam(recipe: &mut Recipe, change: fn(&mut zoo_recipe::schema::Adam)) -> bool {
    match &mut recipe.optimizer {
        Optimizer::Adam(adam) => {
            change(adam);
            true
        }
        _ => false,
    }
}
