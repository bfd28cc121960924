//! Mistakes in siamese trackers: unpadded strides, shared parts, losses of anchors and masks, freezing, clipping.

use super::{
    Fault, Mutant, graph_faults,
    model_faults::{self, every, first, nothing},
    shift,
};
use crate::report::Stage;
use zoo_graph::{Graph, Node, NodeId, Op, Scope, Source, ValueId, Variable, VariableRole, ops::WeightedSum};
use zoo_recipe::{
    Layer, Recipe, ResolvedLayer, ResolvedModel,
    layers::{Conv, Description, Relu},
    schema::{Clip, Padding, Pair, Statistics},
};

pub(super) fn all() -> Vec<Mutant> {
    [model(), recipe(), graph()].into_iter().flatten().collect()
}

/// Changes the first convolution that `change` accepts.
fn conv(model: &mut ResolvedModel, mut change: impl FnMut(&mut Conv) -> bool) -> bool {
    first(model, |k| change(model_faults::conv(k)?).then_some(()))
}

/// Whether a convolution has a square kernel of this size and no padding.
fn unpadded(conv: &Conv, kernel: usize) -> bool {
    conv.kernel == Pair([kernel; 2]) && conv.pad == Padding([0; 4])
}

/// Whether the model calls one of its parts twice.
fn siamese(model: &mut ResolvedModel) -> bool {
    fn again(layers: &[ResolvedLayer]) -> bool {
        layers.iter().any(|layer| match layer.kind.describe() {
            Description::Again(_) => true,
            inside => inside.inside().into_iter().any(again),
        })
    }
    again(&model.body)
}

/// Applies the change of a part to its second call.
fn follow(model: &mut ResolvedModel) -> bool {
    let body = model.body.clone();
    fn find<'a>(layers: &'a [ResolvedLayer], name: &str) -> Option<&'a ResolvedLayer> {
        layers.iter().find_map(|layer| match layer.name.as_deref() == Some(name) {
            true => Some(layer),
            false => layer.kind.describe().inside().into_iter().find_map(|inside| find(inside, name)),
        })
    }
    for layer in &mut model.body {
        if let Layer::Again(again) = &mut layer.kind {
            for module in &mut again.called.layers {
                let first = module.name.as_deref().and_then(|name| find(&body, name));
                *module = first.unwrap_or(module).clone();
            }
        }
    }
    true
}

