//! ReLU with an upper bound of 6.

use zoo_graph::{GraphError, ValueId, ops};

use super::{Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// min(max(x, 0), 6).
    pub struct Relu6 {}
}

impl Word for Relu6 {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        at.add(ops::Relu { rectifier: ops::Rectifier::Relu6 }, &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.either(Code::text("nn.ReLU6()"), Code::call("functional.relu6", vec![Code::value(at.x())]))
    }
}
