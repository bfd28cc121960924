//! Losses and the metrics that a step reports with them.

use super::tensors;
use crate::compare::{F64_TOLERANCE, LOSS_FLOOR, Noise, Precision};
use crate::golden::{Golden, ROOT};
use crate::manifest::TensorFacts;
use crate::report::Item;
use zoo_engine::StepResult;

/// The largest fact of the network's outputs in the first step.
fn largest(golden: &Golden, variant: Option<&str>, fact: fn(&TensorFacts) -> f64) -> f64 {
    let outputs = tensors(golden, variant).into_iter().flatten().filter(|(key, _)| key.starts_with(ROOT));
    outputs.map(|(_, facts)| fact(facts)).fold(0.0, f64::max)
}

/// What the error of a loss is relative to: the loss, if it is not near 0.
///
/// A loss near 0 is the difference of terms (of cross entropy: logits and their log-sum-exp) that are about as large as
/// the `first` loss or the `output` of the network, if that is larger. In f64 it is not known better than a few roundings
/// of these: four of them are at most [`F64_TOLERANCE`] of the scale.
fn loss_scale(loss: f64, first: Option<f64>, output: f64) -> f64 {
    let terms = first.unwrap_or(0.0).abs().max(output);
    let scale = loss.abs().max(terms * (4.0 * f64::EPSILON / F64_TOLERANCE));
    if scale == 0.0 { 1.0 } else { scale }
}

/// The losses before update `n`. Alternatives that the golden also records (`loss_...`) are not components.
pub(crate) fn losses(
    result: &StepResult,
    golden: &Golden,
    variant: Option<&str>,
    n: usize,
    precision: Precision,
) -> Vec<Item> {
    let manifest = &golden.manifest;
    let (truth, rounded, moved) = match variant.and_then(|v| manifest.variants.get(v)) {
        Some(v) => (&v.losses_f64, &v.losses_f32, &v.losses_moved),
        None => (&manifest.losses_f64, &manifest.losses_f32, &manifest.losses_moved),
    };
    let start = truth.first();
    let (Some(truth), Some(rounded)) = (truth.get(n), rounded.get(n)) else { return Vec::new() };
    let output = largest(golden, variant, |facts| facts.absmax);
    // The error of a loss in the reference's f32 run is a single number that can be small by chance, so the error of
    // what it is computed from is used instead.
    let least = LOSS_FLOOR.max(largest(golden, variant, |facts| facts.f32_rel));
    let component = |name: &str| !name.starts_with("loss_") && !DIAGNOSTICS.contains(&name);
    let label = |name: &str| if n == 0 { name.to_string() } else { format!("{name} of step {}", n + 1) };
    let mut items = Vec::new();
    // Metrics that a step reports with its losses count if the golden has them.
    let metrics = result.metrics.iter().filter(|(name, _)| truth.contains_key(name));
    let found = result.losses.iter().chain(metrics);
    for (name, found) in found.clone() {
        items.push(match truth.get(name) {
            Some(t) => {
                let scale = loss_scale(*t, start.and_then(|start| start.get(name)).copied(), output);
                let off = |other: Option<&f64>| other.map_or(0.0, |other| (other - t).abs() / scale);
                let in_f64 = off(moved.get(n).and_then(|moved| moved.get(name)));
                let noise = Noise { in_f32: off(rounded.get(name)), in_f64 };
                Item::measured(label(name), (found - t).abs() / scale, precision.floor(noise, least))
            }
            None => Item::wrong(label(name), "the reference has no such loss"),
        });
    }
    let missing = truth.keys().filter(|k| component(k) && !found.clone().any(|(name, _)| name == *k));
    items.extend(missing.map(|name| Item::wrong(label(name), "the recipe has no such loss")));
    items
}

/// Whether a quantity recorded with the losses belongs to the gradients.
pub(crate) fn is_of_gradients(item: &Item) -> bool {
    ["grad_norm", "clip_coef"].contains(&item.name.as_str())
}

/// Values that the golden records to show how well-conditioned the step is, and that are not quantities of the step:
/// the distance between the loss of the last selected negative and that of the next one.
const DIAGNOSTICS: [&str; 1] = ["ohem_gap_to_next"];

#[cfg(test)]
mod tests {
    use super::*;

    /// The rounding error is 2e-16 in f64 and 1e-7 in f32.
    #[test]
    fn a_loss_near_zero_is_not_known_better_than_its_terms() {
        let scales = [loss_scale(2.0, Some(3.0), 0.0), loss_scale(-2.0, None, 0.0), loss_scale(0.0, None, 0.0)];
        assert_eq!(scales, [2.0, 2.0, 1.0]);
        assert_eq!(loss_scale(1e-4, Some(3.0), 20.0), 1e-4);
        // Four roundings of 4.0 are 3.6e-15, which is 1e-9 of this scale.
        let four = 4.0 * 4.0 * f64::EPSILON / 1e-9;
        assert!((loss_scale(5e-12, Some(4.0), 0.0) - four).abs() < 1e-20);
        // A network that is right from the start has a small first loss, and logits of the usual size.
        assert!((loss_scale(9e-11, Some(0.04), 4.0) - four).abs() < 1e-20);
    }
}