fn model() -> Vec<Mutant> {
    let mutant = |name, expected, plant| Mutant { name, expected, fault: Fault::Model(plant) };
    vec![
        mutant("1x1 for the 3x3 shortcut", Stage::Init, |m| {
            siamese(m)
                && conv(m, |c| {
                    let found = unpadded(c, 3) && c.stride == Pair([2, 2]) && c.out.0 > 100;
                    found.then(|| (c.kernel, c.pad) = (Pair([1, 1]), Padding([0; 4]))).is_some()
                })
                && follow(m)
        }),
        mutant("the stem is padded by 3", Stage::Forward, |m| {
            siamese(m) && conv(m, |c| unpadded(c, 7).then(|| c.pad = Padding([3; 4])).is_some()) && follow(m)
        }),
        mutant("a 3x3 convolution with stride 2 is padded by 1", Stage::Forward, |m| {
            let padded =
                |c: &mut Conv| (unpadded(c, 3) && c.stride == Pair([2, 2])).then(|| c.pad = Padding([1; 4])).is_some();
            siamese(m) && conv(m, padded) && follow(m)
        }),
        mutant("no dilation in the last stage", Stage::Forward, |m| {
            let changed = every(m, |k| match k {
                Layer::Conv(c) if c.dilation == Pair([2, 2]) => {
                    Some((c.dilation, c.pad) = (Pair([1, 1]), Padding([1; 4])))
                }
                _ => None,
            });
            changed && follow(m)
        }),
        mutant("dilation 2 in the first block of the last stage too", Stage::Forward, |m| {
            let mut before = None;
            // The block before the first dilated one has the only padded 3x3 convolution of its width.
            every(m, |k| match k {
                Layer::Conv(c) if c.kernel == Pair([3, 3]) && c.dilation == Pair([2, 2]) => {
                    before.get_or_insert(c.out.0);
                    None
                }
                _ => None,
            });
            let width = before.unwrap_or(0);
            let undilated = |c: &mut Conv| {
                let found = c.kernel == Pair([3, 3])
                    && c.out.0 == width
                    && c.pad == Padding([1; 4])
                    && c.stride == Pair([1, 1]);
                found.then(|| (c.dilation, c.pad) = (Pair([2, 2]), Padding([2; 4]))).is_some()
            };
            conv(m, undilated) && follow(m)
        }),
        mutant("a ReLU after the reduction", Stage::Forward, |m| {
            let mut done = false;
            let found = first(m, |k| match k {
                Layer::Sequential(sequential)
                    if !done && matches!(sequential.body.layers.last().map(|l| &l.kind), Some(Layer::Crop(_))) =>
                {
                    let body = &mut sequential.body.layers;
                    let relu = ResolvedLayer { name: None, kind: Layer::Relu(Relu {}), ..body[0].clone() };
                    body.insert(1, relu);
                    done = true;
                    Some(())
                }
                _ => None,
            });
            found && follow(m)
        }),
        mutant("the template keeps its border", Stage::Forward, |m| {
            siamese(m) && first(m, |k| matches!(k, Layer::Crop(_)).then(|| *k = nothing())) && follow(m)
        }),
        mutant("the search loses its border too", Stage::Forward, |m| {
            // From 160 pixels on, the search is too wide to be cropped.
            if m.inputs.values().filter_map(|input| input.image()).all(|[_, height, _]| height < 160) {
                return false;
            }
            let widened = first(m, |k| match k {
                Layer::Crop(crop) => crop.narrower_than.take().map(|_| ()),
                _ => None,
            });
            widened && follow(m)
        }),
        mutant("heads padded by 1", Stage::Forward, |m| {
            siamese(m)
                && conv(m, |c| {
                    let found = unpadded(c, 3) && c.stride == Pair([1, 1]);
                    found.then(|| c.pad = Padding([1; 4])).is_some()
                })
        }),
    ]
}

fn recipe() -> Vec<Mutant> {
    let mutant = |name, expected, plant| Mutant { name, expected, fault: Fault::Recipe(plant) };
    vec![
        mutant("the backbone on stored statistics", Stage::Forward, |r| {
            parts(r, |part| part.statistics = Statistics::Stored)
        }),
        mutant("corners of pixels aligned, not their middles", Stage::Loss, |r| {
            // Visible if masks are enlarged; rows of logits are not.
            let enlarged = r.golden.as_ref().is_some_and(|golden| golden.parts.is_some());
            enlarged && r.loss.mask_soft_margin.as_mut().map(|term| term.align_corners = false).is_some()
        }),
        mutant("the mask's weight 32 for 36", Stage::Loss, |r| {
            r.loss.mask_soft_margin.as_mut().map(|term| term.weight = 32.0).is_some()
        }),
        mutant("boxes weigh 1 for 1.2", Stage::Loss, |r| {
            r.loss.weighted_l1.as_mut().filter(|term| term.weight == 1.2).map(|term| term.weight = 1.0).is_some()
        }),
        mutant("no clipping", Stage::Update, |r| !std::mem::take(&mut r.gradients.clip).is_empty()),
        mutant("the norm clipped to a tenth", Stage::Update, |r| match r.gradients.clip.first_mut() {
            Some(Clip::Norm(bound)) => {
                *bound *= 0.1;
                true
            }
            Some(Clip::Value(_)) | None => false,
        }),
        mutant("clipping by value for clipping by norm", Stage::Update, |r| clip(r, Clip::Value(1e-3))),
        mutant("the backbone learns as fast as the heads", Stage::Update, |r| parts(r, |part| part.lr = 1.0)),
        mutant("the backbone is frozen", Stage::Backward, |r| parts(r, |part| part.trained = false)),
        mutant("frozen gradients are not counted in the norm", Stage::Backward, |r| {
            let leaking = r.train.parts.iter_mut().filter(|part| part.leaks);
            leaking.map(|part| part.leaks = false).count() > 0
        }),
    ]
}

fn parts(recipe: &mut Recipe, change: fn(&mut zoo_recipe::schema::Part)) -> bool {
    let parts = recipe.golden.as_mut().and_then(|golden| golden.parts.as_mut());
    parts.and_then(|parts| parts.first_mut()).map(change).is_some()
}

