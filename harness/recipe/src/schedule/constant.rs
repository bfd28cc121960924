//! One learning rate.

use super::{Clock, Curve, Warmup, real};

zoo_settings::settings! {
    /// One learning rate.
    pub struct Constant {
        /// The learning rate.
        #[schemars(range(min = 0))]
        pub base_lr: f64,
        /// Warm-up at the beginning.
        pub warmup?: Warmup,
    }
}

impl Curve for Constant {
    fn lr(&self, _: Clock) -> f64 {
        self.base_lr
    }

    fn emit(&self) -> Vec<String> {
        vec![format!("return {}", real(self.base_lr))]
    }

    fn warmup(&self) -> Option<&Warmup> {
        self.warmup.as_ref()
    }
}
