//! Names a value.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, ValueId};

use super::resolve::Place;
use super::{Description, Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Var};

/// Stores the current value under a name, for `from` and other layers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Tap(pub String);

impl Word for Tap {
    const MODULE: Module = Module::None;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        self.0 = at.new_tap(&self.0)?;
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        at.keep(&self.0, x);
        Ok(x)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.keep(&self.0, at.x());
        Ok(at.x())
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Description::Tap(&self.0)
    }
}
