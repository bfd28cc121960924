//! Further comparisons of outputs with numbers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::GraphError;

use super::{Bce, Diagnostic, Judged, LossTerm, Mae, Mse, Terms};

/// One comparison with numbers; the name of its component is that under which it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// Mean squared error.
    Mse(Mse),
    /// Mean absolute error.
    Mae(Mae),
    /// Binary cross entropy of independent numbers.
    Bce(Bce),
}

impl Comparison {
    /// The term as a component of this name.
    fn called(&self, name: &str) -> Box<dyn LossTerm> {
        let name = name.to_owned();
        match self.clone() {
            Self::Mse(own) => Box::new(Mse { name, ..own }),
            Self::Mae(own) => Box::new(Mae { name, ..own }),
            Self::Bce(own) => Box::new(Bce { name, ..own }),
        }
    }

    /// Adds the term as a component of this name.
    pub(crate) fn build_as(&self, name: &str, at: &mut Terms<'_>) -> Result<(), GraphError> {
        self.called(name).build(at)
    }

    /// How it is written in PyTorch, as a component of this name.
    pub(crate) fn emit_as(&self, name: &str, at: &mut Judged<'_>) -> Result<(), Diagnostic> {
        self.called(name).emit(at)
    }

    /// The output of the model to which it applies, if named.
    pub(crate) fn prediction(&self) -> Option<&str> {
        match self {
            Self::Mse(own) => own.prediction.as_deref(),
            Self::Mae(own) => own.prediction.as_deref(),
            Self::Bce(own) => own.prediction.as_deref(),
        }
    }
}
