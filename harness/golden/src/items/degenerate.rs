//! Degenerate tensors: their exact value is zero, so that the elements of a run are rounding errors.

use crate::compare::{self, DEGENERATE_FACTOR, Measured, Precision, is_degenerate};
use crate::manifest::TensorFacts;
use crate::report::Item;
use std::collections::BTreeMap;

/// Degenerate tensors have an exact value of zero, so they only have to be as small as their rounding errors.
pub(super) fn forgive<'m>(
    items: &mut [Item],
    prefix: &str,
    tensors: &BTreeMap<String, TensorFacts>,
    precision: Precision,
    read: &impl Fn(&str) -> Option<&'m Measured>,
) {
    for item in items {
        let key = format!("{prefix}{}", item.name);
        if let Some(level) = tensors.get(&key).and_then(|facts| rounding_level(facts, precision)) {
            let size = read(&key).map_or(f64::INFINITY, |m| rms(m.stats.l2, &m.shape));
            *item = Item { counts: false, ..Item::measured(&item.name, size / level * precision.limit(), 1.0) };
        }
    }
}

/// Root mean square of a tensor.
pub(super) fn rms(l2: f64, shape: &[usize]) -> f64 {
    l2 / (shape.iter().product::<usize>().max(1) as f64).sqrt()
}

/// Largest allowed root mean square of a degenerate tensor, from its facts; `None` for other tensors. In f64 it is at
/// least [`compare::ORDERS`] times that of the reference's f64 run: if rounding errors cancel by chance in f32, the f32
/// error says little about f64.
pub(super) fn rounding_level(facts: &TensorFacts, precision: Precision) -> Option<f64> {
    let rounding = (DEGENERATE_FACTOR * precision.rounding(facts.f32_rel)).max(compare::ORDERS);
    let rounding = rounding * rms(facts.l2, &facts.shape);
    is_degenerate(facts.f32_rel).then_some(rounding)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::GRAD;
    use super::*;
    use crate::stats::Stats;

    pub fn facts(l2: f64, f32_rel: f64) -> TensorFacts {
        TensorFacts {
            shape: vec![4],
            mean: 0.0,
            std: l2 / 2.0,
            absmax: l2,
            l2,
            f32_rel,
            f32_max: f32_rel,
            delta_l2: None,
            f64_rel: 0.0,
            delta_f32_rel: None,
            delta_f64_rel: None,
            class: None,
            degenerate: false,
        }
    }

    #[test]
    fn a_gradient_that_is_rounding_is_known_by_its_f32_run() {
        let tensors = BTreeMap::from([("grad/bias".to_owned(), facts(2e-16, 5e8))]);
        let judged = |l2: f64, precision| {
            let found =
                Measured { shape: vec![4], stats: Stats { mean: 0.0, std: 0.0, absmax: l2, l2 }, samples: Vec::new() };
            let mut items = vec![Item::measured("bias", f64::INFINITY, 1.0)];
            forgive(&mut items, GRAD, &tensors, precision, &|_: &str| Some(&found));
            items.remove(0).ratio <= precision.limit()
        };
        // Ten times the reference's rounding error is accepted; a millionth of a real gradient of 1 is not.
        assert!(judged(2e-15, Precision::F64) && !judged(1e-6, Precision::F64));
        assert!(judged(1e-6, Precision::F32) && !judged(1e-3, Precision::F32));
        assert!(!judged(f64::NAN, Precision::F64) && !judged(f64::INFINITY, Precision::F32));
    }

    /// If errors cancelled by chance in f32, the f32 error is a ten-thousandth of the usual one. The reference's own
    /// tensor must still pass.
    #[test]
    fn a_gradient_that_is_rounding_may_be_what_it_was() {
        let facts = facts(2e-16, 5e4);
        assert!(rounding_level(&facts, Precision::F64).unwrap() >= rms(facts.l2, &facts.shape));
        assert!(rounding_level(&facts, Precision::F64).unwrap() < 1e-14);
    }

    #[test]
    fn a_gradient_that_flipped_relus_move_is_none() {
        let tensors = BTreeMap::from([("grad/weight".to_owned(), facts(1.0, 0.034))]);
        let mut items = vec![Item::measured("weight", 0.5, 1e-9)];
        forgive(&mut items, GRAD, &tensors, Precision::F64, &|_: &str| None);
        assert_eq!(items, vec![Item::measured("weight", 0.5, 1e-9)]);
    }
}
