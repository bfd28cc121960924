//! The step on one device: what the ranks have to compute together.

use super::{LIMIT, SplitOptions, whole::Whole};
use crate::{
    GoldenError, Precision,
    compare::{F64_MOST, NO_DIGITS, ORDERS, TENSOR_FLOOR},
    probe::to_f64,
    record::{REFERENCE, moved::Moving},
};
use candle_core::{Device, Tensor};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};
use zoo_engine::{EngineError, Inputs, Kernels, Observer, Options, Scalars, Step, candle_dtype};
use zoo_graph::{Graph, TapState, ValueId};

/// Smallest floor in f64: a tenth of the largest error that another order of sums may have.
const FLOOR: f64 = 1e-10;

/// What distinguishes the runs that are moved in the last place.
const SALTS: [&str; 3] = ["", "second ", "third "];

/// Largest error in f32, however ill-conditioned a step is: a fault of a split is a missing term or a factor.
const F32_MOST: f64 = 0.1;

/// A compared value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    /// A variable or input before the first step.
    Start(String),
    /// A module output of the first step.
    Output(String),
    /// The gradient of a parameter in one of the first steps, from 0.
    Gradient(usize, String),
    /// A variable after a step, from 0.
    Variable(usize, String),
    /// A loss or metric of a step, from 0.
    Scalar(usize, String),
}

/// Steps of which gradients are compared: what is left over from the step before shows in the second.
pub(super) const OBSERVED: usize = 2;

impl Key {
    /// The same of the step before.
    pub fn before(&self) -> Option<Self> {
        let before = |step: &usize| step.checked_sub(1);
        Some(match self {
            Self::Start(_) | Self::Output(_) => return None,
            Self::Gradient(step, name) => Self::Gradient(before(step)?, name.clone()),
            Self::Variable(step, name) => Self::Variable(before(step)?, name.clone()),
            Self::Scalar(step, name) => Self::Scalar(before(step)?, name.clone()),
        })
    }

    /// The step that it is of.
    pub fn step(&self) -> usize {
        match self {
            Self::Start(_) | Self::Output(_) => 0,
            Self::Gradient(step, _) | Self::Variable(step, _) | Self::Scalar(step, _) => *step,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(name) | Self::Output(name) | Self::Gradient(0, name) => f.write_str(name),
            Self::Variable(0, name) | Self::Scalar(0, name) => f.write_str(name),
            Self::Scalar(step, name) => write!(f, "{name} of step {}", step + 1),
            Self::Gradient(step, name) => write!(f, "gradient of {name} in step {}", step + 1),
            Self::Variable(step, name) => write!(f, "{name} after {} steps", step + 1),
        }
    }
}

/// The value of one device.
pub(super) struct Exact {
    /// Its elements.
    pub values: Vec<f64>,
    /// For a variable, its elements before the first step.
    pub before: Option<Vec<f64>>,
    /// The relative error that counts as one floor.
    pub floor: f64,
    /// Whether rounding leaves it no digit: such a value is judged by its size alone.
    pub without_digits: bool,
}

impl Exact {
    /// A value, and the same in f32, moved in the last place: in one run, or in several.
    fn new<'m>(
        values: Vec<f64>,
        before: Option<Vec<f64>>,
        moved: impl IntoIterator<Item = &'m [f64]>,
        precision: Precision,
    ) -> Self {
        // Rounding errors have the size of the last place.
        let (least, most, scale) = match precision {
            Precision::F64 => (FLOOR, F64_MOST, f64::EPSILON / f64::from(f32::EPSILON)),
            Precision::F32 => (TENSOR_FLOOR, F32_MOST, 1.0),
        };
        let mut exact = Self { values, before, floor: least, without_digits: false };
        // A moved run that is not finite explains nothing.
        let by_rounding = moved.into_iter().map(|moved| scale * exact.error(moved)).filter(|error| error.is_finite());
        let by_rounding = by_rounding.fold(0.0, f64::max);
        exact.without_digits = by_rounding >= NO_DIGITS;
        exact.floor = least.max(ORDERS * by_rounding);
        if !exact.without_digits {
            exact.floor = exact.floor.min(most / LIMIT);
        }
        exact
    }

    /// The error of values, relative to the tensor, or to its change if it is a variable. If that is zero, the error
    /// itself.
    pub fn error(&self, values: &[f64]) -> f64 {
        if values.len() != self.values.len() {
            return f64::INFINITY;
        }
        let difference = distance(values, &self.values);
        let size = match &self.before {
            Some(before) => distance(&self.values, before),
            None => self.values.iter().map(|x| x * x).sum::<f64>().sqrt(),
        };
        match difference {
            0.0 => 0.0,
            _ if difference.is_nan() => f64::INFINITY,
            _ if size > 0.0 => difference / size,
            _ => difference,
        }
    }
}

impl Exact {
    /// Whether values are as near to others as rounding explains.
    pub fn within(&self, values: &[f64], others: &[f64]) -> bool {
        let moved = Self { values: others.to_vec(), before: self.before.clone(), ..*self };
        moved.error(values) <= LIMIT * self.floor
    }
}

