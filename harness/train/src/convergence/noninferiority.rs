//! One-sided t-tests of whether runs are as good as a reference, and the number of runs needed. For all values here,
//! more is better: the caller negates the values of other metrics.
//!
//! This follows the reference convergence points of MLPerf: the same training with other seeds must reach, up to
//! chance, the result of the reference (MLCommons training policies, "Reference Convergence Points"). Formulas:
//! two-sample t-test with pooled variance, NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.5.3; a margin makes it
//! a test of non-inferiority, Chow, Shao and Wang, "Sample Size Calculations in Clinical Research", 3.2.2.

use statrs::distribution::{ContinuousCDF, FisherSnedecor, StudentsT};

use crate::event::{SpreadTest, Test};

/// Required power for a number of runs.
const POWER: f64 = 0.8;
/// Larger numbers of runs are not practical.
const MOST_RUNS: usize = 1000;

/// Summary of runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Number of runs.
    pub n: usize,
    /// Mean of their results.
    pub mean: f64,
    /// Their standard deviation, with `n - 1` in the denominator; 0 for a single run.
    pub deviation: f64,
}

impl Sample {
    /// Mean and standard deviation of values; `None` of no values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let n = values.len();
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = if n > 1 { (squares / (n - 1) as f64).sqrt() } else { 0.0 };
        (n > 0).then_some(Self { n, mean, deviation })
    }

    fn squares(&self) -> f64 {
        (self.n - 1) as f64 * self.deviation.powi(2)
    }
}

/// The reference for runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Against {
    /// Other runs. The tested runs may be worse by less than a margin.
    Runs {
        /// The other runs; at least two.
        reference: Sample,
        /// The margin.
        margin: f64,
    },
    /// A value that their mean must reach.
    Value(f64),
}

/// Tests the runs. `None` if the spread is unknown: with fewer than two runs against a value, or fewer than three
/// runs in total.
pub fn test(runs: Sample, against: Against) -> Option<Test> {
    let Spread { distance, error, degrees } = Spread::new(runs, against)?;
    let (statistic, p) = match distance / error {
        t if t.is_finite() => (Some(t), student(degrees)?.sf(t)),
        // Nothing varies, so the distance is exact.
        t if t.is_nan() => (None, 0.5),
        t => (None, if t > 0.0 { 0.0 } else { 1.0 }),
    };
    Some(Test { statistic, degrees_of_freedom: degrees, p })
}

/// Tests the spread of the runs with Fisher's F (NIST/SEMATECH e-Handbook, 1.3.5.9). `None` for fewer than two runs,
/// against a value, or against runs without spread.
pub fn spread(runs: Sample, against: Against) -> Option<SpreadTest> {
    let Against::Runs { reference, .. } = against else { return None };
    let free = |sample: Sample| (sample.n > 1 && sample.deviation > 0.0).then(|| (sample.n - 1) as f64);
    let fisher = FisherSnedecor::new(free(runs)?, free(reference)?).ok()?;
    let statistic = (runs.deviation / reference.deviation).powi(2);
    Some(SpreadTest { statistic, p: fisher.sf(statistic) })
}

/// Power: the probability that this number of runs passes at level `alpha` if they are as good as the reference, with
/// its deviation; `None` for a test against a fixed value.
///
/// The noncentral t distribution is approximated by a shifted central one.
pub fn power(runs: Sample, against: Against, alpha: f64) -> Option<f64> {
    let Against::Runs { margin, .. } = against else { return None };
    let Spread { error, degrees, .. } = Spread::new(runs, against)?;
    let t = student(degrees)?;
    let shift = margin / error;
    Some(if shift.is_finite() { t.cdf(shift - t.inverse_cdf(1.0 - alpha)) } else { 1.0 })
}

/// The number of further runs that would settle the verdict with a probability of 80 % at level `alpha`, if mean and
/// deviation stay the same; `None` if no practical number would.
///
/// The smallest `n` with `distance >= error(n) * (t[1 - alpha] + t[0.8])`: Chow, Shao and Wang, 3.2.2, with quantiles
/// of t instead of the normal distribution.
pub fn more_runs(runs: Sample, against: Against, alpha: f64) -> Option<usize> {
    let enough = |n: &usize| {
        let Some(Spread { distance, error, degrees }) = Spread::with(runs, against, *n) else { return false };
        let Some(t) = student(degrees) else { return false };
        distance.abs() >= error * (t.inverse_cdf(1.0 - alpha) + t.inverse_cdf(POWER))
    };
    (runs.n + 1..=runs.n + MOST_RUNS).find(enough).map(|n| n - runs.n)
}

/// The distance of the mean from its bound, and its standard error.
struct Spread {
    distance: f64,
    /// Standard error of the distance.
    error: f64,
    degrees: usize,
}

impl Spread {
    fn new(runs: Sample, against: Against) -> Option<Self> {
        Self::with(runs, against, runs.n)
    }

    /// The same for `n` runs with this mean and deviation.
    fn with(runs: Sample, against: Against, n: usize) -> Option<Self> {
        let one_of = 1.0 / n as f64;
        match against {
            Against::Runs { reference, margin } => {
                // A single run has no known deviation, so the pooled deviation is that of the reference.
                let degrees = (runs.n + reference.n).checked_sub(2).filter(|degrees| *degrees > 0)?;
                let variance = (runs.squares() + reference.squares()) / degrees as f64;
                let error = (variance * (one_of + 1.0 / reference.n as f64)).sqrt();
                let degrees = n + reference.n - 2;
                Some(Self { distance: runs.mean - reference.mean + margin, error, degrees })
            }
            Against::Value(value) => {
                let degrees = n.checked_sub(1).filter(|_| runs.n > 1)?;
                let error = runs.deviation * one_of.sqrt();
                Some(Self { distance: runs.mean - value, error, degrees })
            }
        }
    }
}

