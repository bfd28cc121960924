//! Inverse square root: arXiv 1706.03762, equation 3, whose base_lr is (d_model * warmup_steps)^-0.5; with
//! `warmup.count: from_zero` fairseq's InverseSquareRootSchedule.

use super::{Clock, Curve, Warmup, WarmupCount, real};

zoo_settings::settings! {
    /// base_lr * sqrt(W/t), where W is the length of the warm-up in steps (1 without one) and t the number of the step,
    /// from 1 or 0 depending on `warmup.count`.
    pub struct InverseSqrt {
        /// Learning rate at the end of the warm-up.
        #[schemars(range(min = 0))]
        pub base_lr: f64,
        /// Warm-up at the beginning.
        pub warmup?: Warmup,
    }
}

impl Curve for InverseSqrt {
    fn lr(&self, clock: Clock) -> f64 {
        let count = self.warmup.as_ref().map_or(WarmupCount::FromOne, |warmup| warmup.count);
        let length = self.warmup.as_ref().map_or(0, |warmup| warmup.over.steps(clock.steps_per_epoch())).max(1);
        self.base_lr * (length as f64 / count.number(clock.step).max(1.0)).sqrt()
    }

    fn emit(&self) -> Vec<String> {
        let count = self.warmup.as_ref().map_or(WarmupCount::FromOne, |warmup| warmup.count);
        let number = match count {
            WarmupCount::FromOne => "(step + 1)",
            WarmupCount::FromZero => "max(step, 1)",
        };
        let length = if self.warmup.is_some() { "max(warmup, 1)" } else { "1" };
        vec![format!("return {} * math.sqrt({length} / {number})", real(self.base_lr))]
    }

    fn warmup(&self) -> Option<&Warmup> {
        self.warmup.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::agrees;

    #[test]
    fn attention_is_all_you_need() {
        // 512^-0.5 * min(s^-0.5, s * 4000^-1.5) for the steps s = 1, 2000, 4000, 16000.
        let yaml =
            format!("inverse_sqrt: {{base_lr: {}, warmup: {{over: 4000 steps}}}}", (512.0 * 4000.0f64).powf(-0.5));
        let scale = 512f64.powf(-0.5);
        let rising = |s: f64| scale * s * 4000f64.powf(-1.5);
        let rates =
            [(0, rising(1.0)), (1999, rising(2000.0)), (3999, rising(4000.0)), (15999, scale / 16000f64.sqrt())];
        agrees(&yaml, (1000, 20), &rates);
    }

    #[test]
    fn counted_from_zero_as_fairseq_does() {
        // warmup_init_lr 0.1 + i * (0.5 - 0.1)/4, then 0.5 * sqrt(4) * i^-0.5.
        let yaml = "inverse_sqrt: {base_lr: 0.5, warmup: {over: 4 steps, start_lr: 0.1, count: from_zero}}";
        agrees(yaml, (10, 10), &[(0, 0.1), (1, 0.2), (3, 0.4), (4, 0.5), (16, 0.25), (64, 0.125)]);
    }

    #[test]
    fn without_a_warm_up_the_first_step_is_the_highest() {
        agrees("inverse_sqrt: {base_lr: 0.6}", (10, 10), &[(0, 0.6), (3, 0.3), (8, 0.2)]);
    }
}
