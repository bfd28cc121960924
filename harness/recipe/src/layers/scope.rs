//! A name prefix that is not a module.

use zoo_graph::{GraphError, ValueId};

use super::resolve::Place;
use super::{Body, Description, Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Var};

zoo_settings::settings! {
    /// Layers under a common name that is not called as a module itself.
    pub struct Scope {
        /// Put before the names inside.
        pub name: String,
        /// The layers.
        #[schemars(length(min = 1))]
        pub body: Body,
    }
}

impl Word for Scope {
    const MODULE: Module = Module::None;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        at.layers_within(&self.name, "body", &mut self.body);
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        self.body.lower(at, x)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let x = at.x();
        self.body.emit(at.emitter(), x)
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Description::Row(&self.body.layers)
    }

    fn bodies_mut(&mut self) -> Vec<&mut Body> {
        vec![&mut self.body]
    }
}
