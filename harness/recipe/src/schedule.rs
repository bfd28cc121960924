//! Learning rate schedules: settings and formula, one file per schedule.
//!
//! To add one, write its file and list it in the `schedules!` table below.

mod constant;
mod cosine;
mod decay;
mod exponential;
mod guide_cosine;
mod inverse_sqrt;
mod log;
mod multi_step;
mod one_cycle;
mod poly;
mod step;
mod time;
mod warmup;

pub use constant::Constant;
pub use cosine::Cosine;
pub(crate) use decay::SHARE;
pub use decay::TMax;
pub use exponential::Exponential;
pub use guide_cosine::GuideCosine;
pub use inverse_sqrt::InverseSqrt;
pub use log::LogDecay;
pub use multi_step::MultiStep;
pub use one_cycle::{Anneal, OneCycle};
pub use poly::Poly;
pub use step::StepDecay;
pub use time::{Length, Per};
pub use warmup::{Warmup, WarmupCount, WarmupShape};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::diagnostic::Finding;
use crate::python::real;
use decay::emit_decay;
use time::Clock;

macro_rules! schedules {
    ($($(#[doc = $doc:literal])+ $tag:ident: $variant:ident($curve:ty) around $peak:ident,)+) => {
        /// The learning rate of each step.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case", deny_unknown_fields)]
        pub enum Schedule {
            $($(#[doc = $doc])+ $variant($curve),)+
        }

        impl Schedule {
            /// Its name in a recipe.
            pub fn tag(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => stringify!($tag),)+
                }
            }

            fn curve(&self) -> &dyn Curve {
                match self {
                    $(Self::$variant(curve) => curve,)+
                }
            }

            /// The highest learning rate that the schedule is built around.
            pub fn peak_lr(&self) -> f64 {
                match self {
                    $(Self::$variant(curve) => curve.$peak,)+
                }
            }

            /// The highest learning rate, to change it: all learning rates go with it.
            pub fn peak_lr_mut(&mut self) -> &mut f64 {
                match self {
                    $(Self::$variant(curve) => &mut curve.$peak,)+
                }
            }

            /// The key of the highest learning rate in a recipe.
            pub(crate) fn peak_key(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => stringify!($peak),)+
                }
            }
        }
    };
}

schedules! {
    /// Constant after the warm-up.
    constant: Constant(Constant) around base_lr,
    /// Half a cosine from `base_lr` to `min_lr` (arXiv 1608.03983 without restarts; PyTorch's CosineAnnealingLR).
    cosine: Cosine(Cosine) around base_lr,
    /// The formula of MindSpore's ResNet50 migration guide: a linear factor times 0.47 periods of a cosine.
    guide_cosine: GuideCosine(GuideCosine) around lr_max,
    /// (1 - t/T)^power.
    poly: Poly(Poly) around base_lr,
    /// Constant ratio between steps, from one learning rate to another (used by SiamMask).
    log: Log(LogDecay) around base_lr,
    /// Multiplied by `gamma` at regular intervals (PyTorch's StepLR).
    step: Step(StepDecay) around base_lr,
    /// Multiplied by `gamma` at each milestone (PyTorch's MultiStepLR).
    multi_step: MultiStep(MultiStep) around base_lr,
    /// Multiplied by `gamma` each epoch (PyTorch's ExponentialLR).
    exponential: Exponential(Exponential) around base_lr,
    /// 1/sqrt(t) after the warm-up (arXiv 1706.03762).
    inverse_sqrt: InverseSqrt(InverseSqrt) around base_lr,
    /// Up to `max_lr` and down to almost zero, linearly or by cosines (PyTorch's OneCycleLR).
    one_cycle: OneCycle(OneCycle) around max_lr,
}

/// What a schedule knows of itself.
trait Curve {
    /// The learning rate at a moment after the warm-up.
    fn lr(&self, clock: Clock) -> f64;

    /// The same in Python: the body of a function of `step`, `per_epoch` (steps per epoch) and `steps` (of the training).
    fn emit(&self) -> Vec<String>;

    /// The warm-up, before which the formula does not apply; `None` if the formula has its own.
    fn warmup(&self) -> Option<&Warmup> {
        None
    }