/// The length of the difference of two tensors.
pub(super) fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt()
}

/// All values of one device, and how far rounding moves them.
pub(super) struct Truth {
    exact: HashMap<Key, Exact>,
    /// Losses and metrics of each step.
    losses: Vec<Vec<Exact>>,
}

impl Truth {
    /// Runs the step on one device in f64, and again in f32, moved in the last place.
    pub fn of(
        whole: &Whole,
        options: &SplitOptions,
        (learning_rate, start, inputs): (f64, &Vec<Vec<f32>>, &Inputs),
        progress: &mut dyn FnMut(&str),
    ) -> Result<Self, GoldenError> {
        let run = |graph, moved| Values::of(graph, (start, inputs), (learning_rate, options.steps), moved);
        progress("one device in f64");
        let exact = run(whole.graph.clone(), None)?;
        if let Some(step) = exact.losses.iter().position(|losses| losses.iter().any(|loss| !loss.is_finite())) {
            return Err(GoldenError::NoTruth { step: step + 1 });
        }
        progress("one device in f32, moved in the last place");
        let moved = SALTS[..options.roundings.min(SALTS.len())].iter().map(|salt| run(whole.in_f32()?, Some(salt)));
        let moved = moved.collect::<Result<Vec<_>, _>>()?;
        let whole = &whole.graph;
        let before: HashMap<&str, &Vec<f32>> = whole.variables.iter().map(|v| v.name.as_str()).zip(start).collect();
        let mut all = HashMap::new();
        for (key, values) in exact.tensors {
            let before = match &key {
                Key::Variable(_, name) => before.get(name.as_str()).map(|v| v.iter().map(|x| f64::from(*x)).collect()),
                Key::Start(_) | Key::Output(_) | Key::Gradient(..) | Key::Scalar(..) => None,
            };
            let moved = moved.iter().filter_map(|moved| moved.tensors.get(&key)).map(Vec::as_slice);
            let exact = Exact::new(values, before, moved, options.precision);
            all.insert(key, exact);
        }
        let losses = exact.losses.iter().enumerate().map(|(step, losses)| {
            let of = |(n, exact): (usize, &f64)| {
                let moved = moved.iter().map(|moved| std::slice::from_ref(&moved.losses[step][n]));
                Exact::new(vec![*exact], None, moved, options.precision)
            };
            losses.iter().enumerate().map(of).collect()
        });
        Ok(Self { exact: all, losses: losses.collect() })
    }

    /// Adds the variables and inputs before the first step, of which each rank has to have exactly its part.
    pub fn add_start(&mut self, (whole, start, inputs): (&Graph, &[Vec<f32>], &Inputs)) -> Result<(), GoldenError> {
        let variables = whole.variables.iter().zip(start);
        let variables = variables.map(|(v, values)| (&v.name, values.iter().map(|x| f64::from(*x)).collect()));
        let given = whole.inputs.iter().filter_map(|input| Some((&input.name, inputs.get(&input.name)?)));
        let given = given.map(|(name, tensor)| Ok((name, to_f64(tensor).map_err(EngineError::from)?)));
        let given = given.collect::<Result<Vec<_>, GoldenError>>()?;
        let exact = |(name, values)| (Key::Start(String::clone(name)), Exact::new(values, None, [], Precision::F32));
        self.exact.extend(variables.chain(given).map(exact));
        Ok(())
    }

    pub fn of_key(&self, key: &Key) -> Option<&Exact> {
        self.exact.get(key)
    }

    /// A loss or metric by its name.
    pub fn loss_named(&self, whole: &Graph, step: usize, name: &str) -> Option<&Exact> {
        let n = whole.losses.iter().chain(&whole.metrics).position(|(known, _)| known == name)?;
        self.losses.get(step)?.get(n)
    }

    pub fn loss(&self, step: usize, n: usize) -> &Exact {
        &self.losses[step][n]
    }
}

/// What changes from step to step.
pub(super) fn scalars(learning_rate: f64, step: usize) -> Scalars {
    Scalars { learning_rate, step: step as u64, ..Scalars::default() }
}

/// The values of a run.
pub(super) struct Values {
    pub tensors: BTreeMap<Key, Vec<f64>>,
    /// Losses and metrics by step.
    pub losses: Vec<Vec<f64>>,
}

