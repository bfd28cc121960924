//! Mish.

use zoo_graph::{GraphError, ValueId, formula::Formula, ops::DeviceName};

use super::{Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// x * tanh(log(1 + exp(x))) (arXiv 1908.08681).
    pub struct Mish {}
}

impl Word for Mish {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let formula = Formula::define(0, |[x]| [x * x.softplus().tanh()]);
        at.formula(formula, DeviceName::new("Mish", "MishGrad"), &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.either(Code::text("nn.Mish()"), Code::call("functional.mish", vec![Code::value(at.x())]))
    }
}
