//! ReLU.

use zoo_graph::{GraphError, ValueId, ops};

use super::{Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// max(x, 0).
    pub struct Relu {}
}

impl Word for Relu {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        at.add(ops::Relu { rectifier: ops::Rectifier::Relu }, &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.either(Code::text("nn.ReLU()"), Code::call("functional.relu", vec![Code::value(at.x())]))
    }
}
