//! Dense layer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, ValueId, VariableRole, ops};

use super::{Description, Module, Step, Word, Work};
use crate::lower::{Builder, Gives};
use crate::resolve::Place;
use crate::schema::{Size, WeightInit};
/// Dense layer on `[features]` with a weight `[out, in]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Number of outputs.
    pub out: Size,
    /// Whether a bias is added.
    #[serde(default = "super::yes")]
    pub bias: bool,
    /// Whether the reference passes the parameters to a function and never calls the module, as the attention of
    /// torchvision's Swin does: a golden then has no output of this module.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub functional: bool,
    /// Initialisation of the parameters.
    #[serde(default, skip_serializing_if = "WeightInit::is_empty")]
    pub init: WeightInit,
}

impl Word for Linear {
    const MODULE: Module = Module::Parameters;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        self.init = self.init.or(&at.init().linear);
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        if self.functional {
            at.gives(Gives::Nothing);
        }
        let inputs = at.shape(x).last().copied().unwrap_or(0);
        let shape = [self.out.0, inputs];
        let mut operands = vec![x, at.parameter("weight", VariableRole::Weight, &shape, &self.init.weight())?];
        if self.bias {
            operands.push(at.parameter("bias", VariableRole::Bias, &[self.out.0], &self.init.bias())?);
        }
        at.add(ops::MatMul { transpose_a: false, transpose_b: true }, &operands)
    }

    fn describe(&self) -> Description<'_> {
        Step::new(Work::Dense, "linear").into()
    }
}
