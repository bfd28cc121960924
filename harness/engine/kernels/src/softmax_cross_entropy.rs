//! Softmax cross entropy with smoothed labels: mean loss and its gradient at once.

use crate::{
    Isa,
    exp::exp,
    planes::{TASK_LEN, expect_len},
    simd::vectorised,
};
use rayon::prelude::*;
use thiserror::Error;

/// Target probabilities, and the labels that have none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Targets {
    /// Of the class that the label names.
    pub label: f64,
    /// Of each other class.
    pub other: f64,
    /// The label of rows that do not count.
    pub ignored: Option<u32>,
}

/// A label that names no class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("label {label} of row {row} is not below {classes}, the number of classes")]
pub struct LabelError {
    /// Row of the logits.
    pub row: usize,
    /// Its label.
    pub label: u32,
    /// Number of classes.
    pub classes: usize,
}

/// Mean over the `N` rows that count of the cross entropy between the targets and the softmax of the logits `[.., K]`,
/// and the gradient of that mean by the logits: `(softmax - target) / N`, 0 in the other rows. The mean over no row is
/// NaN.
///
/// The loss is summed in f64. `probabilities`, if wanted, receives the softmax. `K` is the length of the logits over
/// the number of labels.
///
/// # Errors
/// [`LabelError`] if a label names no class; nothing is written then.
///
/// # Panics
/// If the lengths do not match.
pub fn softmax_cross_entropy(
    isa: Isa,
    logits: &[f32],
    labels: &[u32],
    targets: Targets,
    gradient: &mut [f32],
    probabilities: Option<&mut [f32]>,
) -> Result<f64, LabelError> {
    expect_len("the gradient", gradient.len(), logits.len());
    if labels.is_empty() || logits.is_empty() {
        expect_len("the logits", logits.len(), 0);
        return Ok(0.0);
    }
    assert!(logits.len().is_multiple_of(labels.len()), "{} logits for {} labels", logits.len(), labels.len());
    let classes = logits.len() / labels.len();
    let counts = |label: u32| targets.ignored != Some(label);
    if let Some(row) = labels.iter().position(|label| counts(*label) && *label as usize >= classes) {
        return Err(LabelError { row, label: labels[row], classes });
    }
    if let Some(probabilities) = probabilities {
        expect_len("the probabilities", probabilities.len(), logits.len());
        probabilities
            .par_chunks_exact_mut(classes)
            .with_min_len((TASK_LEN / classes).max(1))
            .zip(logits.par_chunks_exact(classes))
            .for_each(|(probabilities, logits)| softmax_row(isa, logits, probabilities));
    }
    let share = 1.0 / labels.iter().filter(|label| counts(**label)).count() as f64;
    let losses: Vec<f64> = gradient
        .par_chunks_exact_mut(classes)
        .with_min_len((TASK_LEN / classes).max(1))
        .zip(logits.par_chunks_exact(classes).zip(labels))
        .map(|(gradient, (logits, label))| {
            if counts(*label) {
                return row(isa, logits, *label as usize, targets, share, gradient);
            }
            gradient.fill(0.0);
            0.0
        })
        .collect();
    Ok(losses.iter().sum::<f64>() * share)
}

/// Exponentials of a row less its maximum, their sum, and the maximum.
#[inline(always)]
fn exponentials<S: crate::simd::Simd>(simd: S, logits: &[f32], out: &mut [f32]) -> (f64, f32) {
    let mut maxima = [f32::NEG_INFINITY; 16];
    let (whole, rest) = logits.as_chunks::<16>();
    for chunk in whole {
        for (max, value) in maxima.iter_mut().zip(chunk) {
            *max = if *value > *max { *value } else { *max };
        }
    }
    let max = maxima.into_iter().chain(rest.iter().copied()).fold(f32::NEG_INFINITY, f32::max);
    for (out, logit) in out.iter_mut().zip(logits) {
        *out = exp(simd, logit - max);
    }
    let mut sums = [0.0; 8];
    let (whole, rest) = out.as_chunks::<8>();
    for chunk in whole {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += f64::from(*value);
        }
    }
    let sum = sums.into_iter().sum::<f64>() + rest.iter().map(|v| f64::from(*v)).sum::<f64>();
    (sum, max)
}

