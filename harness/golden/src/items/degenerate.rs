//! Degenerate tensors: their exact value is zero, so that the elements of a run are rounding errors.

use crate::compare::{self, DEGENERATE_FACTOR, Measured, NO_DIGITS, Precision, is_degenerate};
use crate::manifest::TensorFacts;
use crate::report::Item;
use std::collections::BTreeMap;

/// Degenerate tensors have an exact value of zero, so they only have to be as small as their rounding errors. `level` is
/// the largest root mean square of a degenerate tensor; `None` for others.
pub(super) fn forgive<'m>(
    items: &mut [Item],
    prefix: &str,
    tensors: &BTreeMap<String, TensorFacts>,
    precision: Precision,
    level: impl Fn(&TensorFacts, Precision) -> Option<f64>,
    read: &impl Fn(&str) -> Option<&'m Measured>,
) {
    for item in items.iter_mut().filter(|item| item.note.is_none()) {
        let key = format!("{prefix}{}", item.name);
        if let Some(level) = tensors.get(&key).and_then(|facts| level(facts, precision)) {
            let size = read(&key).map_or(f64::INFINITY, |m| rms(m.stats.l2, &m.shape));
            *item = of_size(&item.name, size, level, precision);
        }
    }
}

/// Judges a degenerate tensor by its root mean square, which may be at most `level`.
pub(super) fn of_size(name: &str, size: f64, level: f64, precision: Precision) -> Item {
    let share = if size == 0.0 { 0.0 } else { size / level };
    Item { counts: false, ..Item::measured(name, share * precision.limit(), 1.0) }
}

/// Root mean square of a tensor.
pub(super) fn rms(l2: f64, shape: &[usize]) -> f64 {
    l2 / (shape.iter().product::<usize>().max(1) as f64).sqrt()
}

/// Largest allowed root mean square of a degenerate gradient, from its facts; `None` for other tensors. It is at least
/// [`compare::ORDERS`] times that of the reference's f64 run: if rounding errors cancel by chance in f32, the f32 error
/// says little about f64. If they cancel in the reference's f64 run, the run that was moved in its last place shows
/// them.
pub(super) fn rounding_level(facts: &TensorFacts, precision: Precision) -> Option<f64> {
    let in_f64 = facts.rounding_l2.max(facts.f64_rel * facts.l2);
    let rounding = (precision.rounding(facts.f32_rel) * facts.l2).max(precision.from_f64(in_f64));
    let level = (DEGENERATE_FACTOR * rounding).max(compare::ORDERS * facts.l2);
    (is_degenerate(facts.f32_rel) || facts.rounding_l2 > 0.0).then(|| rms(level, &facts.shape))
}

/// The same for a tensor that is no gradient, such as the mean of a normalised map. f32 may lose all digits of such a
/// tensor although f64 has some, so the moved run has to lose them too.
pub(super) fn rounding_level_of_value(facts: &TensorFacts, precision: Precision) -> Option<f64> {
    let loses = facts.rounding_l2 > 0.0 || facts.f64_rel >= NO_DIGITS;
    rounding_level(facts, precision).filter(|_| loses)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::golden::GRAD;
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
            rounding_l2: 0.0,
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
            forgive(&mut items, GRAD, &tensors, precision, rounding_level, &|_: &str| Some(&found));
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
        forgive(&mut items, GRAD, &tensors, Precision::F64, rounding_level, &|_: &str| None);
        assert_eq!(items, vec![Item::measured("weight", 0.5, 1e-9)]);
    }

    /// All sums of a reference may cancel to exactly zero where another order leaves 1e-17. A gradient that is zero
    /// because nothing reaches it has no rounding errors in the moved run either, and must be zero.
    #[test]
    fn an_exact_zero_may_be_rounding_if_the_moved_run_rounds_and_nothing_else() {
        let zero = facts(0.0, 0.0);
        assert_eq!(rounding_level(&zero, Precision::F64), None);
        let cancelled = TensorFacts { rounding_l2: 2e-17, ..zero };
        for level in [rounding_level, rounding_level_of_value] {
            let level = level(&cancelled, Precision::F64).unwrap();
            let judged = |size: f64| of_size("x", size, level, Precision::F64).ratio <= Precision::F64.limit();
            assert!(judged(0.0) && judged(3e-17) && !judged(1e-13) && !judged(f64::NAN));
        }
        assert_eq!(of_size("x", 0.0, 0.0, Precision::F64).ratio, 0.0);
        assert_eq!(of_size("x", 1e-300, 0.0, Precision::F64).ratio, f64::INFINITY);
    }

    #[test]
    fn a_value_that_only_f32_loses_has_digits() {
        let lost = facts(1e-3, 5.0);
        assert_eq!(rounding_level_of_value(&lost, Precision::F64), None);
        let rounding = TensorFacts { f64_rel: 0.7, ..facts(3e-18, 2.9e8) };
        assert!((1e-18..1e-14).contains(&rounding_level_of_value(&rounding, Precision::F64).unwrap()));
    }
}
