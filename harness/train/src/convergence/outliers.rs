//! Outliers among runs.

use super::noninferiority::Sample;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Level of the test.
const ALPHA: f64 = 0.05;

/// The value that is too far from the others to be explained by chance: Grubbs' two-sided test at the level of 5 %,
/// NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.5.17.1. `None` if there is none, or fewer than three values.
pub fn outlier(values: &[f64]) -> Option<usize> {
    let Sample { n, mean, deviation } = Sample::of(values).filter(|sample| sample.n > 2 && sample.deviation > 0.0)?;
    let far = |value: &f64| (value - mean).abs();
    let farthest = (0..n).max_by(|a, b| far(&values[*a]).total_cmp(&far(&values[*b])))?;
    (far(&values[farthest]) / deviation > critical(n)?).then_some(farthest)
}

/// The largest distance from the mean, in deviations, that chance explains.
fn critical(n: usize) -> Option<f64> {
    let count = n as f64;
    let t = StudentsT::new(0.0, 1.0, count - 2.0).ok()?.inverse_cdf(1.0 - ALPHA / (2.0 * count));
    Some((count - 1.0) / count.sqrt() * (t * t / (count - 2.0 + t * t)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handbook_s_outlier_is_found() {
        let masses = [199.31, 199.53, 200.19, 200.82, 201.92, 201.95, 202.18, 245.57];
        assert_eq!(outlier(&masses), Some(7));
        assert_eq!(outlier(&masses[..7]), None);
        // Published table of two-sided critical values.
        for (n, expected) in [(3, 1.1543), (8, 2.1266), (20, 2.7082)] {
            assert!((critical(n).unwrap() - expected).abs() < 6e-4, "{n}");
        }
    }

    #[test]
    fn few_or_equal_values_have_none() {
        assert_eq!(outlier(&[1.0, 9.0]), None);
        assert_eq!(outlier(&[1.0; 5]), None);
        assert_eq!(outlier(&[90.0, 90.1, 90.9]), None);
        assert_eq!(outlier(&[90.0, 90.001, 99.0]), Some(2));
    }
}
