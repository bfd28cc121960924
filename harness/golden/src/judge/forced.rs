//! Runs the step in f64 on the operands of a recorded step. Each value is compared with the recorded one and then
//! replaced by it.
//!
//! So every quantity is judged by its own error: errors are neither inherited nor hidden by other operators, and a
//! ReLU or maximum takes the same branch as in the recording.

use super::{
    found::{Alike, Found, Given, distance, norm, statistics},
    nameless::Nameless,
    start::Start,
    targets::{PARAMETER, Target, Targets},
};
use crate::{GoldenError, foreign::Quantity, golden::Golden, probe::to_f64};
use candle_core::{DType, Device, Tensor};
use std::collections::HashMap;
use zoo_engine::Observer;
use zoo_graph::ValueId;
use zoo_tensors::Array;

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