    /// Checks beyond the schema, for a training with this number of epochs.
    fn findings(&self, _epochs: usize) -> Vec<Finding> {
        Vec::new()
    }
}

impl Schedule {
    /// The learning rate that the update of `step` uses (from 0) in a training of this length: that of the warm-up
    /// ([`Warmup`]) and then that of the schedule's own formula. Past the end of training it stays finite.
    pub fn lr(&self, step: usize, length: impl Into<Length>) -> f64 {
        let clock = Clock { step, length: length.into() };
        let warm = self.warmup().and_then(|warmup| warmup.lr(clock, self.peak_lr()));
        warm.unwrap_or_else(|| self.curve().lr(clock))
    }

    /// [`Schedule::lr`] in Python: the body of a function of `step`, `per_epoch` (steps per epoch) and `steps` (of the
    /// training).
    pub(crate) fn emit(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(warmup) = self.warmup() {
            lines.extend(warmup.emit(self.peak_lr()));
        }
        lines.extend(self.curve().emit());
        lines
    }

    /// The warm-up, if the formula of the schedule does not include one.
    pub fn warmup(&self) -> Option<&Warmup> {
        self.curve().warmup()
    }

    /// Checks beyond the schema, for a training with this number of epochs.
    pub(crate) fn findings(&self, epochs: usize) -> Vec<Finding> {
        self.curve().findings(epochs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A schedule as a recipe writes it.
    pub(super) fn read(yaml: &str) -> Schedule {
        serde_yaml::with::singleton_map_recursive::deserialize(serde_yaml::Deserializer::from_str(yaml)).unwrap()
    }

    /// Learning rates that were worked out by hand, of `(step, lr)`, in `(steps per epoch, epochs)`.
    pub(super) fn agrees(yaml: &str, (steps_per_epoch, epochs): (usize, usize), rates: &[(usize, f64)]) {
        let schedule = read(yaml);
        for (step, rate) in rates {
            let own = schedule.lr(*step, (steps_per_epoch, epochs));
            assert!(
                (own - rate).abs() <= 1e-12 * rate.abs().max(1e-3),
                "{yaml} at step {step}: {own} instead of {rate}"
            );
        }
    }

    #[test]
    fn tags_are_what_recipes_say() {
        for (yaml, peak) in [
            ("constant: {base_lr: 0.5}", "base_lr"),
            ("guide_cosine: {lr_max: 0.5}", "lr_max"),
            ("multi_step: {base_lr: 0.5, milestones: [1 epoch]}", "base_lr"),
            ("inverse_sqrt: {base_lr: 0.5}", "base_lr"),
            ("one_cycle: {max_lr: 0.5}", "max_lr"),
        ] {
            let schedule = read(yaml);
            assert_eq!(yaml.split(':').next(), Some(schedule.tag()));
            assert_eq!((schedule.peak_key(), schedule.peak_lr()), (peak, 0.5));
        }
    }

    /// A doubled peak doubles every learning rate, except separate warm-up and minimum values.
    #[test]
    fn learning_rates_go_with_the_peak() {
        for yaml in [
            "constant: {base_lr: 0.5}",
            "cosine: {base_lr: 0.5, warmup: {over: 3 steps}}",
            "guide_cosine: {lr_max: 0.5, warmup: 3 steps}",
            "poly: {base_lr: 0.5}",
            "step: {base_lr: 0.5, every: 1 epoch}",
            "multi_step: {base_lr: 0.5, milestones: [1 epoch]}",
            "exponential: {base_lr: 0.5, gamma: 0.9}",
            "inverse_sqrt: {base_lr: 0.5, warmup: {over: 3 steps}}",
            "one_cycle: {max_lr: 0.5}",
        ] {
            let schedule = read(yaml);
            let mut doubled = schedule.clone();
            *doubled.peak_lr_mut() *= 2.0;
            for step in 0..20 {
                let (rate, twice) = (schedule.lr(step, (5, 4)), doubled.lr(step, (5, 4)));
                assert!((twice - 2.0 * rate).abs() <= 1e-15, "{yaml} at {step}: {rate} and {twice}");
            }
        }
    }
}
