//! The learning rate of MindSpore's ResNet50 migration guide.

use std::f64::consts::PI;

use super::{Clock, Curve, Warmup, real};
use crate::values::Period;

zoo_settings::settings! {
    /// Warm-up from `lr_init` to `lr_max`; then lr_max * (linear*cosine + 1e-5) with linear = (total - i)/(total -
    /// warmup) and cosine = (1 + cos(2*pi*0.47*i/(total - warmup)))/2, where the step i counts from the start of
    /// training.
    pub struct GuideCosine {
        /// Learning rate at the start of the warm-up.
        #[schemars(range(min = 0))]
        pub lr_init: f64 = 0.0,
        /// Learning rate at the end of the warm-up.
        #[schemars(range(min = 0))]
        pub lr_max: f64,
        /// Length of the warm-up, in which step i uses (i+1)/length.
        pub warmup: Period = Period::default(),
    }
}

impl Curve for GuideCosine {
    fn lr(&self, clock: Clock) -> f64 {
        let (i, total) = (clock.step.min(clock.total()) as f64, clock.total() as f64);
        let warm = self.warmup.steps(clock.steps_per_epoch()) as f64;
        if i < warm {
            return self.lr_init + (self.lr_max - self.lr_init) / warm * (i + 1.0);
        }
        let length = (total - warm).max(1.0);
        let linear = (total - i) / length;
        let cosine = 0.5 * (1.0 + libm::cos(PI * 2.0 * 0.47 * i / length));
        self.lr_max * (linear * cosine + 0.00001)
    }

    fn emit(&self) -> Vec<String> {
        let (first, top) = (real(self.lr_init), real(self.lr_max));
        vec![
            format!("warmup = {}", self.warmup.emit()),
            "if step < warmup:".to_owned(),
            format!("    return {first} + ({top} - {first}) / warmup * (step + 1)"),
            "length = max(steps - warmup, 1)".to_owned(),
            "linear = (steps - step) / length".to_owned(),
            "cosine = 0.5 * (1 + math.cos(math.pi * 2 * 0.47 * step / length))".to_owned(),
            format!("return {top} * (linear * cosine + 0.00001)"),
        ]
    }

    fn warmup(&self) -> Option<&Warmup> {
        None
    }
}
