//! Compares one tensor with its reference values.

use crate::{
    golden::Samples,
    manifest::TensorFacts,
    stats::{SQUARED, Stats},
};
use serde::Serialize;

/// The arithmetic that is judged, and how strictly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Judges the recipe: the relative error is at most [`F64_TOLERANCE`], or the effect of rounding in f64 on the
    /// tensor.
    F64,
    /// Judges the kernels: the error is at most [`F32_WORST`] floors per tensor, and [`F32_MEDIAN`] in the median of
    /// a stage.
    F32,
}

/// Limit of the relative error in f64: a thousand times the effect of another order of summation, and a millionth of
/// the effect of any change of a formula.
pub const F64_TOLERANCE: f64 = 1e-9;
/// Limit of the error of one tensor in f32, in floors.
pub const F32_WORST: f64 = 10.0;
/// Limit of the median error of a stage in f32, in floors.
pub const F32_MEDIAN: f64 = 3.0;
/// Largest tolerance for rounding in f64, however ill-conditioned a step is: a thousandth of the effect of a changed
/// formula.
pub const F64_MOST: f64 = 1e-6;
/// Smallest floor of a tensor: half a unit in the last place of 1.0 in f32, twice.
pub const TENSOR_FLOOR: f64 = 1.0 / (1u64 << 23) as f64;
/// Smallest relative floor of a scalar loss.
pub const LOSS_FLOOR: f64 = 1.0 / (1u64 << 20) as f64;
/// Largest size of a degenerate tensor, relative to the error of the reference's f32 run (in f64, that error is
/// scaled to the eps of f64). Other orders of summation give 0.01 to 10 times the error. A real gradient is seven
/// orders of magnitude larger than the error in f32, and sixteen orders larger than the error in f64.
pub const DEGENERATE_FACTOR: f64 = 1e3;
/// Another order of summation may give rounding errors that are larger by this factor.
pub const ORDERS: f64 = 10.0;

/// Relative distance between the reference's f64 run and one moved in its last place from which on f64 has no digit of
/// a tensor: its elements are rounding errors.
pub const NO_DIGITS: f64 = 0.01;

/// Whether a tensor is degenerate. `f32_error` is the relative error of its f32 run. A degenerate tensor has an exact
/// value of zero and consists of rounding errors (for example, a bias before a normalisation), so f32 keeps no
/// correct digit of it. A ReLU that takes the other branch never changes a gradient by as much as its size: the
/// largest error in the goldens here is 0.083 (0.61 in one of densenet121 under other conditions), and the smallest
/// of a degenerate gradient is 2.7e7.
pub fn is_degenerate(f32_error: f64) -> bool {
    f32_error >= 1.0
}

/// Relative effect of rounding on a tensor, measured in the reference framework.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noise {
    /// Error of the reference's f32 run.
    pub in_f32: f64,
    /// Distance of the f64 run from one with inputs and parameters changed in their last place. 0 if the golden does
    /// not have it: then the step is well-conditioned, or the golden is older than this figure.
    pub in_f64: f64,
}

impl Precision {
    /// Largest error that passes, in floors.
    pub fn limit(self) -> f64 {
        match self {
            Self::F64 => 1.0,
            Self::F32 => F32_WORST,
        }
    }

    /// The error of a run in this arithmetic that is only due to rounding, given the error of such a run in f32.
    pub fn rounding(self, f32_error: f64) -> f64 {
        match self {
            Self::F64 => f32_error * (f64::EPSILON / f64::from(f32::EPSILON)),
            Self::F32 => f32_error,
        }
    }

    /// A rounding error in f64, as it would be in this arithmetic.
    pub fn from_f64(self, error: f64) -> f64 {
        match self {
            Self::F64 => error,
            Self::F32 => error * (f64::from(f32::EPSILON) / f64::EPSILON),
        }
    }

    /// The error that counts as one floor, for a tensor with this `noise`.
    pub fn floor(self, noise: Noise, least: f64) -> f64 {
        match self {
            // Above the tolerance only if f32 keeps hardly a correct digit of the tensor (an error of at least
            // 0.054), or if the reference's f64 run changes by at least 1e-10 when its start changes in the last
            // place.
            Self::F64 => F64_TOLERANCE
                .max(F32_WORST * self.rounding(noise.in_f32.min(1.0)))
                .max((F32_WORST * noise.in_f64).min(F64_MOST)),
            Self::F32 => noise.in_f32.max(least),
        }
    }
}

/// Statistics and samples of a tensor of the engine, in f64 for every element type.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Shape.
    pub shape: Vec<usize>,
    /// Mean, standard deviation (over n), largest magnitude, Euclidean norm.
    pub stats: Stats,
    /// Values at the golden's sample positions, in their order.
    pub samples: Vec<f64>,
}

