//! Warm-up of the learning rate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::real;
use super::time::{Clock, Per};
use crate::values::Period;

zoo_settings::settings! {
    /// Rise of the learning rate to `base_lr` at the beginning.
    pub struct Warmup {
        /// Length: `5 epochs`, `62 steps`.
        pub over: Period,
        /// Initial learning rate.
        #[schemars(range(min = 0))]
        pub start_lr: f64 = 0.0,
        /// Shape of the curve.
        pub shape: WarmupShape = WarmupShape::default(),
        /// The progress of the warm-up at step i of n.
        pub count: WarmupCount = WarmupCount::default(),
        /// Unit of i.
        pub per: Per = Per::default(),
    }
}

/// Curve of a warm-up at the progress f.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WarmupShape {
    /// start + (base - start)*f
    #[default]
    Linear,
    /// start * (base/start)^f
    Geometric,
}

/// The progress of a warm-up of n steps at step i (from 0).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WarmupCount {
    /// (i+1)/n: the last step of the warm-up is at `base_lr` (as in MindSpore and the Ascend zoo).
    #[default]
    FromOne,
    /// i/n: the first step is at `start_lr`, the first step after the warm-up at `base_lr` (PyTorch's LinearLR).
    FromZero,
}

impl WarmupCount {
    /// The number of the step or epoch that has `i` before it.
    pub(super) fn number(self, i: usize) -> f64 {
        match self {
            Self::FromZero => i as f64,
            Self::FromOne => i as f64 + 1.0,
        }
    }
}

impl Warmup {
    /// The first lines of a function in Python: the learning rate on the way to `base`.
    pub(super) fn emit(&self, base: f64) -> Vec<String> {
        let number = match (self.count, self.per) {
            (WarmupCount::FromOne, Per::Step) => "(step + 1)",
            (WarmupCount::FromZero, Per::Step) => "step",
            (WarmupCount::FromOne, Per::Epoch) => "(step // per_epoch + 1)",
            (WarmupCount::FromZero, Per::Epoch) => "(step // per_epoch)",
        };
        let way = match self.per {
            Per::Step => format!("{number} / warmup"),
            Per::Epoch => format!("min({number} * per_epoch / warmup, 1.0)"),
        };
        let rate = match self.shape {
            WarmupShape::Linear if self.start_lr == 0.0 => format!("{} * {way}", real(base)),
            WarmupShape::Linear => {
                format!("{} + ({} - {}) * {way}", real(self.start_lr), real(base), real(self.start_lr))
            }
            WarmupShape::Geometric => {
                format!("{} * ({} / {}) ** ({way})", real(self.start_lr), real(base), real(self.start_lr))
            }
        };
        let length = format!("warmup = {}", self.over.emit());
        vec![length, "if step < warmup:".to_owned(), format!("    return {rate}")]
    }

    /// The learning rate on the way to `base`; `None` after the warm-up.
    pub(super) fn lr(&self, clock: Clock, base: f64) -> Option<f64> {
        let length = self.over.steps(clock.steps_per_epoch());
        if clock.step as u64 >= length {
            return None;
        }
        let (i, n) = match self.per {
            Per::Step => (clock.step, length as f64),
            Per::Epoch => (clock.epoch(), length as f64 / clock.steps_per_epoch() as f64),
        };
        // The last epoch may be a part of one.
        let way = (self.count.number(i) / n).min(1.0);
        Some(match self.shape {
            WarmupShape::Linear => self.start_lr + (base - self.start_lr) * way,
            WarmupShape::Geometric => self.start_lr * libm::pow(base / self.start_lr, way),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::agrees;

    /// The second of one and a half epochs is at `base_lr`, not beyond.
    #[test]
    fn parts_of_epochs_do_not_overshoot() {
        let rates = [(0, 0.3 / 1.5), (3, 0.3 / 1.5), (4, 0.3), (5, 0.3), (6, 0.3)];
        agrees("constant: {base_lr: 0.3, warmup: {over: 1.5 epochs, per: epoch}}", (4, 3), &rates);
        agrees("constant: {base_lr: 0.3, warmup: {over: 2 steps, per: epoch}}", (4, 3), &[(0, 0.3), (1, 0.3)]);
        let geometric = "constant: {base_lr: 4, warmup: {over: 0.5 epochs, per: epoch, shape: geometric, start_lr: 1}}";
        agrees(geometric, (4, 3), &[(0, 4.0), (1, 4.0), (2, 4.0)]);
    }
}
