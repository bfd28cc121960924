//! A learned factor per channel.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, Init, ValueId, VariableRole, formula::Formula, ops::DeviceName};

use super::{Description, Module, Step, Word};
use crate::lower::{Builder, Gives};

/// Multiplies each channel of `[C, H, W]`, or each of the last axis of anything else, by a learned factor (arXiv
/// 2103.17239). Its name is that of the parameter, `[C, 1, 1]` or `[E]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerScale {
    /// What every factor starts at.
    #[serde(default = "small")]
    pub start: f64,
}

fn small() -> f64 {
    1e-6
}

impl Word for LayerScale {
    const MODULE: Module = Module::Parameters;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        at.gives(Gives::Nothing);
        let shape = match at.shape(x)[..] {
            [_, c, _, _] => vec![c, 1, 1],
            ref other => other.iter().rev().take(1).copied().collect(),
        };
        let factor = at.parameter("", VariableRole::Weight, &shape, &Init::Constant(self.start))?;
        let name = DeviceName::new("Mul", "MulGrad");
        at.formula(Formula::define(0, |[x, factor]| [x * factor]), name, &[x, factor])
    }

    fn describe(&self) -> Description<'_> {
        Step::riding("layer_scale").into()
    }
}
