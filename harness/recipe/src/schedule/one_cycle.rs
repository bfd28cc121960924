//! One cycle: arXiv 1708.07120; torch.optim.lr_scheduler.OneCycleLR in two phases, without its cycle of momentum.

use std::f64::consts::PI;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::decay::part;
use super::{Clock, Curve, Warmup, real};

zoo_settings::settings! {
    /// From max_lr/div_factor up to `max_lr` at step pct_start*total - 1, and from there down to
    /// max_lr/div_factor/final_div_factor at the last step.
    pub struct OneCycle {
        /// The highest learning rate.
        #[schemars(range(min = 0))]
        pub max_lr: f64,
        /// Share of the training in which the learning rate increases.
        #[schemars(range(min = 0, max = 1))]
        pub pct_start: f64 = 0.3,
        /// `max_lr` divided by the first learning rate.
        #[schemars(range(min = 1))]
        pub div_factor: f64 = 25.0,
        /// The first learning rate divided by the last one.
        #[schemars(range(min = 1))]
        pub final_div_factor: f64 = 1e4,
        /// Shape of the curve.
        pub anneal: Anneal = Anneal::default(),
    }
}

/// Curve between two learning rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Anneal {
    /// Half a cosine (PyTorch's default).
    #[default]
    Cosine,
    /// Linear.
    Linear,
}

impl Anneal {
    fn between(self, start: f64, end: f64, part: f64) -> f64 {
        match self {
            Self::Cosine => end + (start - end) / 2.0 * (1.0 + libm::cos(PI * part)),
            Self::Linear => start + (end - start) * part,
        }
    }
}

impl Curve for OneCycle {
    fn lr(&self, clock: Clock) -> f64 {
        let (step, total) = (clock.step as f64, clock.total() as f64);
        let first = self.max_lr / self.div_factor;
        let (top, end) = (self.pct_start * total - 1.0, total - 1.0);
        if step <= top {
            self.anneal.between(first, self.max_lr, part(step, top))
        } else {
            self.anneal.between(self.max_lr, first / self.final_div_factor, part(step - top, end - top))
        }
    }

    fn emit(&self) -> Vec<String> {
        let between = |start: &str, end: &str, part: &str| match self.anneal {
            Anneal::Cosine => format!("{end} + ({start} - {end}) / 2 * (1 + math.cos(math.pi * {part}))"),
            Anneal::Linear => format!("{start} + ({end} - {start}) * {part}"),
        };
        let (first, peak) = (real(self.max_lr / self.div_factor), real(self.max_lr));
        let last = real(self.max_lr / self.div_factor / self.final_div_factor);
        vec![
            format!("top, end = {} * steps - 1, steps - 1", real(self.pct_start)),
            "if step <= top:".to_owned(),
            format!("    return {}", between(&first, &peak, "share(step, top)")),
            format!("return {}", between(&peak, &last, "share(step - top, end - top)")),
        ]
    }

    fn warmup(&self) -> Option<&Warmup> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::agrees;

    /// The first learning rate is 0.1, the top is at step 0.25*24 - 1 = 5, the last step, 23, is at 0.01.
    #[test]
    fn linear_up_and_linear_down() {
        let yaml = "one_cycle: {max_lr: 1, pct_start: 0.25, div_factor: 10, final_div_factor: 10, anneal: linear}";
        agrees(yaml, (6, 4), &[(0, 0.1), (1, 0.28), (5, 1.0), (11, 0.67), (14, 0.505), (23, 0.01), (30, 0.01)]);
    }

    #[test]
    fn a_cosine_up_and_a_cosine_down() {
        // A third of the way down, cos(pi/3) = 1/2.
        let yaml = "one_cycle: {max_lr: 1, pct_start: 0.25, div_factor: 10, final_div_factor: 10}";
        agrees(yaml, (6, 4), &[(0, 0.1), (5, 1.0), (11, 0.7525), (14, 0.505), (17, 0.2575), (23, 0.01)]);
    }

    #[test]
    fn without_a_rise_it_starts_near_the_top() {
        // PyTorch's first phase then ends at step -1.
        let yaml = "one_cycle: {max_lr: 1, pct_start: 0, final_div_factor: 1e4, anneal: linear}";
        let last = 1.0 / 25.0 / 1e4;
        agrees(yaml, (2, 2), &[(0, 1.0 - (1.0 - last) / 4.0), (3, last)]);
    }
}
