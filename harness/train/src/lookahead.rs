//! Slow weights: `train.lookahead`.
//!
//! They are changed between steps and not in the graph of the step, because most steps do not use them.

use candle_core::Tensor;
use std::collections::BTreeMap;
use zoo_engine::Step;
use zoo_graph::VariableRole;

use crate::TrainError;

/// Suffix of slow weights among the variables of a checkpoint.
const SLOW: &str = "/lookahead";

/// The slow weights and running statistics of a network, by the names of its variables.
#[derive(Default)]
pub(crate) struct SlowWeights(BTreeMap<String, Tensor>);

impl SlowWeights {
    /// The current weights and running statistics.
    pub fn of(step: &Step) -> Result<Self, TrainError> {
        let all = step.variables()?.into_iter();
        let moving = all.filter(|(variable, _)| match variable.role {
            VariableRole::Weight
            | VariableRole::Bias
            | VariableRole::NormWeight
            | VariableRole::NormBias
            | VariableRole::RunningMean
            | VariableRole::RunningVar => true,
            VariableRole::Slot { .. } | VariableRole::Average { .. } => false,
        });
        Ok(Self(moving.map(|(variable, tensor)| (variable.name.clone(), tensor)).collect()))
    }

    /// slow = decay*slow + (1 - decay)*weights; then the weights are the slow ones.
    ///
    /// Source: `Tensor.lerp_` with the weight 1 - decay, as in cifar10-airbench.
    pub fn pull(&mut self, step: &mut Step, decay: f64) -> Result<(), TrainError> {
        for (name, slow) in &mut self.0 {
            if decay < 1.0 {
                let fast = step.variable(name)?;
                *slow = (&*slow + ((fast - &*slow)? * (1.0 - decay))?)?;
            }
            step.set_variable(name, slow)?;
        }
        Ok(())
    }

    /// The slow weights under the names of a checkpoint.
    pub fn named(&self) -> impl Iterator<Item = (String, Tensor)> {
        self.0.iter().map(|(name, tensor)| (format!("{name}{SLOW}"), tensor.clone()))
    }

    /// Takes the slow weights out of the variables of a checkpoint.
    pub fn take(variables: &mut BTreeMap<String, Tensor>) -> Self {
        let names: Vec<String> = variables.keys().filter(|name| name.ends_with(SLOW)).cloned().collect();
        let slow = names.into_iter().filter_map(|name| {
            let tensor = variables.remove(&name)?;
            Some((name.strip_suffix(SLOW)?.to_owned(), tensor))
        });
        Self(slow.collect())
    }
}