/// Distance of a tensor from its reference values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// The largest relative error of samples and statistics; infinite for NaN and infinity.
    pub error: f64,
    /// The error that counts as one floor.
    pub floor: f64,
}

impl Distance {
    /// Error in floors.
    pub fn ratio(self) -> f64 {
        self.error / self.floor
    }

    /// From an error and a floor; NaN becomes an infinite error.
    pub fn new(error: f64, floor: f64) -> Self {
        Self { error: if error.is_nan() { f64::INFINITY } else { error }, floor }
    }
}

/// Relative L2 distance of the samples `found` from `truth`; absolute if `truth` is zero, since `found` must then be
/// zero.
///
/// The scale is the norm of the samples, but at least the average norm of as many samples of a tensor with norm `l2`
/// and `numel` elements: a few samples may be nearly zero by chance, and then contain only rounding errors.
pub fn relative_l2(found: &[f64], truth: &[f64], l2: f64, numel: usize) -> f64 {
    if found.len() != truth.len() {
        return f64::INFINITY;
    }
    let largest = found.iter().chain(truth).fold(0.0f64, |largest, x| largest.max(x.abs()));
    let unit = if largest > 0.0 && largest < SQUARED { largest } else { 1.0 };
    let distance = found.iter().zip(truth).map(|(f, t)| ((f - t) / unit).powi(2)).sum::<f64>().sqrt();
    let norm = truth.iter().map(|t| (t / unit).powi(2)).sum::<f64>().sqrt();
    let scale = norm.max(l2 / unit * (truth.len() as f64 / numel.max(1) as f64).sqrt());
    match distance {
        0.0 => 0.0,
        _ if scale > 0.0 => distance / scale,
        _ => f64::INFINITY,
    }
}

/// Whether shapes are equal, apart from leading axes of one element. Frameworks add them to values that are equal for
/// all samples: transformers' positions are `[1, T, E]`.
pub fn same_shape(found: &[usize], truth: &[usize]) -> bool {
    let shared = |shape: &[usize]| shape.iter().copied().skip_while(|extent| *extent == 1).collect::<Vec<_>>();
    shared(found) == shared(truth)
}

/// Whether the reference has samples and tokens as one axis, as transformers' OPT gives dense layers `[N*T, E]`, or
/// leaves out an axis of one element: a number for each sample.
pub fn joins_rows(found: &[usize], truth: &[usize]) -> bool {
    match (found, truth) {
        ([n, 1], [samples]) => n == samples,
        ([n, t, rest @ ..], [rows, others @ ..]) => !rest.is_empty() && n * t == *rows && rest == others,
        _ => false,
    }
}

/// How often the reference has values that are the same for all samples: transformers' OPT looks up positions once per
/// sample.
pub fn repeats(found: &[usize], truth: &[usize]) -> Option<usize> {
    let (samples, rest) = truth.split_first()?;
    (*samples > 1 && found.len() > 1 && rest == found).then_some(*samples)
}