impl Values {
    /// Runs steps; `moved`: in the last place, with this salt.
    pub fn of(
        graph: Graph,
        (start, inputs): (&[Vec<f32>], &Inputs),
        (learning_rate, steps): (f64, usize),
        moved: Option<&str>,
    ) -> Result<Self, GoldenError> {
        // What rounding changes is known well enough from fast kernels.
        let options = match moved {
            Some(_) => Options { kernels: Kernels::Fast { fusion: false }, ..REFERENCE },
            None => REFERENCE,
        };
        let mut step = Step::new(graph, options)?;
        let graph = step.graph().clone();
        for (variable, values) in graph.variables.iter().zip(start) {
            let ty = graph.ty(variable.value);
            let tensor = Tensor::from_vec(values.clone(), ty.shape.to_vec(), &Device::Cpu)
                .and_then(|t| t.to_dtype(candle_dtype(ty.dtype)))
                .map_err(EngineError::from)?;
            step.set_variable(&variable.name, &tensor)?;
        }
        let mut given = Inputs::new();
        for input in &graph.inputs {
            let tensor = inputs.get(&input.name).map(|t| t.to_dtype(candle_dtype(graph.ty(input.value).dtype)));
            if let Some(tensor) = tensor {
                given = given.with(&input.name, tensor.map_err(EngineError::from)?);
            }
        }
        let mut values = Self { tensors: BTreeMap::new(), losses: Vec::new() };
        for n in 0..steps {
            let mut read = Read::of(&graph, n);
            let result = match moved {
                None => step.run(&given, scalars(learning_rate, n), &mut read)?,
                Some(salt) => step.run(&given, scalars(learning_rate, n), &mut Moving::new(&graph, &mut read, salt))?,
            };
            values.tensors.extend(read.values);
            values.losses.push(result.losses.into_iter().chain(result.metrics).map(|(_, value)| value).collect());
            if n > 0 && n + 1 < steps {
                continue;
            }
            for (variable, tensor) in step.variables()?.into_iter().filter(|(variable, _)| variable.next.is_some()) {
                let tensor = to_f64(&tensor).map_err(EngineError::from)?;
                values.tensors.insert(Key::Variable(n, variable.name.clone()), tensor);
            }
        }
        Ok(values)
    }
}

/// Reads module outputs and gradients of a step.
struct Read {
    keys: HashMap<ValueId, Vec<Key>>,
    values: BTreeMap<Key, Vec<f64>>,
}

impl Read {
    fn of(graph: &Graph, step: usize) -> Self {
        let mut keys: HashMap<ValueId, Vec<Key>> = HashMap::new();
        for tap in graph.taps.iter().filter(|_| step == 0) {
            if let TapState::Value(value) = tap.state {
                keys.entry(value).or_default().push(Key::Output(tap.key()));
            }
        }
        for (id, value) in graph.gradients.iter().filter(|_| step < OBSERVED) {
            keys.entry(*value).or_default().push(Key::Gradient(step, graph.variable(*id).name.clone()));
        }
        Self { keys, values: BTreeMap::new() }
    }
}

impl Observer for Read {
    fn wants(&self, value: ValueId) -> bool {
        self.keys.contains_key(&value)
    }

    fn observe(&mut self, value: ValueId, tensor: &Tensor) {
        // A tensor that cannot be read stays out, and its comparison fails.
        let Ok(values) = to_f64(tensor) else { return };
        for key in self.keys.get(&value).into_iter().flatten() {
            self.values.insert(key.clone(), values.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_follows_rounding_but_not_without_bound() {
        let floor = |moved: f64, precision| {
            let exact = Exact::new(vec![1.0, 0.0], None, [&[1.0, moved][..]], precision);
            (exact.floor, exact.without_digits)
        };
        let in_f32 = f64::from(f32::EPSILON) / f64::EPSILON;
        assert_eq!(floor(0.0, Precision::F64), (FLOOR, false));
        assert_eq!(floor(1e-10 * in_f32, Precision::F64), (1e-9, false));
        assert_eq!(floor(1e-4 * in_f32, Precision::F64), (F64_MOST / LIMIT, false));
        assert_eq!(floor(0.5 * in_f32, Precision::F64), (5.0, true));
        assert_eq!(floor(1e-4, Precision::F32), (1e-3, false));
        assert_eq!(floor(5e-3, Precision::F32), (F32_MOST / LIMIT, false), "a missing term is no rounding");
        assert_eq!(floor(f64::NAN, Precision::F32), (TENSOR_FLOOR, false), "it explains nothing");
    }

    #[test]
    fn the_worst_of_several_roundings_counts() {
        let exact = Exact::new(vec![1.0, 0.0], None, [&[1.0, 1e-6][..], &[1.0, 1e-5]], Precision::F32);
        assert!((exact.floor / 1e-4 - 1.0).abs() < 1e-9, "{}", exact.floor);
    }

    #[test]
    fn a_change_is_what_an_error_is_relative_to() {
        let exact = Exact::new(vec![3.0, 4.0], Some(vec![3.0, 3.0]), [], Precision::F64);
        assert_eq!(exact.error(&[3.0, 4.5]), 0.5);
        assert_eq!(exact.error(&[3.0]), f64::INFINITY);
        assert_eq!(exact.error(&[3.0, f64::NAN]), f64::INFINITY);
        let zero = Exact::new(vec![0.0], None, [], Precision::F64);
        assert_eq!((zero.error(&[0.0]), zero.error(&[2.0])), (0.0, 2.0));
    }
}
