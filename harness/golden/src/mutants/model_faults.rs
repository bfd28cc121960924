//! Mistakes in the architecture and its initialisers.

use super::{Fault, Mutant, shift};
use crate::report::Stage;
use zoo_recipe::{
    LayerKind, ResolvedLayer, ResolvedModel,
    resolve::AvgPool,
    schema::{FanMode, Init},
};

pub(super) fn all() -> Vec<Mutant> {
    let mutant = |name, expected, plant| Mutant { name, expected, fault: Fault::Model(plant) };
    vec![
        mutant("initialiser by fan-in, not fan-out", Stage::Init, |m| {
            every(m, |k| match k {
                LayerKind::Conv(conv) => match &mut conv.weight_init {
                    Init::KaimingNormal(init) if init.mode == FanMode::FanOut => Some(init.mode = FanMode::FanIn),
                    _ => None,
                },
                _ => None,
            })
        }),
        mutant("uniform weights for normal ones of the same deviation", Stage::Init, |m| {
            every(m, |k| match k {
                LayerKind::Conv(conv) => match conv.weight_init.clone() {
                    Init::KaimingNormal(init) => Some(conv.weight_init = Init::KaimingUniform(init)),
                    Init::KaimingUniform(init) => Some(conv.weight_init = Init::KaimingNormal(init)),
                    _ => None,
                },
                _ => None,
            })
        }),
        mutant("dense layers start at a fixed deviation of 0.02", Stage::Init, |m| {
            every(m, |k| match k {
                LayerKind::Linear(linear) => {
                    Some(linear.weight_init = Init::Normal(zoo_recipe::schema::NormalInit { std: 0.02 }))
                }
                _ => None,
            })
        }),
        mutant("every scale starts at zero", Stage::Init, |m| {
            every(m, |k| match k {
                LayerKind::BatchNorm(bn) => Some(bn.gamma_init = 0.0),
                _ => None,
            })
        }),
        mutant("one class too many", Stage::Init, |m| {
            last(m, |k| match k {
                LayerKind::Linear(linear) => Some(linear.out += 1),
                _ => None,
            })
        }),
        mutant("the last layer has no bias", Stage::Init, |m| {
            last(m, |k| match k {
                LayerKind::Linear(linear) => linear.bias_init.take().map(|_| ()),
                _ => None,
            })
        }),
        mutant("eps of the normalisation 1e-3", Stage::Forward, |m| {
            every(m, |k| match k {
                LayerKind::BatchNorm(bn) if bn.eps != 1e-3 => Some(bn.eps = 1e-3),
                _ => None,
            })
        }),
        mutant("padding all after, as TensorFlow pads at stride 2", Stage::Forward, |m| {
            first(m, |k| match k {
                LayerKind::Conv(conv) => shift(&mut conv.pad),
                LayerKind::Pad(pad) => shift(pad),
                _ => None,
            })
        }),
        mutant("stride on the 1x1 convolution (v1, not v1.5)", Stage::Forward, |m| {
            every(m, |k| match k {
                LayerKind::Residual { main, .. } => move_stride(main),
                _ => None,
            })
        }),
        mutant("dilation 2 on a 3x3 convolution", Stage::Forward, |m| {
            first(m, |k| match k {
                LayerKind::Conv(conv) if conv.kernel == [3, 3] && conv.stride == [1, 1] => {
                    conv.pad = conv.pad.map(|p| p + 1);
                    Some(conv.dilation = [2, 2])
                }
                _ => None,
            })
        }),
        mutant("average pool for max pool", Stage::Forward, |m| {
            first(m, |k| match k {
                LayerKind::MaxPool(p) => {
                    let pool = AvgPool {
                        kernel: p.kernel,
                        stride: p.stride,
                        pad: p.pad,
                        ceil_mode: p.ceil_mode,
                        count_include_pad: false,
                    };
                    Some(*k = LayerKind::AvgPool(pool))
                }
                _ => None,
            })
        }),
        mutant("pool in ceil mode for a padded one", Stage::Forward, |m| {
            first(m, |k| match k {
                LayerKind::MaxPool(p) if p.pad[0] > 0 => {
                    p.pad = [0; 4];
                    Some(p.ceil_mode = true)
                }
                _ => None,
            })
        }),
        mutant("a ReLU is missing", Stage::Forward, |m| {
            first(m, |k| matches!(k, LayerKind::Relu).then(|| *k = LayerKind::Sequential(Vec::new())))
        }),
        mutant("the ReLU after the last layer is missing", Stage::Forward, |m| {
            let last_is_relu = m.body.last().is_some_and(|l| matches!(l.kind, LayerKind::Relu));
            last_is_relu && m.body.pop().is_some()
        }),
        mutant("momentum of running statistics in TensorFlow's sense", Stage::Update, |m| {
            every(m, |k| match k {
                LayerKind::BatchNorm(bn) => Some(bn.momentum = 1.0 - bn.momentum),
                _ => None,
            })
        }),
    ]
}

/// Moves a stride one convolution forward.
fn move_stride(main: &mut [ResolvedLayer]) -> Option<()> {
    let mut convs = main.iter_mut().filter_map(|l| match &mut l.kind {
        LayerKind::Conv(conv) => Some(conv),
        _ => None,
    });
    let (one, three) = (convs.next()?, convs.next()?);
    (one.kernel == [1, 1] && three.stride != [1, 1]).then(|| std::mem::swap(&mut one.stride, &mut three.stride))
}

/// Walks all layers, inner ones included, until `change` has done something and `once` says to stop.
fn walk(layers: &mut [ResolvedLayer], once: bool, change: &mut dyn FnMut(&mut LayerKind) -> Option<()>) -> bool {
    let mut changed = false;
    for layer in layers {
        changed |= change(&mut layer.kind).is_some();
        if changed && once {
            return true;
        }
        changed |= match &mut layer.kind {
            LayerKind::Sequential(body) => walk(body, once, change),
            LayerKind::Residual { main, shortcut } => {
                walk(main, once, change) || (!once && walk(shortcut, once, change))
            }
            LayerKind::Concat { branches, .. } => {
                let mut found = false;
                for branch in branches {
                    if !(found && once) {
                        found |= walk(branch, once, change);
                    }
                }
                found
            }
            _ => false,
        };
        if changed && once {
            return true;
        }
    }
    changed
}

pub(super) fn first(model: &mut ResolvedModel, mut change: impl FnMut(&mut LayerKind) -> Option<()>) -> bool {
    walk(&mut model.body, true, &mut change)
}

pub(super) fn every(model: &mut ResolvedModel, mut change: impl FnMut(&mut LayerKind) -> Option<()>) -> bool {
    walk(&mut model.body, false, &mut change)
}

/// Changes the last layer of those that `change` knows.
fn last(model: &mut ResolvedModel, change: fn(&mut LayerKind) -> Option<()>) -> bool {
    let mut count = 0;
    let mut probe = model.clone();
    walk(&mut probe.body, false, &mut |k| change(k).map(|()| count += 1));
    let mut seen = 0;
    let mut only_last = |k: &mut LayerKind| {
        change(&mut k.clone())?;
        seen += 1;
        if seen == count { change(k) } else { None }
    };
    count > 0 && walk(&mut model.body, false, &mut only_last)
}
