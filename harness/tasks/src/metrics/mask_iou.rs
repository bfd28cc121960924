//! Intersection over union of masks.

use super::{Mean, Meter};
use zoo_datasets::{Mask, tracking::mask_iou};

/// A predicted mask and the true one.
#[derive(Clone, Copy, Debug)]
pub struct Masks<'a> {
    /// The prediction.
    pub found: &'a Mask,
    /// The ground truth.
    pub truth: &'a Mask,
}

/// Mean intersection over union of masks (region similarity J of DAVIS).
#[derive(Clone, Copy, Debug, Default)]
pub struct MaskIou(Mean);

impl Meter<Masks<'_>> for MaskIou {
    fn add(&mut self, masks: &Masks<'_>) {
        self.0.add(mask_iou(masks.found, masks.truth));
    }

    fn value(&self) -> f64 {
        self.0.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoo_datasets::Size;

    #[test]
    fn by_hand() {
        let mask = |inside: [bool; 4]| Mask::new(Size::new(4, 1), inside.to_vec()).unwrap();
        let (left, middle) = (mask([true, true, false, false]), mask([false, true, true, false]));
        let mut meter = MaskIou::default();
        assert!(meter.value().is_nan());
        meter.add(&Masks { found: &left, truth: &middle });
        meter.add(&Masks { found: &left, truth: &left });
        assert!((meter.value() - (1.0 / 3.0 + 1.0) / 2.0).abs() < 1e-15);
    }
}
