//! Mistakes in preprocessing, schedule, loss and optimizer.

use super::{Fault, Mutant};
use crate::report::Stage;
use zoo_recipe::Recipe;
use zoo_recipe::schema::{
    ChannelOrder, Filter, L2Over, Optimizer, Schedule, Sgd, SmoothingOver, SoftmaxCrossEntropy, Step, WarmupCount,
};

pub(super) fn all() -> Vec<Mutant> {
    let mutant = |name, expected, plant| Mutant { name, expected, fault: Fault::Recipe(plant) };
    vec![
        mutant("mean and deviation of another data set", Stage::Preprocess, |r| {
            eval_steps(r, |s| match s {
                Step::Normalize(n) => Some(n.mean = n.mean.map(|m| m + 0.01 * n.std[0])),
                _ => None,
            })
        }),
        mutant("channels in the other order", Stage::Preprocess, |r| {
            eval_steps(r, |s| match s {
                Step::Normalize(n) => Some(
                    n.channels = match n.channels {
                        ChannelOrder::Rgb => ChannelOrder::Bgr,
                        ChannelOrder::Bgr => ChannelOrder::Rgb,
                    },
                ),
                _ => None,
            })
        }),
        mutant("shorter side 232 for 256", Stage::Preprocess, |r| {
            eval_steps(r, |s| match s {
                Step::Resize(resize) if resize.shorter == 256 => Some(resize.shorter = 232),
                _ => None,
            })
        }),
        mutant("bicubic for bilinear", Stage::Preprocess, |r| {
            eval_steps(r, |s| match s {
                Step::Resize(resize) if resize.filter == Filter::Bilinear => Some(resize.filter = Filter::Bicubic),
                _ => None,
            })
        }),
        mutant("base learning rate doubled", Stage::Schedule, |r| {
            *r.schedule.peak_lr_mut() *= 2.0;
            true
        }),
        mutant("no warm-up", Stage::Schedule, |r| match &mut r.schedule {
            Schedule::Cosine(cosine) => cosine.warmup.take().is_some(),
            _ => false,
        }),
        mutant("warm-up off by one step", Stage::Schedule, |r| match &mut r.schedule {
            Schedule::Cosine(cosine) => {
                let other =
                    |count| if count == WarmupCount::FromOne { WarmupCount::FromZero } else { WarmupCount::FromOne };
                cosine.warmup.as_mut().map(|w| w.count = other(w.count)).is_some()
            }
            _ => false,
        }),
        mutant("an epoch less", Stage::Schedule, |r| {
            r.train.epochs -= 1;
            true
        }),
        mutant("no label smoothing", Stage::Loss, |r| smoothing(r, |loss| loss.label_smoothing = 0.0)),
        mutant("smoothing over the other classes", Stage::Loss, |r| {
            smoothing(r, |loss| loss.smoothing_over = SmoothingOver::OtherClasses)
        }),
        mutant("L2 loss without the half", Stage::Loss, |r| r.loss.l2.as_mut().map(|l2| l2.weight *= 2.0).is_some()),
        mutant("L2 loss of weights only", Stage::Loss, |r| {
            r.loss.l2.as_mut().map(|l2| l2.over = L2Over::Weights).is_some()
        }),
        mutant("L2 loss left out", Stage::Loss, |r| r.loss.l2.take().is_some()),
        mutant("Nesterov's momentum for plain, or the other way round", Stage::Update, |r| {
            sgd(r).map(|sgd| sgd.nesterov = !sgd.nesterov).is_some()
        }),
        mutant("decay on everything", Stage::Update, |r| {
            let (_, no_decay, _) = r.optimizer.decay_mut();
            let exempt = !no_decay.is_empty();
            no_decay.clear();
            exempt
        }),
        mutant("no decay on normalisations and biases", Stage::Update, |r| {
            let (weight_decay, no_decay, _) = r.optimizer.decay_mut();
            let all = *weight_decay > 0.0 && no_decay.is_empty();
            no_decay.extend([zoo_recipe::schema::DecayGroup::Bn, zoo_recipe::schema::DecayGroup::Bias]);
            all
        }),
        mutant("decay ten times too strong", Stage::Update, |r| {
            let (weight_decay, ..) = r.optimizer.decay_mut();
            *weight_decay *= 10.0;
            *weight_decay > 0.0
        }),
        mutant("decay forgotten", Stage::Update, |r| {
            let (weight_decay, ..) = r.optimizer.decay_mut();
            std::mem::take(weight_decay) > 0.0
        }),
        mutant("L2 loss and decay both", Stage::Update, |r| {
            let l2 = r.loss.l2.as_ref().map(|l2| l2.weight);
            let (weight_decay, ..) = r.optimizer.decay_mut();
            l2.map(|l2| *weight_decay = l2).is_some()
        }),
        mutant("momentum 0.9 for 0.875, or 0.875 for 0.9", Stage::Trajectory, |r| {
            let plain = sgd(r).filter(|sgd| !sgd.nesterov);
            plain.map(|sgd| sgd.momentum = if sgd.momentum == 0.9 { 0.875 } else { 0.9 }).is_some()
        }),
        mutant("Nesterov's momentum 0.875 for 0.9", Stage::Update, |r| {
            sgd(r).filter(|sgd| sgd.nesterov).map(|sgd| sgd.momentum = 0.875).is_some()
        }),
    ]
}

fn sgd(recipe: &mut Recipe) -> Option<&mut Sgd> {
    if let Optimizer::Sgd(sgd) = &mut recipe.optimizer { Some(sgd) } else { None }
}

/// Changes a cross entropy with label smoothing.
fn smoothing(recipe: &mut Recipe, change: fn(&mut SoftmaxCrossEntropy)) -> bool {
    recipe.loss.softmax_cross_entropy.as_mut().filter(|loss| loss.label_smoothing > 0.0).map(change).is_some()
}

/// Changes the first step of the preprocessing for evaluation that `change` accepts.
fn eval_steps(recipe: &mut Recipe, change: impl FnMut(&mut Step) -> Option<()>) -> bool {
    recipe.preprocess.eval.iter_mut().find_map(change).is_some()
}