/// Distance of a tensor from its reference values: samples, and mean, deviation, norm and largest magnitude over all
/// elements.
///
/// Errors of mean and deviation are relative to the root mean square. Both are bounded by the relative L2 error of
/// the tensor, so its floor is also a floor for them.
pub fn compare(found: &Measured, facts: &TensorFacts, truth: &Samples<'_>, precision: Precision) -> Distance {
    let numel: usize = facts.shape.iter().product();
    let noise = Noise { in_f32: facts.f32_rel, in_f64: facts.f64_rel };
    let floor = precision.floor(noise, TENSOR_FLOOR);
    if !same_shape(&found.shape, &facts.shape) {
        return Distance::new(f64::INFINITY, floor);
    }
    let off = |found: f64, truth: f64, scale: f64| match (found - truth).abs() {
        difference if scale > 0.0 => difference / scale,
        0.0 => 0.0,
        _ => f64::INFINITY,
    };
    let rms = facts.l2 / (numel as f64).sqrt();
    let stats = &found.stats;
    // The largest magnitude has its own floor; this converts its error to floors of the tensor.
    let peak_floor = precision.floor(Noise { in_f32: facts.f32_max, ..noise }, TENSOR_FLOOR);
    let errors = [
        relative_l2(&found.samples, truth.values, facts.l2, numel),
        off(stats.l2, facts.l2, facts.l2),
        off(stats.mean, facts.mean, rms),
        off(stats.std, facts.std, rms),
        off(stats.absmax, facts.absmax, facts.absmax) * (floor / peak_floor),
    ];
    // f64::max would drop a NaN.
    let worst = errors.into_iter().fold(0.0, |worst, e| if e.is_nan() || e > worst { e } else { worst });
    Distance::new(worst, floor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(values: &[f64]) -> TensorFacts {
        let s = Stats::of(values);
        TensorFacts {
            shape: vec![values.len()],
            mean: s.mean,
            std: s.std,
            absmax: s.absmax,
            l2: s.l2,
            f32_rel: 1e-6,
            f32_max: 1e-6,
            f64_rel: 0.0,
            rounding_l2: 0.0,
            delta_l2: None,
            delta_f32_rel: None,
            delta_f64_rel: None,
            class: None,
            degenerate: false,
        }
    }

    fn distance(found: &[f64], truth: &[f64], precision: Precision) -> Distance {
        let measured = Measured { shape: vec![found.len()], stats: Stats::of(found), samples: found.to_vec() };
        let samples = Samples { positions: (0..truth.len()).collect(), values: truth };
        compare(&measured, &facts(truth), &samples, precision)
    }

    #[test]
    fn samples_and_tokens_may_be_one_axis_and_nothing_else() {
        assert!(same_shape(&[3, 4], &[1, 3, 4]) && !same_shape(&[2, 3, 4], &[6, 4]));
        assert_eq!(
            [&[2, 3, 4][..], &[1, 3, 4], &[2, 4, 3]].map(|truth| repeats(&[3, 4], truth)),
            [Some(2), None, None]
        );
        assert_eq!(repeats(&[3], &[2, 3]), None);
        assert!(joins_rows(&[2, 3, 4], &[6, 4]));
        assert!(joins_rows(&[6, 1], &[6]) && !joins_rows(&[3, 2], &[6]));
        assert!(!joins_rows(&[2, 3, 4], &[2, 12]) && !joins_rows(&[2, 3], &[6]) && !joins_rows(&[2, 3, 4], &[5, 4]));
    }

    #[test]
    fn equal_is_zero_and_a_small_change_is_seen() {
        let truth = [1.0, -2.0, 0.5, 4.0];
        assert_eq!(distance(&truth, &truth, Precision::F64).error, 0.0);
        let mut near = truth;
        near[1] += 4e-9;
        assert!(distance(&near, &truth, Precision::F64).ratio() > 0.8);
        assert!(distance(&near, &truth, Precision::F32).ratio() < 0.1);
    }

    /// Before later terms hide it, the gradient of `features.norm0.weight` of densenet121 is a difference of terms
    /// that are a million times larger. Its error is 0.6 in f32, and accordingly smaller in f64.
    #[test]
    fn where_f32_keeps_hardly_a_digit_f64_may_round_too() {
        let floor = |in_f32| Precision::F64.floor(Noise { in_f32, in_f64: 0.0 }, TENSOR_FLOOR);
        assert_eq!(floor(1e-2), F64_TOLERANCE);
        assert_eq!(floor(f64::MAX), floor(1.0));
        let floor = floor(0.605);
        assert!((floor / (6.05 / (1u64 << 29) as f64) - 1.0).abs() < 1e-12, "{floor}");
    }

    /// The third step of regnet_x_400mf changes by 2.7e-8 if its image changes in the last place.
    #[test]
    fn a_badly_conditioned_step_may_move_as_the_reference_does_but_never_by_what_a_mistake_does() {
        let floor = |precision: Precision, in_f64| precision.floor(Noise { in_f32: 1e-5, in_f64 }, TENSOR_FLOOR);
        assert_eq!(floor(Precision::F64, 0.0), F64_TOLERANCE);
        assert_eq!(floor(Precision::F64, 9.9e-11), F64_TOLERANCE);
        assert!((floor(Precision::F64, 2.7e-8) / 2.7e-7 - 1.0).abs() < 1e-12);
        for much in [1e-7, 1.0, f64::INFINITY] {
            assert_eq!(floor(Precision::F64, much), F64_MOST);
        }
        assert_eq!(floor(Precision::F32, 1.0), 1e-5);
    }

    #[test]
    fn it_fails_closed() {
        let truth = [1.0, -2.0, 0.5];
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(distance(&[1.0, bad, 0.5], &truth, Precision::F32).error, f64::INFINITY);
        }
        assert_eq!(distance(&[1.0, -2.0], &truth, Precision::F32).error, f64::INFINITY, "shape");
        assert_eq!(distance(&[0.0, 1e-30], &[0.0, 0.0], Precision::F32).error, f64::INFINITY, "zero must be zero");
        assert_eq!(distance(&[0.0, 0.0], &[0.0, 0.0], Precision::F64).error, 0.0);
    }

    #[test]
    fn elements_between_the_samples_count_through_the_statistics() {
        let truth: Vec<f64> = (0..100).map(|i| (f64::from(i) * 0.7).sin()).collect();
        let mut found = truth.clone();
        found[50] += 1.0;
        let measured = Measured { shape: vec![100], stats: Stats::of(&found), samples: truth[..3].to_vec() };
        let samples = Samples { positions: vec![0, 1, 2], values: &truth[..3] };
        assert!(compare(&measured, &facts(&truth), &samples, Precision::F32).ratio() > 1e3);
    }
}
