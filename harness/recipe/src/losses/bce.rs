//! Binary cross entropy of independent numbers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, formula::Formula};

use super::{Code, Diagnostic, Judged, LossTerm, Terms};

term! {
    /// Mean of -t log(p) - (1 - t) log(1 - p) over all elements: p is the predicted probability of a target t from 0 to
    /// 1 (PyTorch's BCEWithLogitsLoss and BCELoss).
    pub struct Bce called "bce" {
        /// Output of the model, if the model names its outputs.
        pub prediction?: String,
        /// Input of the step, in the shape of the output.
        pub target: String = "target".into(),
        /// What the output is.
        pub of: Binary = Binary::Logits,
    }
}

/// What predicts whether something is so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Binary {
    /// Numbers whose sigmoid is the probability.
    #[default]
    Logits,
    /// Probabilities; their logarithms count as at least -100, as in PyTorch.
    Probabilities,
}

impl LossTerm for Bce {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let entropy = match self.of {
            Binary::Logits => Formula::define(0, |[x, target]| [x.softplus() - x * target]),
            Binary::Probabilities => Formula::define(0, |[p, target]| {
                let [yes, no] = [p, 1.0 - p].map(|share| share.log().max(-100.0));
                [-(target * yes + (1.0 - target) * no)]
            }),
        };
        at.mean_term((&self.name, self.weight), self.prediction.as_deref(), &self.target, entropy)
    }

    fn emit(&self, at: &mut Judged<'_>) -> Result<(), Diagnostic> {
        let operands = at.compared(self.prediction.as_deref(), &self.target)?;
        let function = match self.of {
            Binary::Logits => "functional.binary_cross_entropy_with_logits",
            Binary::Probabilities => "functional.binary_cross_entropy",
        };
        at.term(&self.name, self.weight, Code::call(function, operands));
        Ok(())
    }

    fn prediction(&self) -> Option<&str> {
        self.prediction.as_deref()
    }
}
