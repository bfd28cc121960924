//! Runs the step in f64 on the operands of a recorded step. Each value is compared with the recorded one and then
//! replaced by it.
//!
//! So every quantity is judged by its own error: errors are neither inherited nor hidden by other operators, and a
//! ReLU or maximum takes the same branch as in the recording.

use super::{
    nameless::Nameless,
    start::Start,
    targets::{PARAMETER, Target, Targets},
};
use crate::{
    GoldenError,
    foreign::{Quantity, Statistics},
    golden::Golden,
    probe::to_f64,
};
use candle_core::{DType, Device, Tensor};
use std::collections::HashMap;
use zoo_engine::Observer;
use zoo_graph::ValueId;
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

    fn shape(&self) -> &[usize] {
        match self {
            Self::Elements(array) => &array.shape,
            Self::Statistics(_, shape) => shape,
        }
    }

    /// The element type of the file, if all elements are stored.
    fn stored(&self) -> Option<ElementType> {
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
    fn wrong(note: String) -> Self {
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
    fn of(found: &[f64], exact: &[f64], parameter: Option<&[f64]>) -> Self {
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

/// Gradients that differ by less than this are not compared with anything else.
const DIFFERENT: f64 = 1e-5;

/// Observes a step in f64, and replaces computed values by recorded ones.
pub(super) struct Forced<'a> {
    pub targets: &'a Targets,
    pub golden: &'a Golden,
    pub start: &'a Start,
    /// The recorded value for a place in `targets`, if any.
    pub given: &'a mut (dyn FnMut(usize) -> Result<Option<Given>, GoldenError> + Send),
    /// By place in `targets`.
    pub found: Vec<Option<Found>>,
    /// Exact losses, by place.
    pub losses: HashMap<usize, f64>,
    /// Recorded outputs without a meaning: some are those of layers that have no name in the recipe.
    pub nameless: Nameless<'a>,
    pub failed: Option<GoldenError>,
    by_value: HashMap<ValueId, Vec<usize>>,
    instead: Option<Tensor>,
}

impl<'a> Forced<'a> {
    pub fn new(
        targets: &'a Targets,
        golden: &'a Golden,
        start: &'a Start,
        nameless: Nameless<'a>,
        given: &'a mut (dyn FnMut(usize) -> Result<Option<Given>, GoldenError> + Send),
    ) -> Self {
        let found = vec![None; targets.list.len()];
        Self {
            targets,
            golden,
            start,
            given,
            found,
            losses: HashMap::new(),
            nameless,
            failed: None,
            by_value: targets.by_value(),
            instead: None,
        }
    }

    /// Compares the quantity at a place. A valid recorded value replaces the computed one.
    fn compare(&mut self, place: usize, exact: &[f64]) -> Result<(), GoldenError> {
        let target = &self.targets.list[place];
        if let (Quantity::Loss(_), [loss]) = (&target.quantity, exact) {
            self.losses.insert(place, *loss);
        }
        let Some(given) = (self.given)(place)? else { return Ok(()) };
        let (shape, stored) = (given.shape(), given.stored());
        // A scalar may be stored as an array of one element.
        let same = shape == target.shape || (shape.iter().product::<usize>() == 1 && exact.len() == 1);
        let mut alike = Alike::default();
        let found = if !same {
            Found::wrong(shapes(target, shape, &given, exact))
        } else {
            let scale = scale(target, exact, self.golden, self.start);
            match given {
                Given::Elements(Array { values: found, .. }) => {
                    let unsound = found.iter().filter(|x| !x.is_finite()).count();
                    if unsound > 0 {
                        Found::wrong(format!("{unsound} of its {} elements are not finite", found.len()))
                    } else {
                        let difference = distance(&found, exact, scale);
                        if let Quantity::Gradient(name) = &target.quantity
                            && difference.error > DIFFERENT
                        {
                            let parameter = self.start.values(self.golden, name, exact.len());
                            alike = Alike::of(&found, exact, parameter.as_deref());
                        }
                        if self.instead.is_none() {
                            self.instead = Some(
                                Tensor::from_vec(found, target.shape.clone(), &Device::Cpu)
                                    .map_err(zoo_engine::EngineError::from)?,
                            );
                        }
                        difference
                    }
                }
                Given::Statistics(found, _) => statistics(found, exact),
            }
        };
        self.found[place] = Some(Found { stored, alike, ..found });
        Ok(())
    }
}

impl Observer for Forced<'_> {
    fn wants(&self, value: ValueId) -> bool {
        self.failed.is_none() && (self.by_value.contains_key(&value) || self.nameless.wants(value))
    }

    fn observe(&mut self, value: ValueId, tensor: &Tensor) {
        self.instead = None;
        let places = self.by_value.get(&value).cloned().unwrap_or_default();
        let compared =
            to_f64(tensor).map_err(|error| GoldenError::from(zoo_engine::EngineError::from(error))).and_then(|exact| {
                if places.is_empty() {
                    self.nameless.find(value, &exact);
                }
                places.into_iter().try_for_each(|place| self.compare(place, &exact))
            });
        self.failed = compared.err();
        // Class indices are compared, but not replaced.
        if tensor.dtype() != DType::F64 {
            self.instead = None;
        }
    }

    fn instead(&mut self, _value: ValueId) -> Option<Tensor> {
        self.instead.take()
    }
}

/// The norm to which an error is relative. For a parameter after the step, it is that of its change, because the
/// parameter itself would hide the error.
fn scale(target: &Target, exact: &[f64], golden: &Golden, start: &Start) -> f64 {
    let start = match &target.quantity {
        Quantity::After { kind, name } if kind == PARAMETER => start.values(golden, name, exact.len()),
        _ => None,
    };
    match start {
        Some(start) => norm(&mut exact.iter().zip(&start).map(|(now, start)| now - start)),
        None => norm(&mut exact.iter().copied()),
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

/// Describes another shape.
fn shapes(target: &Target, shape: &[usize], given: &Given, exact: &[f64]) -> String {
    let [theirs, ours] = [shape, &target.shape].map(zoo_graph::Shape::from);
    let what = format!("shape {theirs}, the recipe has {ours}");
    let is_weight = matches!(target.quantity, Quantity::Start(_) | Quantity::Gradient(_) | Quantity::After { .. });
    match (shape, target.shape.as_slice()) {
        ([a, b], [c, d]) if is_weight && (a, b) == (d, c) => format!("{what}: {}", transposed(given, exact, *c, *d)),
        ([a, rest @ ..], [b, own @ ..]) if !is_weight && rest == own => {
            format!("{what}: {a} samples in place of {b}, which is another batch")
        }
        _ => what,
    }
}

/// Whether a matrix with the transposed shape has the transposed values.
fn transposed(given: &Given, exact: &[f64], rows: usize, columns: usize) -> &'static str {
    let Given::Elements(Array { values: found, .. }) = given else { return "it may be transposed" };
    let same = |r: usize, c: usize| {
        (found[c * rows + r] - exact[r * columns + c]).abs() <= 1e-6 * exact[r * columns + c].abs()
    };
    if found.len() == exact.len() && (0..rows).all(|r| (0..columns).all(|c| same(r, c))) {
        "it is the matrix transposed"
    } else {
        "it may be transposed"
    }
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
