//! Reads tensors of a running step as soon as they exist: statistics and samples.

use crate::{compare::Measured, stats::Stats};
use candle_core::{DType, Error, Tensor, WithDType};
use std::collections::HashMap;
use zoo_engine::{Elements, Observer};
use zoo_graph::ValueId;

/// What to read of a value: one reading for each golden tensor that it corresponds to.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Name of the result.
    pub key: String,
    /// Flat row-major positions of the samples.
    pub positions: Vec<usize>,
}

/// Observes selected values of a step.
#[derive(Debug, Default)]
pub struct Probe {
    readings: HashMap<ValueId, Vec<Reading>>,
    measured: HashMap<String, Measured>,
}

impl Probe {
    /// Requests a reading of a value.
    pub fn ask(&mut self, value: ValueId, reading: Reading) {
        self.readings.entry(value).or_default().push(reading);
    }

    /// The result under a key.
    pub fn measured(&self, key: &str) -> Option<&Measured> {
        self.measured.get(key)
    }
}

impl Observer for Probe {
    fn wants(&self, value: ValueId) -> bool {
        self.readings.contains_key(&value)
    }

    fn observe(&mut self, value: ValueId, tensor: &Tensor) {
        let Some(readings) = self.readings.get(&value) else { return };
        let measured = match tensor.dtype() {
            DType::F32 => read::<f32>(tensor, readings),
            _ => read::<f64>(tensor, readings),
        };
        // A tensor that cannot be read stays unmeasured, and the check fails closed on it.
        self.measured.extend(measured.into_iter().flatten());
    }
}

/// Takes the readings without copying the tensor.
fn read<T: WithDType + Into<f64>>(tensor: &Tensor, readings: &[Reading]) -> Result<Vec<(String, Measured)>, Error> {
    let elements = Elements::of(tensor)?;
    let values = elements.slice::<T>()?;
    let stats = Stats::of(values);
    let measured = |reading: &Reading| {
        let sample = |p: &usize| values.get(*p).map_or(f64::NAN, |x| (*x).into());
        let samples = reading.positions.iter().map(sample).collect();
        (reading.key.clone(), Measured { shape: tensor.dims().to_vec(), stats, samples })
    };
    Ok(readings.iter().map(measured).collect())
}

/// All elements in row-major order, in f64.
pub fn to_f64(tensor: &Tensor) -> Result<Vec<f64>, Error> {
    let tensor = tensor.flatten_all()?;
    match tensor.dtype() {
        DType::F32 => Ok(Elements::of(&tensor)?.slice::<f32>()?.iter().copied().map(f64::from).collect()),
        _ => tensor.to_dtype(DType::F64)?.to_vec1(),
    }
}
