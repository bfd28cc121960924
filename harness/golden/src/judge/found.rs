//! What a recording gives, and how far it is from the exact value.

use crate::foreign::Statistics;
use zoo_tensors::{Array, ElementType};

/// The recorded value of a quantity.
pub(super) enum Given {
    /// All elements.
    Elements(Array),
    /// Four statistics, and the shape.
    Statistics(Statistics, Vec<usize>),
}

impl Given {
    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.shape().iter().product()
    }

    pub fn shape(&self) -> &[usize] {
        match self {
            Self::Elements(array) => &array.shape,
            Self::Statistics(_, shape) => shape,
        }
    }

    /// The element type of the file, if all elements are stored.
    pub fn stored(&self) -> Option<ElementType> {
        match self {
            Self::Elements(array) => Some(array.dtype),
            Self::Statistics(..) => None,
        }
    }
}

/// The error of a quantity.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    /// In L2, not relative to anything.
    pub difference: f64,
    /// Relative to the tensor, in L2; for a parameter after the step, relative to its change.
    pub error: f64,
    /// The largest difference between elements, relative to the largest element.
    pub peak: f64,
    /// What a gradient that differs may be instead.
    pub alike: Alike,
    /// The element type of the file that was read.
    pub stored: Option<ElementType>,
    /// What is wrong, if a number does not show it.
    pub note: Option<String>,
}

impl Found {
    pub fn wrong(note: String) -> Self {
        let infinite = f64::INFINITY;
        Self {
            difference: infinite,
            error: infinite,
            peak: infinite,
            alike: Alike::default(),
            stored: None,
            note: Some(note),
        }
    }

    /// The relative error: for statistics, the larger one.
    pub fn worst(&self, is_statistics: bool) -> f64 {
        if is_statistics { self.error.max(self.peak) } else { self.error }
    }
}

/// What a gradient that differs may be instead. Each is a factor with the distance that it leaves, relative to the
/// exact gradient.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Alike {
    /// A multiple of the exact gradient.
    pub multiple: Option<(f64, f64)>,
    /// The exact gradient and a multiple of the parameter.
    pub with_parameter: Option<(f64, f64)>,
}

impl Alike {
    pub fn of(found: &[f64], exact: &[f64], parameter: Option<&[f64]>) -> Self {
        let size = norm(&mut exact.iter().copied());
        let along = |of: &[f64], from: &dyn Fn(usize) -> f64| {
            let squares = of.iter().map(|x| x * x).sum::<f64>();
            let factor = of.iter().enumerate().map(|(n, x)| from(n) * x).sum::<f64>() / squares;
            let left = norm(&mut of.iter().enumerate().map(|(n, x)| from(n) - factor * x)) / size;
            (factor.is_finite() && left.is_finite()).then_some((factor, left))
        };
        Self {
            multiple: along(exact, &|n| found[n]),
            with_parameter: parameter.and_then(|parameter| along(parameter, &|n| found[n] - exact[n])),
        }
    }
}

/// The Euclidean norm.
pub(super) fn norm(values: &mut dyn Iterator<Item = f64>) -> f64 {
    values.map(|x| x * x).sum::<f64>().sqrt()
}

pub(super) fn distance(found: &[f64], exact: &[f64], scale: f64) -> Found {
    let (mut squares, mut largest, mut size) = (0.0, 0.0f64, 0.0f64);
    for (found, exact) in found.iter().zip(exact) {
        squares += (found - exact).powi(2);
        largest = largest.max((found - exact).abs());
        size = size.max(exact.abs());
    }
    let relative = |difference: f64, scale: f64| match difference {
        0.0 => 0.0,
        _ if scale > 0.0 => difference / scale,
        _ => f64::INFINITY,
    };
    let difference = squares.sqrt();
    Found {
        difference,
        error: relative(difference, scale),
        peak: relative(largest, size),
        alike: Alike::default(),
        stored: None,
        note: None,
    }
}

/// The error of four statistics. If the relative L2 error of a tensor is e, then the relative error of its norm is at
/// most e, and so is the error of its mean relative to the root mean square.
pub(super) fn statistics(found: Statistics, exact: &[f64]) -> Found {
    let truth = Statistics::of(exact);
    let size = truth.max.abs().max(truth.min.abs());
    let root_mean_square = truth.norm / (exact.len() as f64).sqrt();
    let off = |found: f64, truth: f64, scale: f64| match (found - truth).abs() {
        0.0 => 0.0,
        difference if scale > 0.0 => difference / scale,
        _ => f64::INFINITY,
    };
    let worse = |a: f64, b: f64| if a.is_nan() || a > b { a } else { b };
    let infinite = |x: f64| if x.is_nan() { f64::INFINITY } else { x };
    let error = worse(off(found.norm, truth.norm, truth.norm), off(found.mean, truth.mean, root_mean_square));
    let peak = worse(off(found.max, truth.max, size), off(found.min, truth.min, size));
    // None of these exceeds the distance of the tensors in L2.
    let differences = [
        found.norm - truth.norm,
        (found.mean - truth.mean) * (exact.len() as f64).sqrt(),
        found.max - truth.max,
        found.min - truth.min,
    ];
    let difference = differences.into_iter().map(f64::abs).fold(0.0, worse);
    let note = (!found.is_finite()).then(|| "its statistics are not finite".to_owned());
    let [difference, error, peak] = [difference, error, peak].map(infinite);
    Found { difference, error, peak, alike: Alike::default(), stored: None, note }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_by_hand() {
        let found = distance(&[3.0, 4.5], &[3.0, 4.0], 5.0);
        assert_eq!((found.difference, found.error, found.peak), (0.5, 0.1, 0.125));
        assert_eq!(distance(&[0.0], &[0.0], 0.0).error, 0.0);
        assert_eq!(distance(&[1e-30], &[0.0], 0.0).error, f64::INFINITY);
    }

    #[test]
    fn a_gradient_may_be_a_multiple_or_contain_the_parameter() {
        let alike = Alike::of(&[2.0, 4.0], &[1.0, 2.0], Some(&[1.0, -1.0]));
        assert_eq!(alike.multiple, Some((2.0, 0.0)));
        assert!(alike.with_parameter.unwrap().1 > 0.5);
        let alike = Alike::of(&[1.5, 1.5], &[1.0, 2.0], Some(&[1.0, -1.0]));
        assert_eq!(alike.with_parameter, Some((0.5, 0.0)));
        assert_eq!(Alike::of(&[1.0], &[0.0], None), Alike::default());
    }

    #[test]
    fn four_numbers_by_hand_and_closed() {
        let exact = [3.0, -4.0];
        let truth = Statistics::of(&exact);
        let same = Found { difference: 0.0, error: 0.0, peak: 0.0, alike: Alike::default(), stored: None, note: None };
        assert_eq!(statistics(truth, &exact), same);
        let off = statistics(Statistics { norm: 5.5, ..truth }, &exact);
        assert_eq!((off.difference, off.error), (0.5, 0.1));
        assert_eq!(statistics(Statistics { max: 5.0, ..truth }, &exact).peak, 0.5);
        let nan = statistics(Statistics { norm: f64::NAN, ..truth }, &exact);
        assert_eq!((nan.error, nan.note.is_some()), (f64::INFINITY, true));
    }
}
