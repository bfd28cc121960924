//! Exponential decay: torch.optim.lr_scheduler.ExponentialLR; with `per: step` tf.train.exponential_decay without
//! stairs.

use super::{Clock, Curve, Finding, Per, Warmup, real};
use crate::diagnostic::Severity;
use crate::values::Period;

zoo_settings::settings! {
    /// base_lr * gamma^(t/every), where t counts from the start of training. For drops every few epochs, use `step`.
    pub struct Exponential {
        /// First learning rate.
        #[schemars(range(min = 0))]
        pub base_lr: f64,
        /// Factor per `every`.
        #[schemars(extend("exclusiveMinimum" = 0), range(max = 1))]
        pub gamma: f64,
        /// Time in which the learning rate is multiplied by `gamma` once.
        pub every: Period = Period::Epochs(1.0),
        /// Unit of t.
        pub per: Per = Per::Epoch,
        /// Warm-up at the beginning.
        pub warmup?: Warmup,
    }
}

impl Curve for Exponential {
    fn lr(&self, clock: Clock) -> f64 {
        let steps = match self.per {
            Per::Step => clock.step,
            Per::Epoch => clock.epoch() * clock.steps_per_epoch(),
        };
        let every = self.every.steps(clock.steps_per_epoch()).max(1);
        self.base_lr * libm::pow(self.gamma, steps as f64 / every as f64)
    }

    fn emit(&self) -> Vec<String> {
        let t = match self.per {
            Per::Step => "step",
            Per::Epoch => "(step // per_epoch * per_epoch)",
        };
        let every = format!("max({}, 1)", self.every.emit());
        vec![format!("return {} * {} ** ({t} / {every})", real(self.base_lr), real(self.gamma))]
    }

    fn warmup(&self) -> Option<&Warmup> {
        self.warmup.as_ref()
    }

    fn findings(&self, _epochs: usize) -> Vec<Finding> {
        if !matches!(self.every, Period::Steps(0) | Period::Epochs(0.0)) {
            return Vec::new();
        }
        let message = "the decay period must be more than 0".to_owned();
        vec![Finding { severity: Severity::Error, key: "every", message, hint: "for example `1 epoch`" }]
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::agrees;

    #[test]
    fn each_epoch_has_a_factor() {
        // ExponentialLR(optimizer, gamma=0.5) from 0.8.
        agrees("exponential: {base_lr: 0.8, gamma: 0.5}", (3, 4), &[(0, 0.8), (2, 0.8), (3, 0.4), (5, 0.4), (9, 0.1)]);
        agrees("exponential: {base_lr: 0.8, gamma: 0.25, every: 2 epochs}", (3, 4), &[(2, 0.8), (3, 0.4), (11, 0.1)]);
    }

    #[test]
    fn each_step_has_a_factor() {
        let yaml = "exponential: {base_lr: 0.8, gamma: 0.25, every: 4 steps, per: step, warmup: {over: 1 step}}";
        agrees(yaml, (3, 4), &[(0, 0.8), (2, 0.4), (4, 0.2), (6, 0.1), (8, 0.05)]);
    }
}
