//! Calls a module again.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, ValueId};

use super::resolve::Place;
use super::{Body, Description, Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Var};

/// Calls an earlier named module again, with the same parameters (a siamese network). Its taps then refer to this call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Again {
    /// Name of the module, within the module around this layer or in full.
    pub module: String,
    /// The module.
    #[serde(skip)]
    pub called: Body,
}

impl Word for Again {
    const MODULE: Module = Module::None;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        self.called = Body::resolved(vec![at.module(&self.module)?]);
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        at.again(|at| self.called.lower(at, x))
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let x = at.x();
        self.called.emit(at.emitter(), x)
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Description::Again(&self.called.layers)
    }
}
