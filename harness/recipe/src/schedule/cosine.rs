//! Half a cosine: arXiv 1608.03983, equation 5, without restarts; torch.optim.lr_scheduler.CosineAnnealingLR.

use std::f64::consts::PI;

use super::{Clock, Curve, Per, TMax, Warmup, emit_decay, real};

zoo_settings::settings! {
    /// min_lr + (base_lr - min_lr) * (1 + cos(pi*t/T))/2.
    pub struct Cosine {
        /// Learning rate at t = 0.
        #[schemars(range(min = 0))]
        pub base_lr: f64,
        /// Learning rate at t = T.
        #[schemars(range(min = 0))]
        pub min_lr: f64 = 0.0,
        /// Warm-up at the beginning.
        pub warmup?: Warmup,
        /// Unit of t.
        pub per: Per = Per::default(),
        /// Range of T.
        pub t_max: TMax = TMax::default(),
    }
}

impl Curve for Cosine {
    fn lr(&self, clock: Clock) -> f64 {
        let part = clock.decay(self.per, self.t_max, self.warmup.as_ref(), 0.0);
        self.min_lr + (self.base_lr - self.min_lr) * (1.0 + libm::cos(PI * part)) / 2.0
    }

    fn emit(&self) -> Vec<String> {
        let part = format!("part = {}", emit_decay(self.per, self.t_max, self.warmup.as_ref(), 0));
        let half = "(1 + math.cos(math.pi * part)) / 2";
        let rate = match self.min_lr {
            0.0 => format!("return {} * {half}", real(self.base_lr)),
            least => format!("return {} + ({} - {}) * {half}", real(least), real(self.base_lr), real(least)),
        };
        vec![part, rate]
    }

    fn warmup(&self) -> Option<&Warmup> {
        self.warmup.as_ref()
    }
}
