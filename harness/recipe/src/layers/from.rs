//! Continues from another value.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, ValueId};

use super::resolve::Place;
use super::{Description, Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Var};

/// Continues from the value of a tap or an input of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct FromTap(pub String);

impl Word for FromTap {
    const MODULE: Module = Module::None;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        self.0 = at.tap("", &self.0)?;
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, _x: ValueId) -> Result<ValueId, GraphError> {
        at.tapped(&self.0)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        Ok(at.tap(&self.0))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Description::From(&self.0)
    }
}
