//! Layers that are never called.

use zoo_graph::{GraphError, ValueId};

use super::resolve::Place;
use super::{Body, Description, Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Var};

zoo_settings::settings! {
    /// Layers that are never called and never trained, but whose parameters exist in a checkpoint.
    pub struct Unused {
        /// The layers, as if they were called here.
        #[schemars(length(min = 1))]
        pub body: Body,
    }
}

impl Word for Unused {
    const MODULE: Module = Module::None;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        at.layers("body", &mut self.body);
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        at.declare(|at| self.body.lower(at, x))?;
        Ok(x)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.unused(|emitter, x| self.body.emit(emitter, x))?;
        Ok(at.x())
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Description::Unused(&self.body.layers)
    }
}
