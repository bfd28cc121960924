//! What gradients lose with each loss scale, and which values are multiplied by it.

use super::{DeviceOptions, judge::NodeReport, rounding::Exponents};
use crate::report::Stage;
use serde::Serialize;
use zoo_engine::simulate::{Range, Subnormals};
use zoo_graph::DType;

/// Largest loss scale that is considered, as a power of two: the initial value of MindSpore's dynamic scale.
const LARGEST_SCALE: i32 = 24;
/// Powers of two between the largest gradient and the largest number, with the recommended loss scale.
const HEADROOM: i32 = 2;
/// Share of the elements that a smaller loss scale may lose in addition.
const SLACK: f64 = 1e-4;
/// Share of the elements that is worth another loss scale.
const NOTABLE: f64 = 0.01;

/// What a loss scale saves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ScaleReport {
    /// The loss scale of this step.
    pub present: f64,
    /// Share of the gradients' elements that become zero without a loss scale.
    pub lost_at_1: f64,
    /// The same with the present loss scale.
    pub lost_at_present: f64,
    /// The smallest loss scale that loses hardly more than `most`: at most 1e-4 of the elements.
    pub best: f64,
    /// The same with that loss scale.
    pub lost_at_best: f64,
    /// The largest loss scale that keeps its distance from an overflow.
    pub most: f64,
}

impl ScaleReport {
    /// Whether `best` is better than the present loss scale, which loses notably more or comes near an overflow.
    pub fn advises_best(&self) -> bool {
        self.lost_at_present > self.lost_at_best + NOTABLE || self.present > self.most
    }
}

/// What each loss scale would lose, from the exponents of the exact values of the gradients that the device stores in
/// half precision.
pub(super) fn scales(nodes: &[NodeReport], options: &DeviceOptions<'_>) -> Option<ScaleReport> {
    let gradients = nodes.iter().filter(|node| node.stage == Stage::Backward);
    let mut exponents = Exponents::new();
    let mut half = None;
    for node in gradients.filter(|node| node.dtype.is_half()) {
        half = Some(node.dtype);
        for (exponent, count) in &node.exponents {
            *exponents.entry(*exponent).or_default() += count;
        }
    }
    let flushes = matches!(options.arithmetic.range, Range::Format { subnormals: Subnormals::Flush, .. });
    // Numbers below 2^smallest become zero; numbers from 2^largest overflow.
    let (smallest, largest) = match (half?, flushes) {
        (DType::Bf16, true) => (-126, 128),
        (DType::Bf16, false) => (-134, 128),
        (_, true) => (-14, 16),
        (_, false) => (-25, 16),
    };
    Some(of_exponents(&exponents, [smallest, largest], options.loss_scale))
}

/// What each loss scale would lose of gradients with these exponents, in a type for numbers from 2^`smallest` to below
/// 2^`largest`.
fn of_exponents(exponents: &Exponents, [smallest, largest]: [i32; 2], present: f64) -> ScaleReport {
    let all: u64 = exponents.values().sum();
    let count = |of: &dyn Fn(i32) -> bool| exponents.iter().filter(|(e, _)| of(**e)).map(|(_, n)| n).sum::<u64>();
    let lost = |power: i32| count(&|e| e + power < smallest) as f64 / all.max(1) as f64;
    let near_overflow = |power: i32| count(&|e| e + power >= largest - HEADROOM) > 0;
    let safe = (0..=LARGEST_SCALE).take_while(|power| *power == 0 || !near_overflow(*power));
    let most = safe.last().unwrap_or(0);
    let best = (0..=most).find(|power| lost(*power) <= lost(most) + SLACK).unwrap_or(most);
    ScaleReport {
        present,
        lost_at_1: lost(0),
        lost_at_present: lost(present.log2().round() as i32),
        best: 2f64.powi(best),
        lost_at_best: lost(best),
        most: 2f64.powi(most),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limits of f16 with subnormals.
    const F16: [i32; 2] = [-25, 16];

    /// 1 of 10 elements needs a loss scale of 256, and 1 of 20 000 one of 1024. The largest have the exponent 2.
    fn scales(present: f64) -> ScaleReport {
        of_exponents(&Exponents::from([(2, 17_999), (-33, 2000), (-35, 1)]), F16, present)
    }

    #[test]
    fn the_smallest_sufficient_scale_is_no_advice_against_a_larger_one_that_is_safe() {
        let safe = scales(1024.0);
        assert_eq!((safe.best, safe.most, safe.lost_at_present), (256.0, 2048.0, 0.0));
        assert!(safe.lost_at_best > 0.0 && !safe.advises_best(), "{safe:?}");
        assert!(!scales(256.0).advises_best() && !scales(2048.0).advises_best());
    }

    #[test]
    fn a_scale_that_loses_more_or_comes_near_an_overflow_is_advised_against() {
        assert!(scales(1.0).advises_best() && scales(128.0).advises_best());
        assert!(scales(4096.0).advises_best());
    }
}
