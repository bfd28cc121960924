//! Polynomial decay: DeepLab, arXiv 1606.00915, section 4.1.2. The DB authors' T is one more ([`TMax::AllPlusOne`]).

use super::{Clock, Curve, Per, TMax, Warmup, emit_decay, real};

zoo_settings::settings! {
    /// min_lr + (base_lr - min_lr) * (1 - t/T)^power.
    pub struct Poly {
        /// Learning rate at t = 0.
        #[schemars(range(min = 0))]
        pub base_lr: f64,
        /// Learning rate at t = T.
        #[schemars(range(min = 0))]
        pub min_lr: f64 = 0.0,
        /// Exponent.
        #[schemars(range(min = 0))]
        pub power: f64 = 0.9,
        /// Warm-up at the beginning.
        pub warmup?: Warmup,
        /// Unit of t.
        pub per: Per = Per::default(),
        /// Range of T.
        pub t_max: TMax = TMax::default(),
    }
}

impl Curve for Poly {
    fn lr(&self, clock: Clock) -> f64 {
        let part = clock.decay(self.per, self.t_max, self.warmup.as_ref(), 0.0);
        self.min_lr + (self.base_lr - self.min_lr) * libm::pow(1.0 - part, self.power)
    }

    fn emit(&self) -> Vec<String> {
        let part = format!("part = {}", emit_decay(self.per, self.t_max, self.warmup.as_ref(), 0));
        let power = if self.power == 1.0 { String::new() } else { format!(" ** {}", real(self.power)) };
        let rate = match self.min_lr {
            0.0 => format!("return {} * (1 - part){power}", real(self.base_lr)),
            least => format!("return {} + ({} - {}) * (1 - part){power}", real(least), real(self.base_lr), real(least)),
        };
        vec![part, rate]
    }

    fn warmup(&self) -> Option<&Warmup> {
        self.warmup.as_ref()
    }
}
