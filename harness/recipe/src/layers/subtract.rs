//! Difference with a tap.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, ValueId, formula::Formula, ops};

use super::resolve::Place;
use super::{Description, Module, Step, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

/// Subtracts the value of a tap; axes of one element are repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Subtract(pub String);

impl Word for Subtract {
    const MODULE: Module = Module::None;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        self.0 = at.tap("", &self.0)?;
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let other = at.tapped(&self.0)?;
        let difference = ops::WeightedSum { weights: vec![1.0, -1.0] };
        at.broadcast(None, difference, Formula::define(0, |[x, other]| [x - other]), [x, other])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let other = at.tap(&self.0);
        Ok(at.function(Code::operation(at.x(), "-", other)))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::reading("subtract", &self.0).into()
    }
}
