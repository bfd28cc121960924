//! Drops at equal intervals: torch.optim.lr_scheduler.StepLR.

use super::{Clock, Curve, Finding, Warmup, real};
use crate::diagnostic::Severity;
use crate::values::Period;

zoo_settings::settings! {
    /// base_lr * gamma^floor(t/every), where t counts from the start of training.
    pub struct StepDecay {
        /// First learning rate.
        #[schemars(range(min = 0))]
        pub base_lr: f64,
        /// Factor of each drop.
        #[schemars(range(min = 0, max = 1))]
        pub gamma: f64 = 0.1,
        /// Interval between drops.
        pub every: Period,
        /// Warm-up at the beginning.
        pub warmup?: Warmup,
    }
}

impl Curve for StepDecay {
    fn lr(&self, clock: Clock) -> f64 {
        let drops = clock.step as u64 / self.every.steps(clock.steps_per_epoch()).max(1);
        self.base_lr * self.gamma.powi(drops.min(i32::MAX as u64) as i32)
    }

    fn emit(&self) -> Vec<String> {
        let every = format!("max({}, 1)", self.every.emit());
        vec![format!("return {} * {} ** (step // {every})", real(self.base_lr), real(self.gamma))]
    }

    fn warmup(&self) -> Option<&Warmup> {
        self.warmup.as_ref()
    }

    fn findings(&self, epochs: usize) -> Vec<Finding> {
        let finding = |severity, message, hint| vec![Finding { severity, key: "every", message, hint }];
        match self.every {
            Period::Steps(0) | Period::Epochs(0.0) => {
                let message = "the distance of drops must be more than 0".to_owned();
                finding(Severity::Error, message, "for example `30 epochs`")
            }
            // A drop after the end is none: the schedule was written for a longer training.
            Period::Epochs(every) if every >= epochs as f64 => {
                let message = format!("the learning rate never drops in the {epochs} epochs of the training");
                finding(Severity::Warning, message, "every 30 of 90 epochs is usual (arXiv 1512.03385)")
            }
            Period::Steps(_) | Period::Epochs(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::agrees;

    #[test]
    fn drops_as_in_pytorchs_documentation() {
        // StepLR(optimizer, step_size=30, gamma=0.1) from 0.05.
        let rates = [(0, 0.05), (59, 0.05), (60, 0.005), (119, 0.005), (120, 0.0005)];
        agrees("step: {base_lr: 0.05, every: 30 epochs}", (2, 100), &rates);
    }
}
