//! Mistakes in the architecture and its initialisers.

use super::{Fault, Mutant, shift};
use crate::report::Stage;
use zoo_recipe::{
    Layer, ResolvedLayer, ResolvedModel,
    layers::{AvgPool, Bn, Conv, Linear, Sequential},
    schema::{FanMode, Init, NormalInit, Padding, Pair},
};

pub(super) fn all() -> Vec<Mutant> {
    let mutant = |name, expected, plant| Mutant { name, expected, fault: Fault::Model(plant) };
    vec![
        mutant("initialiser by fan-in, not fan-out", Stage::Init, |m| {
            every(m, |k| match &mut conv(k)?.init.weight {
                Some(Init::KaimingNormal(init)) if init.mode == FanMode::FanOut => Some(init.mode = FanMode::FanIn),
                _ => None,
            })
        }),
        mutant("uniform weights for normal ones of the same deviation", Stage::Init, |m| {
            every(m, |k| {
                let init = &mut conv(k)?.init;
                init.weight = Some(match init.weight() {
                    Init::KaimingNormal(rule) => Init::KaimingUniform(rule),
                    Init::KaimingUniform(rule) => Init::KaimingNormal(rule),
                    _ => return None,
                });
                Some(())
            })
        }),
        mutant("dense layers start at a fixed deviation of 0.05", Stage::Init, |m| {
            every(m, |k| Some(linear(k)?.init.weight = Some(Init::Normal(NormalInit { std: 0.05 }))))
        }),
        mutant("every scale starts at zero", Stage::Init, |m| every(m, |k| Some(bn(k)?.init.gamma = Some(0.0)))),
        mutant("one class too many", Stage::Init, |m| last(m, |k| Some(linear(k)?.out.0 += 1))),
        mutant("the last layer has no bias", Stage::Init, |m| {
            last(m, |k| std::mem::take(&mut linear(k)?.bias).then_some(()))
        }),
        mutant("eps of the normalisation 1e-3", Stage::Forward, |m| {
            every(m, |k| (std::mem::replace(&mut bn(k)?.eps, 1e-3) != 1e-3).then_some(()))
        }),
        mutant("padding all after, as TensorFlow pads at stride 2", Stage::Forward, |m| {
            first(m, |k| match k {
                Layer::Conv(conv) => shift(&mut conv.pad.0),
                Layer::Pad(pad) => shift(&mut pad.size.0),
                _ => None,
            })
        }),
        mutant("stride on the 1x1 convolution (v1, not v1.5)", Stage::Forward, |m| {
            every(m, |k| match k {
                Layer::Residual(residual) => move_stride(&mut residual.main.layers),
                _ => None,
            })
        }),
        mutant("dilation 2 on a 3x3 convolution", Stage::Forward, |m| {
            first(m, |k| match k {
                Layer::Conv(conv) if conv.kernel == Pair([3, 3]) && conv.stride == Pair([1, 1]) => {
                    conv.pad.0 = conv.pad.0.map(|p| p + 1);
                    Some(conv.dilation = Pair([2, 2]))
                }
                _ => None,
            })
        }),
        mutant("average pool for max pool", Stage::Forward, |m| {
            first(m, |k| match k {
                Layer::MaxPool(p) => {
                    let pool = AvgPool {
                        kernel: p.kernel,
                        stride: p.stride,
                        pad: p.pad,
                        ceil_mode: p.ceil_mode,
                        count_include_pad: false,
                    };
                    Some(*k = Layer::AvgPool(pool))
                }
                _ => None,
            })
        }),
        mutant("pool in ceil mode for a padded one", Stage::Forward, |m| {
            first(m, |k| match k {
                Layer::MaxPool(p) if p.pad.0[0] > 0 => {
                    p.pad = Padding::default();
                    Some(p.ceil_mode = true)
                }
                _ => None,
            })
        }),
        mutant("a ReLU is missing", Stage::Forward, |m| {
            first(m, |k| matches!(k, Layer::Relu(_)).then(|| *k = nothing()))
        }),
        mutant("the ReLU after the last layer is missing", Stage::Forward, |m| {
            let last_is_relu = m.body.last().is_some_and(|l| matches!(l.kind, Layer::Relu(_)));
            last_is_relu && m.body.pop().is_some()
        }),
        mutant("momentum of running statistics in TensorFlow's sense", Stage::Update, |m| {
            every(m, |k| bn(k).map(|bn| bn.momentum = 1.0 - bn.momentum))
        }),
    ]
}

pub(super) fn conv(layer: &mut Layer) -> Option<&mut Conv> {
    if let Layer::Conv(conv) = layer { Some(conv) } else { None }
}

fn linear(layer: &mut Layer) -> Option<&mut Linear> {
    if let Layer::Linear(linear) = layer { Some(linear) } else { None }
}

fn bn(layer: &mut Layer) -> Option<&mut Bn> {
    if let Layer::Bn(bn) = layer { Some(bn) } else { None }
}

/// Replacement for a removed layer.
pub(super) fn nothing() -> Layer {
    Layer::Sequential(Sequential { body: Default::default(), returns: Default::default() })
}

/// Moves a stride to the next convolution.
fn move_stride(main: &mut [ResolvedLayer]) -> Option<()> {
    let mut convs = main.iter_mut().filter_map(|l| conv(&mut l.kind));
    let (one, three) = (convs.next()?, convs.next()?);
    (one.kernel == Pair([1, 1]) && three.stride != Pair([1, 1]))
        .then(|| std::mem::swap(&mut one.stride, &mut three.stride))
}

/// Walks all layers, including inner ones. If `once` is set, stops after the first change.
fn walk(layers: &mut [ResolvedLayer], once: bool, change: &mut dyn FnMut(&mut Layer) -> Option<()>) -> bool {
    let mut changed = false;
    for layer in layers {
        changed |= change(&mut layer.kind).is_some();
        for body in layer.kind.bodies_mut() {
            if !(changed && once) {
                changed |= walk(&mut body.layers, once, change);
            }
        }
        if changed && once {
            return true;
        }
    }
    changed
}

pub(super) fn first(model: &mut ResolvedModel, mut change: impl FnMut(&mut Layer) -> Option<()>) -> bool {
    walk(&mut model.body, true, &mut change)
}

pub(super) fn every(model: &mut ResolvedModel, mut change: impl FnMut(&mut Layer) -> Option<()>) -> bool {
    walk(&mut model.body, false, &mut change)
}

/// Changes the last layer that `change` accepts.
fn last(model: &mut ResolvedModel, change: fn(&mut Layer) -> Option<()>) -> bool {
    let mut count = 0;
    let mut probe = model.clone();
    walk(&mut probe.body, false, &mut |k| change(k).map(|()| count += 1));
    let mut seen = 0;
    let mut only_last = |k: &mut Layer| {
        change(&mut k.clone())?;
        seen += 1;
        if seen == count { change(k) } else { None }
    };
    count > 0 && walk(&mut model.body, false, &mut only_last)
}
