//! Layers that are never called.

use indexmap::IndexMap;
use zoo_graph::{GraphError, Init, ValueId, VariableRole};

use super::resolve::Place;
use super::{Body, Description, Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::Size;

zoo_settings::settings! {
    /// Layers that are never called and never trained, but whose parameters exist in a checkpoint: as layers, or as
    /// parameters alone.
    pub struct Unused {
        /// The layers, as if they were called here.
        #[serde(skip_serializing_if = "Body::is_empty")]
        pub body: Body = Body::default(),
        /// Parameters by their names within the module around, with their shapes: `{old_head.bias: [5]}`.
        #[serde(skip_serializing_if = "IndexMap::is_empty")]
        pub parameters: IndexMap<String, Vec<Size>> = IndexMap::new(),
    }
}

impl Word for Unused {
    const MODULE: Module = Module::None;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        if self.body.is_empty() && self.parameters.is_empty() {
            at.error("", "neither layers (`body`) nor `parameters` are unused");
            return None;
        }
        let full = self.parameters.iter().map(|(name, shape)| (at.beside(name), shape.clone()));
        self.parameters = full.collect();
        at.layers("body", &mut self.body);
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        at.declare(|at| self.body.lower(at, x))?;
        for (name, shape) in &self.parameters {
            let shape: Vec<usize> = shape.iter().map(|extent| extent.0).collect();
            let role = if shape.len() > 1 { VariableRole::Weight } else { VariableRole::Bias };
            at.parameter_called(name.clone(), role, &shape, &Init::Constant(0.0))?;
        }
        Ok(x)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.unused(|emitter, x| self.body.emit(emitter, x))?;
        for (name, shape) in &self.parameters {
            let sizes = shape.iter().map(|extent| Code::count(extent.0)).collect();
            at.parameter_beside(name, Code::call("torch.zeros", sizes))?;
        }
        Ok(at.x())
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Description::Unused(&self.body.layers)
    }
}
