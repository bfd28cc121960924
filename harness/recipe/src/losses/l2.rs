//! Half the sum of squares of the parameters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{
    GraphError, ValueId, VariableRole,
    ops::{L2Loss, WeightedSum},
};

use super::{Binding, Diagnostic, Judged, LossTerm, Terms, real};

zoo_settings::settings! {
    /// weight * (sum of squares)/2.
    pub struct L2 {
        /// Factor, which corresponds to the weight decay of an optimizer.
        #[schemars(range(min = 0))]
        pub weight: f64,
        /// The parameters in the sum.
        pub over: L2Over = L2Over::default(),
    }
}

/// The parameters that an L2 loss sums over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum L2Over {
    /// Every trained parameter, including biases and normalisations.
    #[default]
    All,
    /// Weights of convolutions and dense layers only.
    Weights,
}

impl LossTerm for L2 {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        if self.weight == 0.0 {
            return Ok(());
        }
        let all = self.over == L2Over::All;
        let regularised: Vec<(String, ValueId)> = at
            .trained_parameters()
            .filter(|variable| all || variable.role == VariableRole::Weight)
            .map(|variable| (variable.name.clone(), variable.value))
            .collect();
        let squares = regularised
            .into_iter()
            .map(|(name, value)| at.add(format!("loss/l2/{name}"), L2Loss, &[value]))
            .collect::<Result<Vec<_>, _>>()?;
        if !squares.is_empty() {
            at.term(("l2", 1.0), WeightedSum { weights: vec![self.weight; squares.len()] }, &squares)?;
        }
        Ok(())
    }

    fn has_target(&self) -> bool {
        false
    }

    fn emit(&self, at: &mut Judged<'_>) -> Result<(), Diagnostic> {
        if self.weight > 0.0 {
            let all = self.over == L2Over::All;
            let squares = at.squares(&|role| all || *role == VariableRole::Weight);
            at.term("l2", 1.0, squares.around(&format!("{} * ", real(self.weight)), "", Binding::Product));
        }
        Ok(())
    }
}
