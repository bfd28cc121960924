//! The loss scale of a half-precision training.

use serde::{Deserialize, Serialize};
use zoo_recipe::schema;

/// The current scale, and its state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    /// Factor on the loss.
    pub scale: f64,
    /// Steps without overflow since it last changed.
    pub good_steps: u64,
    /// Number of skipped updates.
    pub skipped: u64,
}

impl LossScale {
    /// The initial scale of a recipe.
    pub fn start(rule: &schema::LossScale) -> Self {
        let scale = match rule {
            schema::LossScale::None => 1.0,
            schema::LossScale::Fixed(fixed) => fixed.scale,
            schema::LossScale::Dynamic(dynamic) => dynamic.init,
        };
        Self { scale, good_steps: 0, skipped: 0 }
    }

    /// The state after a step. At an overflow, a dynamic scale is divided by its factor, down to 1; after a whole
    /// window without overflow, it is multiplied by the factor (MindSpore's `DynamicLossScaleUpdateCell`, PyTorch's
    /// `GradScaler`).
    #[must_use]
    pub fn after(self, rule: &schema::LossScale, overflow: bool, skipped: bool) -> Self {
        let skipped = self.skipped + u64::from(skipped);
        let schema::LossScale::Dynamic(dynamic) = rule else { return Self { skipped, ..self } };
        if overflow {
            return Self { scale: (self.scale / dynamic.factor).max(1.0), good_steps: 0, skipped };
        }
        let good_steps = self.good_steps + 1;
        if good_steps >= dynamic.window {
            return Self { scale: self.scale * dynamic.factor, good_steps: 0, skipped };
        }
        Self { good_steps, skipped, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoo_recipe::schema::{DynamicScale, FixedScale};

    #[test]
    fn a_dynamic_scale_follows_the_overflows() {
        let rule = schema::LossScale::Dynamic(DynamicScale { init: 8.0, factor: 2.0, window: 3 });
        let mut scale = LossScale::start(&rule);
        let mut seen = Vec::new();
        for overflow in [false, false, false, true, false, true, true, true, true, false, false, false] {
            scale = scale.after(&rule, overflow, overflow);
            seen.push(scale.scale);
        }
        assert_eq!(seen, [8.0, 8.0, 16.0, 8.0, 8.0, 4.0, 2.0, 1.0, 1.0, 1.0, 1.0, 2.0]);
        assert_eq!(scale.skipped, 5);
    }

    #[test]
    fn a_fixed_scale_stays() {
        let rule = schema::LossScale::Fixed(FixedScale { scale: 1024.0, skip_overflow: true });
        let scale = LossScale::start(&rule).after(&rule, true, true).after(&rule, false, false);
        assert_eq!((scale.scale, scale.skipped), (1024.0, 1));
        assert_eq!(LossScale::start(&schema::LossScale::None).scale, 1.0);
    }
}
