//! Product with a tap.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, ValueId, formula::Formula, ops::DeviceName};

use super::resolve::Place;
use super::{Description, Module, Step, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

/// Multiplies by the value of a tap, which is broadcast along axes of one element (`[C, 1, 1]` gates `[C, H, W]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Mul(pub String);

impl Word for Mul {
    const MODULE: Module = Module::None;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        self.0 = at.tap("", &self.0)?;
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let other = at.tapped(&self.0)?;
        at.formula(Formula::define(0, |[x, other]| [x * other]), DeviceName::new("Mul", "MulGrad"), &[x, other])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let other = at.tap(&self.0);
        Ok(at.function(Code::operation(at.x(), "*", other)))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::reading("mul", &self.0).into()
    }
}
