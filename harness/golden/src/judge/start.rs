//! The start of a recorded step: that of the golden, or what the recorded step before has left behind.

use crate::{GoldenError, bound::set_weights, golden::Golden, manifest::Optimizer, probe::to_f64, weights};
use candle_core::{DType, Tensor};
use std::collections::HashMap;
use zoo_engine::{EngineError, Scalars, Step, candle_dtype};

/// The start of a step.
pub(super) struct Start {
    /// Number of recorded steps before.
    pub step: u64,
    /// Its learning rate, without the factors of groups.
    pub rate: f64,
    /// Variables in f64, by name; none: those of the golden.
    variables: Option<HashMap<String, Tensor>>,
}

impl Start {
    /// The start of the first step.
    pub fn first(rate: f64) -> Self {
        Self { step: 0, rate, variables: None }
    }

    /// The start after the n-th step, with the variables that it has left behind.
    ///
    /// # Errors
    /// An error of candle.
    pub fn after(step: &Step, n: u64, rate: f64) -> Result<Self, GoldenError> {
        let variables = step.variables()?.into_iter();
        let exact = |tensor: Tensor| tensor.to_dtype(DType::F64).map_err(EngineError::from);
        let variables = variables.map(|(variable, tensor)| Ok((variable.name.clone(), exact(tensor)?)));
        let variables = variables.collect::<Result<_, EngineError>>()?;
        Ok(Self { step: n + 1, rate, variables: Some(variables) })
    }

    /// Sets the variables of a step.
    ///
    /// # Errors
    /// An error of candle.
    pub fn set(&self, step: &mut Step, golden: &Golden) -> Result<(), GoldenError> {
        let Some(variables) = &self.variables else { return set_weights(step, golden, false) };
        let types = step.graph().variables.iter();
        let types: Vec<_> = types.map(|v| (v.name.clone(), step.graph().ty(v.value).dtype)).collect();
        for (name, dtype) in types {
            if let Some(tensor) = variables.get(&name) {
                let tensor = tensor.to_dtype(candle_dtype(dtype)).map_err(EngineError::from)?;
                step.set_variable(&name, &tensor)?;
            }
        }
        Ok(())
    }

    /// The elements of a variable.
    pub fn values(&self, golden: &Golden, name: &str, numel: usize) -> Option<Vec<f64>> {
        if let Some(variables) = &self.variables {
            return to_f64(variables.get(name)?).ok();
        }
        let manifest = &golden.manifest;
        match golden.start(name, numel) {
            Some(stored) => Some(stored.to_vec()),
            None => {
                let start = weights::initial(manifest.init.get(name)?, &manifest.salt, name, numel);
                Some(start.into_iter().map(f64::from).collect())
            }
        }
    }

    /// The scalars of the step.
    pub fn scalars(&self, loss_scale: f64) -> Scalars {
        Scalars { learning_rate: self.rate, step: self.step, loss_scale, ..Scalars::default() }
    }

    /// The learning rate of a parameter.
    pub fn rate_of(&self, optimizer: &Optimizer, parameter: &str) -> f64 {
        optimizer.lr_of(parameter) * self.rate / optimizer.base_lr()
    }
}