fn clip(recipe: &mut Recipe, bound: Clip) -> bool {
    recipe.gradients.clip.first_mut().map(|clip| *clip = bound).is_some()
}

fn graph() -> Vec<Mutant> {
    let mutant = |name, expected, plant| Mutant { name, expected, fault: Fault::Graph(plant) };
    vec![
        mutant("mask windows shifted by a pixel", Stage::Loss, |g| {
            graph_faults::first(g, |n| match &mut n.op {
                Op::ExtractPatches(op) => shift(&mut op.window.pad),
                _ => None,
            })
        }),
        mutant("classes judged by the label of boxes", Stage::Loss, |g| {
            let input = |name: &str| g.inputs.iter().find(|i| i.name == name).map(|i| i.value);
            let Some((classes, boxes)) = input("label_cls").zip(input("label_loc_weight")) else { return false };
            let read = g.nodes.iter_mut().flat_map(|n| &mut n.inputs).filter(|value| **value == classes);
            read.map(|value| *value = boxes).count() > 0
        }),
        mutant("the second call of the backbone gives no gradient", Stage::Backward, |g| {
            let calls: Vec<String> = g.taps.iter().filter(|t| t.call > 0).map(|t| t.module.clone()).collect();
            let is_shared = |v: &Variable| {
                matches!(v.role, VariableRole::Weight | VariableRole::NormWeight)
                    && calls.iter().any(|c| v.name.starts_with(&format!("{c}.")))
            };
            let gradients = g.gradients.iter().filter(|(id, _)| is_shared(g.variable(*id)));
            let gradients: Vec<ValueId> = gradients.map(|(_, gradient)| *gradient).collect();
            let shared = |n: &&mut Node| matches!(n.op, Op::Add(_)) && gradients.contains(&n.outputs[0]);
            g.nodes.iter_mut().find(shared).map(|n| n.inputs[1] = n.inputs[0]).is_some()
        }),
        mutant("running statistics forget the first call", Stage::Update, |g| {
            let starts: Vec<(ValueId, ValueId)> =
                g.variables.iter().filter_map(|v| v.role.is_statistic().then_some((v.value, v.next?))).collect();
            let mut found = false;
            for (start, next) in starts {
                let Source::Node(NodeId(n), result) = g.value(next).source else { continue };
                found |= g.nodes[n].inputs[result] != start;
                g.nodes[n].inputs[result] = start;
            }
            found
        }),
        mutant("gradients are clipped after decay", Stage::Update, clip_after_decay),
    ]
}

/// Adds each parameter's decay to its gradient before the gradient is clipped, and not after it.
fn clip_after_decay(graph: &mut Graph) -> bool {
    let bounds = |n: &Node| matches!(n.op, Op::ClipByGlobalNorm(_));
    let clips: Vec<(usize, usize)> = graph
        .nodes
        .iter()
        .enumerate()
        .filter(|(_, n)| matches!(n.op, Op::ScaleBy(_)) && graph.producer(n.inputs[1]).is_some_and(bounds))
        .filter_map(|(place, n)| {
            let reads = |m: &Node| graph.optimized(m).is_some_and(|update| update.gradient == n.outputs[0]);
            Some((place, graph.nodes.iter().position(reads)?))
        })
        .collect();
    for (place, update) in clips.iter().rev() {
        let parameter = graph.nodes[*update].inputs[0];
        let Some(group) = graph.nodes[*update].op.group() else { return false };
        let weights = vec![1.0, std::mem::take(&mut group.weight_decay)];
        let clip = &graph.nodes[*place];
        let scope = Scope { phase: clip.phase, origin: clip.origin.clone() };
        let (name, gradient) = (format!("{}/decay", clip.name), clip.inputs[0]);
        let Ok(sum) = graph.add(&scope, name, WeightedSum { weights }, &[gradient, parameter]) else { return false };
        let Some(node) = graph.nodes.pop() else { return false };
        graph.nodes.insert(*place, node);
        graph.nodes[*place + 1].inputs[0] = sum;
    }
    for n in 0..graph.nodes.len() {
        for (i, v) in graph.nodes[n].outputs.clone().into_iter().enumerate() {
            graph.values[v.0].source = Source::Node(NodeId(n), i);
        }
    }
    !clips.is_empty()
}
