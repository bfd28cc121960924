//! Drops at milestones: torch.optim.lr_scheduler.MultiStepLR.

use super::{Clock, Curve, Finding, Warmup, real};
use crate::diagnostic::Severity;
use crate::values::Period;

zoo_settings::settings! {
    /// base_lr * gamma^(number of milestones up to t), where t counts from the start of training.
    pub struct MultiStep {
        /// First learning rate.
        #[schemars(range(min = 0))]
        pub base_lr: f64,
        /// Factor of each drop.
        #[schemars(range(min = 0, max = 1))]
        pub gamma: f64 = 0.1,
        /// Times of the drops, counted from the start of training: `[30 epochs, 60 epochs]`.
        #[schemars(length(min = 1))]
        pub milestones: Vec<Period>,
        /// Warm-up at the beginning.
        pub warmup?: Warmup,
    }
}

impl Curve for MultiStep {
    fn lr(&self, clock: Clock) -> f64 {
        let reached = |milestone: &&Period| milestone.steps(clock.steps_per_epoch()) <= clock.step as u64;
        self.base_lr * self.gamma.powi(self.milestones.iter().filter(reached).count() as i32)
    }

    fn emit(&self) -> Vec<String> {
        let milestones: Vec<String> = self.milestones.iter().map(|milestone| milestone.emit()).collect();
        let close = if milestones.len() == 1 { ",)" } else { ")" };
        vec![
            format!("milestones = ({}{close}", milestones.join(", ")),
            format!(
                "return {} * {} ** sum(step >= milestone for milestone in milestones)",
                real(self.base_lr),
                real(self.gamma)
            ),
        ]
    }

    fn warmup(&self) -> Option<&Warmup> {
        self.warmup.as_ref()
    }

    fn findings(&self, epochs: usize) -> Vec<Finding> {
        let late = |milestone: &&Period| matches!(milestone, Period::Epochs(at) if *at >= epochs as f64);
        let mut found = Vec::new();
        let mut finding = |severity, message, hint| found.push(Finding { severity, key: "milestones", message, hint });
        let in_order = self.milestones.windows(2).all(|pair| match (pair[0], pair[1]) {
            (Period::Epochs(first), Period::Epochs(second)) => first < second,
            (Period::Steps(first), Period::Steps(second)) => first < second,
            (Period::Epochs(_), Period::Steps(_)) | (Period::Steps(_), Period::Epochs(_)) => false,
        });
        if !in_order {
            let message = "milestones must increase, and all be in epochs or all in steps".to_owned();
            finding(Severity::Error, message, "for example `[30 epochs, 60 epochs]`");
        }
        if matches!(self.milestones.first(), Some(Period::Steps(0) | Period::Epochs(0.0))) {
            let message = "the first milestone is the start of the training".to_owned();
            finding(Severity::Error, message, "lower base_lr instead");
        }
        if let Some(milestone) = self.milestones.iter().find(late) {
            let message = format!("the training ends after {epochs} epochs, before the drop at {milestone}");
            finding(Severity::Warning, message, "if the schedule comes from a longer training, scale its milestones");
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::agrees;

    #[test]
    fn drops_as_in_pytorchs_documentation() {
        // MultiStepLR(optimizer, milestones=[30, 80], gamma=0.1) from 0.05.
        let rates = [(0, 0.05), (29, 0.05), (30, 0.005), (79, 0.005), (80, 0.0005), (99, 0.0005)];
        agrees("multi_step: {base_lr: 0.05, milestones: [30 epochs, 80 epochs]}", (1, 100), &rates);
        agrees("multi_step: {base_lr: 0.05, milestones: [30 steps, 80 steps]}", (10, 10), &rates);
    }

    #[test]
    fn milestones_count_from_the_start_of_the_warm_up() {
        let yaml = "multi_step: {base_lr: 1, gamma: 0.5, milestones: [2 epochs, 2.5 epochs], warmup: {over: 4 steps}}";
        agrees(yaml, (4, 3), &[(0, 0.25), (3, 1.0), (7, 1.0), (8, 0.5), (9, 0.5), (10, 0.25)]);
    }
}
