//! The exponential linear unit.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, ValueId, formula::Formula, ops::DeviceName};

use super::{Description, Module, Step, Word};
use crate::lower::Builder;

/// x where x > 0, else alpha * (exp(x) - 1) (arXiv 1511.07289; PyTorch's ELU).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Elu {
    /// Negated limit for x towards minus infinity.
    #[serde(default = "usual_alpha")]
    pub alpha: f64,
}

fn usual_alpha() -> f64 {
    1.0
}

impl Word for Elu {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let formula = Formula::define(0, |[x]| [x.greater(0.0).select(x, x.min(0.0).expm1() * self.alpha)]);
        at.formula(formula, DeviceName::new("Elu", "EluGrad"), &[x])
    }

    fn describe(&self) -> Description<'_> {
        Step::riding(if self.alpha == 1.0 { "elu".to_owned() } else { format!("elu {}", self.alpha) }).into()
    }
}