fn student(degrees: usize) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, degrees as f64).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(n: usize, mean: f64, deviation: f64) -> Sample {
        Sample { n, mean, deviation }
    }

    fn near(found: f64, expected: f64, by: f64) {
        assert!((found - expected).abs() <= by, "{found} instead of {expected}");
    }

    #[test]
    fn samples_have_mean_and_deviation() {
        // Deviations -2, 0, 2: squares sum to 8, over 2.
        assert_eq!(Sample::of(&[3.0, 5.0, 7.0]), Some(sample(3, 5.0, 2.0)));
        assert_eq!(Sample::of(&[4.0]), Some(sample(1, 4.0, 0.0)));
        assert_eq!(Sample::of(&[]), None);
    }

    #[test]
    fn two_samples_as_in_the_handbook() {
        // NIST 1.3.5.3, miles per gallon of US and Japanese cars: t = -12.62059 with 326 degrees of freedom.
        let us = sample(249, 20.14458, 6.414_700);
        let reference = sample(79, 30.48101, 6.107_710);
        let found = test(us, Against::Runs { reference, margin: 0.0 }).unwrap();
        near(found.statistic.unwrap(), -12.62059, 1e-4);
        assert_eq!(found.degrees_of_freedom, 326);
        near(found.p, 1.0, 1e-9);
    }

    #[test]
    fn one_sample_by_hand() {
        // mean 5, deviation 2, n 3: t = (5 - 3) / (2 / sqrt 3) = sqrt 3. For 2 degrees of freedom
        // F(t) = 1/2 + t / (2 sqrt(2 + t^2)), so p = 1/2 - sqrt 3 / (2 sqrt 5).
        let found = test(sample(3, 5.0, 2.0), Against::Value(3.0)).unwrap();
        near(found.statistic.unwrap(), 3f64.sqrt(), 1e-12);
        near(found.p, 0.5 - 3f64.sqrt() / (2.0 * 5f64.sqrt()), 1e-12);
        assert_eq!(test(sample(1, 5.0, 0.0), Against::Value(3.0)), None);
    }

    #[test]
    fn a_margin_shifts_the_mean_and_one_run_takes_the_reference_s_deviation() {
        // (0.90 - 0.92 + 0.04) / (0.01 sqrt(1 + 1/3)), 2 degrees of freedom: t = 2 / sqrt(4/3) = sqrt 3.
        let against = Against::Runs { reference: sample(3, 0.92, 0.01), margin: 0.04 };
        let found = test(sample(1, 0.90, 0.0), against).unwrap();
        near(found.statistic.unwrap(), 3f64.sqrt(), 1e-9);
        assert_eq!(found.degrees_of_freedom, 2);
        near(found.p, 0.5 - 3f64.sqrt() / (2.0 * 5f64.sqrt()), 1e-9);
    }

    #[test]
    fn without_spread_the_distance_decides() {
        let p = |mean: f64| test(sample(2, mean, 0.0), Against::Value(0.5)).map(|test| (test.statistic, test.p));
        assert_eq!([p(0.6), p(0.4), p(0.5)], [Some((None, 0.0)), Some((None, 1.0)), Some((None, 0.5))]);
    }

    #[test]
    fn runs_that_would_settle_it() {
        // Known case: a distance of one deviation from a value needs 8 runs in total. For n = 8: sqrt 8 = 2.828 >=
        // t[0.95, 7] + t[0.8, 7] = 1.895 + 0.896 = 2.791; for n = 7: 2.646 < 1.943 + 0.906.
        assert_eq!(more_runs(sample(3, 1.0, 1.0), Against::Value(0.0), 0.05), Some(5));
        assert_eq!(more_runs(sample(3, -1.0, 1.0), Against::Value(0.0), 0.05), Some(5));
        assert_eq!(more_runs(sample(3, 0.0, 1.0), Against::Value(0.0), 0.05), None);
        // The mean of the reference is not known well enough, and no number of runs compensates for that.
        let against = Against::Runs { reference: sample(2, 0.9, 0.1), margin: 0.01 };
        assert_eq!(more_runs(sample(3, 0.9, 0.1), against, 0.05), None);
    }

    #[test]
    fn spreads_are_compared_by_their_variances() {
        // F = 4 with 2 and 2 degrees of freedom: p = 1 / (1 + F) = 0.2.
        let against = Against::Runs { reference: sample(3, 0.0, 1.0), margin: 0.0 };
        let found = spread(sample(3, 0.0, 2.0), against).unwrap();
        near(found.statistic, 4.0, 1e-12);
        near(found.p, 0.2, 1e-9);
        assert_eq!(spread(sample(1, 0.0, 0.0), against), None);
        assert_eq!(spread(sample(3, 0.0, 2.0), Against::Value(0.0)), None);
    }

    #[test]
    fn power_is_the_chance_to_pass() {
        // margin / error = 3 / sqrt(2/3) = 3.674, less t[0.95, 4] = 2.132: F(1.542) of t with 4 degrees of freedom =
        // 0.901.
        let against = Against::Runs { reference: sample(3, 0.0, 1.0), margin: 3.0 };
        near(power(sample(3, 0.0, 1.0), against, 0.05).unwrap(), 0.901, 1e-3);
        // Without a margin, the power is the level itself.
        let against = Against::Runs { reference: sample(3, 0.0, 1.0), margin: 0.0 };
        near(power(sample(3, 0.0, 1.0), against, 0.05).unwrap(), 0.05, 1e-9);
        assert_eq!(power(sample(3, 0.0, 1.0), Against::Value(0.0), 0.05), None);
    }
}
