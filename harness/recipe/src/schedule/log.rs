//! Constant ratios: numpy.logspace, as in LogScheduler of the SiamMask code.

use super::{Clock, Curve, Per, TMax, Warmup, emit_decay, real};

zoo_settings::settings! {
    /// base_lr * (end_lr/base_lr)^(t/(T-1)): the last step or epoch is at `end_lr`.
    pub struct LogDecay {
        /// First learning rate after the warm-up.
        #[schemars(extend("exclusiveMinimum" = 0))]
        pub base_lr: f64,
        /// Last learning rate.
        #[schemars(extend("exclusiveMinimum" = 0))]
        pub end_lr: f64,
        /// Warm-up at the beginning.
        pub warmup?: Warmup,
        /// Unit of t.
        pub per: Per = Per::default(),
    }
}

impl Curve for LogDecay {
    fn lr(&self, clock: Clock) -> f64 {
        let part = clock.decay(self.per, TMax::AfterWarmup, self.warmup.as_ref(), 1.0);
        self.base_lr * libm::pow(self.end_lr / self.base_lr, part)
    }

    fn emit(&self) -> Vec<String> {
        let part = format!("part = {}", emit_decay(self.per, TMax::AfterWarmup, self.warmup.as_ref(), 1));
        let (first, last) = (real(self.base_lr), real(self.end_lr));
        vec![part, format!("return {first} * ({last} / {first}) ** part")]
    }

    fn warmup(&self) -> Option<&Warmup> {
        self.warmup.as_ref()
    }
}
