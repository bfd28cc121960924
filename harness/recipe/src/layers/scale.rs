//! Multiplies by a number.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, ValueId, ops};

use super::{Description, Module, Step, Word};
use crate::lower::Builder;
/// Multiplies by a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// The number.
    pub by: f64,
}

impl Word for Scale {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        at.add(ops::Scale { factor: self.by }, &[x])
    }

    fn describe(&self) -> Description<'_> {
        Step::riding(format!("scale {}", self.by)).into()
    }
}
