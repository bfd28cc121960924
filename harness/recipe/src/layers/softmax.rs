//! Softmax.

use zoo_graph::{GraphError, ValueId, formula::Formula, ops::DeviceName};

use super::{Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// e^x divided by the sum of e^x along the last axis (PyTorch's Softmax with `dim=-1`).
    pub struct Softmax {}
}

impl Word for Softmax {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        at.formula(Formula::define(1, |[x]| [x.softmax()]), DeviceName::new("SoftmaxV2", "SoftmaxGrad"), &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.either(
            Code::text("nn.Softmax(dim=-1)"),
            Code::call("functional.softmax", vec![Code::value(at.x()), Code::text("dim=-1")]),
        )
    }
}
