//! Sees the values of a running step: samples of each, and how many numbers have which exponent.

use crate::probe::to_f64;
use candle_core::Tensor;
use std::collections::{BTreeMap, HashMap};
use zoo_datasets::hash::sample_positions;
use zoo_engine::Observer;
use zoo_graph::ValueId;

/// Elements of a value that are compared: what a run keeps of each node, whatever its size.
const SAMPLES: usize = 2048;

/// How many numbers have which binary exponent: the `e` of `2^e <= |x| < 2^(e+1)`. Zeros are not counted.
pub type Exponents = BTreeMap<i32, u64>;

/// Keeps samples of every value that it was asked for, and counts exponents.
#[derive(Default)]
pub(super) struct Watch {
    counts_exponents: bool,
    wanted: HashMap<ValueId, (String, Vec<usize>)>,
    samples: HashMap<String, Vec<f64>>,
    exponents: HashMap<String, Exponents>,
}

impl Watch {
    /// One that counts exponents, too.
    pub(super) fn counting() -> Self {
        Self { counts_exponents: true, ..Self::default() }
    }

    /// Asks for the elements of a value that the exact value `exact` is sampled at.
    pub(super) fn ask(&mut self, v: ValueId, name: &str, exact: &str, numel: usize) {
        let positions: Vec<usize> = match numel <= SAMPLES {
            true => (0..numel).collect(),
            false => sample_positions(exact, numel, SAMPLES).collect(),
        };
        // Room for the samples is taken now: small pieces taken during the step, between buffers that come and go,
        // would keep these buffers' memory from going back to the system.
        self.samples.insert(name.to_owned(), Vec::with_capacity(positions.len()));
        self.wanted.insert(v, (name.to_owned(), positions));
    }

    /// The samples of a value, if it was seen.
    pub(super) fn samples(&self, name: &str) -> Option<&[f64]> {
        self.samples.get(name).map(Vec::as_slice).filter(|samples| !samples.is_empty())
    }

    /// Exponents of a value, if it was seen and they are counted.
    pub(super) fn exponents(&self, name: &str) -> Option<&Exponents> {
        self.exponents.get(name)
    }
}

impl Observer for Watch {
    fn wants(&self, value: ValueId) -> bool {
        self.wanted.contains_key(&value)
    }

    fn observe(&mut self, value: ValueId, tensor: &Tensor) {
        let Some((name, positions)) = self.wanted.get(&value) else { return };
        // A value that cannot be read stays without samples, and its node fails for it.
        let Ok(values) = to_f64(tensor) else { return };
        if self.counts_exponents {
            let counts = self.exponents.entry(name.clone()).or_default();
            for x in values.iter().filter(|x| **x != 0.0 && x.is_finite()) {
                *counts.entry(exponent(*x)).or_default() += 1;
            }
        }
        let samples = self.samples.entry(name.clone()).or_default();
        samples.clear();
        samples.extend(positions.iter().map(|p| values.get(*p).copied().unwrap_or(f64::NAN)));
    }
}

/// The `e` of `2^e <= |x| < 2^(e+1)`; numbers below f64's normal ones count as its smallest.
fn exponent(x: f64) -> i32 {
    ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_those_of_the_powers_below() {
        assert_eq!([1.0, 1.99, 2.0, -0.5, 65504.0].map(exponent), [0, 0, 1, -1, 15]);
        assert_eq!(exponent(2f64.powi(-24)), -24);
    }
}
