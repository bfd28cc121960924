//! Layers as one module.

use indexmap::IndexMap;
use zoo_graph::{GraphError, ValueId};

use super::resolve::Place;
use super::{Body, Description, Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Var};

zoo_settings::settings! {
    /// Consecutive layers as one module; layers without a name are named by their index from 0 (PyTorch's
    /// nn.Sequential).
    pub struct Sequential {
        /// The layers.
        #[schemars(length(min = 1))]
        pub body: Body,
        /// The return values of the module, if there are several: taps inside it, by key (`0`, `1`, ... for a tuple).
        /// The golden of its output then has one tensor per key. The next layer continues from the last value.
        #[serde(skip_serializing_if = "IndexMap::is_empty")]
        pub returns: IndexMap<String, String> = IndexMap::new(),
    }
}

impl Word for Sequential {
    const MODULE: Module = Module::Container;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        at.indexed_layers("body", &mut self.body);
        at.returns(&self.returns);
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        self.body.lower(at, x)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.inside(|inner, x| self.body.emit(inner, x))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Description::Row(&self.body.layers)
    }

    fn bodies_mut(&mut self) -> Vec<&mut Body> {
        vec![&mut self.body]
    }
}
