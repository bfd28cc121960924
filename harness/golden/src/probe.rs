//! Reads tensors of a running step: statistics and samples, as soon as they exist.

use crate::compare::{Measured, Stats};
use candle_core::{DType, Tensor};
use std::collections::HashMap;
use zoo_engine::Observer;
use zoo_graph::ValueId;

/// What is to be read of a value: one reading per golden tensor that it stands for.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Name under which the result is kept.
    pub key: String,
    /// Flat row-major positions of the samples.
    pub positions: Vec<usize>,
}

/// Observes chosen values of a step.
#[derive(Debug, Default)]
pub struct Probe {
    readings: HashMap<ValueId, Vec<Reading>>,
    measured: HashMap<String, Measured>,
}

impl Probe {
    /// Asks for a reading of a value.
    pub fn ask(&mut self, value: ValueId, reading: Reading) {
        self.readings.entry(value).or_default().push(reading);
    }

    /// What was read under a key.
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
        // A tensor that cannot be read stays unmeasured, and the check fails closed on it.
        let Ok(values) = to_f64(tensor) else { return };
        let stats = Stats::of(values.iter().copied());
        for reading in readings {
            let samples = reading.positions.iter().map(|p| values.get(*p).copied().unwrap_or(f64::NAN)).collect();
            let shape = tensor.dims().to_vec();
            self.measured.insert(reading.key.clone(), Measured { shape, stats, samples });
        }
    }
}

/// All elements in row-major order, in f64.
pub fn to_f64(tensor: &Tensor) -> Result<Vec<f64>, candle_core::Error> {
    tensor.flatten_all()?.to_dtype(DType::F64)?.to_vec1()
}