vectorised! {
    /// Loss of a row, and its gradient times `share`.
    fn row(simd, logits: &[f32], label: usize, targets: Targets, share: f64, gradient: &mut [f32]) -> f64 {
        let (sum, max) = exponentials(simd, logits, gradient);
        // The targets add up to one, so the cross entropy is the logarithm less the mean logit under them. Of the logits
        // less the largest: the digits of small differences between large logits would be lost beside it.
        let shifted = |logit: f32| f64::from(logit) - f64::from(max);
        let mut loss = libm::log(sum) - (targets.label - targets.other) * shifted(logits[label]);
        if targets.other != 0.0 {
            loss -= targets.other * logits.iter().map(|logit| shifted(*logit)).sum::<f64>();
        }
        let (scale, other) = (share / sum, share * targets.other);
        let at_label = (f64::from(gradient[label]) * scale - share * targets.label) as f32;
        for value in gradient.iter_mut() {
            *value = (f64::from(*value) * scale - other) as f32;
        }
        gradient[label] = at_label;
        loss
    }
}

vectorised! {
    fn softmax_row(simd, logits: &[f32], probabilities: &mut [f32]) -> () {
        let (sum, _) = exponentials(simd, logits, probabilities);
        let scale = 1.0 / sum;
        for value in probabilities {
            *value = (f64::from(*value) * scale) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{expect_close, filled, same_bits_on_any_threads};

    /// Loss, gradient and probabilities by the definition.
    fn reference(logits: &[f32], labels: &[u32], targets: Targets) -> (f64, Vec<f64>, Vec<f64>) {
        let classes = logits.len() / labels.len();
        let (mut loss, mut gradient, mut probabilities) = (0.0, Vec::new(), Vec::new());
        for (row, label) in logits.chunks(classes).zip(labels) {
            let max = row.iter().fold(f64::NEG_INFINITY, |max, v| max.max(f64::from(*v)));
            let sum: f64 = row.iter().map(|v| (f64::from(*v) - max).exp()).sum();
            for (class, logit) in row.iter().enumerate() {
                let log_p = f64::from(*logit) - max - sum.ln();
                let target = if class == *label as usize { targets.label } else { targets.other };
                loss -= target * log_p / labels.len() as f64;
                gradient.push((log_p.exp() - target) / labels.len() as f64);
                probabilities.push(log_p.exp());
            }
        }
        (loss, gradient, probabilities)
    }

    /// Targets with part of the probability spread over all classes.
    fn smoothed(smoothing: f64, classes: usize) -> Targets {
        let other = smoothing / classes as f64;
        Targets { label: 1.0 - smoothing + other, other, ignored: None }
    }

    fn case(rows: usize, classes: usize, spread: f32) -> (Vec<f32>, Vec<u32>) {
        let logits = filled(rows * classes, 1).into_iter().map(|v| v * spread).collect();
        (logits, (0..rows).map(|i| ((i * 7919) % classes) as u32).collect())
    }

    #[test]
    fn follows_the_definition_with_both_smoothings() {
        for (rows, classes) in [(1, 2), (3, 10), (8, 1000), (5, 37)] {
            let all = [
                Targets { label: 1.0, other: 0.0, ignored: None },
                smoothed(0.1, classes),
                Targets { label: 0.9, other: 0.1 / (classes as f64 - 1.0), ignored: None },
            ];
            for (targets, spread) in all.into_iter().flat_map(|t| [(t, 1.0), (t, 60.0)]) {
                let (logits, labels) = case(rows, classes, spread);
                let (loss, gradient, probabilities) = reference(&logits, &labels, targets);
                for isa in Isa::available() {
                    let (mut found, mut p) = (vec![f32::NAN; logits.len()], vec![f32::NAN; logits.len()]);
                    let found_loss =
                        softmax_cross_entropy(isa, &logits, &labels, targets, &mut found, Some(&mut p)).unwrap();
                    assert!((found_loss - loss).abs() <= 3e-7 * loss.max(1.0), "{found_loss} instead of {loss}");
                    expect_close("gradient", &found, &gradient, 3e-7);
                    expect_close("probabilities", &p, &probabilities, 3e-7);
                }
            }
        }
    }

    /// Two classes, logits 0 and ln 3, label 0: probabilities 1/4 and 3/4, loss ln 4.
    #[test]
    fn a_case_by_hand() {
        let targets = smoothed(0.0, 2);
        for isa in Isa::available() {
            let mut gradient = [0.0; 2];
            let logits = [0.0, 3f32.ln()];
            let loss = softmax_cross_entropy(isa, &logits, &[0], targets, &mut gradient, None).unwrap();
            assert!((loss - 4f64.ln()).abs() < 1e-7);
            expect_close("gradient", &gradient, &[-0.75, 0.75], 1e-7);
        }
    }

    /// What is left without the rows that do not count, whose logits are not even looked at.
    #[test]
    fn ignored_rows_change_nothing() {
        let targets = smoothed(0.1, 2);
        let (logits, few) = ([0.5, -1.0, f32::NAN, 7.0, 2.0, 3.0], [0.5, -1.0, 2.0, 3.0]);
        for isa in Isa::available() {
            let (mut all, mut rest) = ([f32::NAN; 6], [f32::NAN; 4]);
            let ignoring = Targets { ignored: Some(255), ..targets };
            let loss = softmax_cross_entropy(isa, &logits, &[1, 255, 0], ignoring, &mut all, None).unwrap();
            assert_eq!(softmax_cross_entropy(isa, &few, &[1, 0], targets, &mut rest, None), Ok(loss));
            assert_eq!((&all[..2], &all[2..4], &all[4..]), (&rest[..2], &[0.0; 2][..], &rest[2..]));
            assert!(softmax_cross_entropy(isa, &few, &[255; 2], ignoring, &mut rest, None).unwrap().is_nan());
            assert_eq!(rest, [0.0; 4]);
        }
    }

    #[test]
    fn a_label_beyond_the_classes_is_an_error() {
        let mut gradient = [0.0; 6];
        let targets = Targets { label: 1.0, other: 0.0, ignored: None };
        let error = softmax_cross_entropy(Isa::best(), &[0.0; 6], &[2, 3], targets, &mut gradient, None).unwrap_err();
        assert_eq!(error, LabelError { row: 1, label: 3, classes: 3 });
    }

    #[test]
    fn a_class_without_target_may_be_excluded() {
        let logits = [3f32.ln(), 0.0, f32::NEG_INFINITY];
        for isa in Isa::available() {
            let mut gradient = [0.0; 3];
            let targets = Targets { label: 1.0, other: 0.0, ignored: None };
            let loss = softmax_cross_entropy(isa, &logits, &[0], targets, &mut gradient, None).unwrap();
            assert!((loss - (4.0f64 / 3.0).ln()).abs() < 1e-7);
            expect_close("gradient", &gradient, &[-0.25, 0.25, 0.0], 1e-7);
            let everywhere = smoothed(0.3, 3);
            let loss = softmax_cross_entropy(isa, &logits, &[0], everywhere, &mut gradient, None).unwrap();
            assert_eq!(loss, f64::INFINITY);
        }
    }

    #[test]
    fn nan_reaches_loss_and_gradient() {
        let (mut logits, labels) = case(2, 40, 1.0);
        logits[25] = f32::NAN;
        for isa in Isa::available() {
            let mut gradient = vec![0.0; 80];
            let targets = Targets { label: 1.0, other: 0.0, ignored: None };
            assert!(softmax_cross_entropy(isa, &logits, &labels, targets, &mut gradient, None).unwrap().is_nan());
            assert!(gradient[..40].iter().all(|v| v.is_nan()) && gradient[40..].iter().all(|v| v.is_finite()));
        }
    }

    #[test]
    fn threads_do_not_matter() {
        let (logits, labels) = case(97, 301, 2.0);
        let targets = smoothed(0.1, 301);
        same_bits_on_any_threads(|isa| {
            let mut gradient = vec![0.0; logits.len()];
            let loss = softmax_cross_entropy(isa, &logits, &labels, targets, &mut gradient, None).unwrap();
            let bits = loss.to_bits();
            vec![gradient, vec![f32::from_bits(bits as u32), f32::from_bits((bits >> 32) as u32)]]
        });
    }
}
