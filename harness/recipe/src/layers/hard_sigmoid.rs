//! Piecewise linear approximation of the sigmoid.

use zoo_graph::{GraphError, ValueId, formula::Formula, ops::DeviceName};

use super::{Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// min(max(x + 3, 0), 6) / 6 (arXiv 1905.02244; PyTorch's Hardsigmoid).
    pub struct HardSigmoid {}
}

impl Word for HardSigmoid {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let formula = Formula::define(0, |[x]| [(x + 3.0).max(0.0).min(6.0) / 6.0]);
        at.formula(formula, DeviceName::new("HardSigmoid", "HardSigmoidGrad"), &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.either(Code::text("nn.Hardsigmoid()"), Code::call("functional.hardsigmoid", vec![Code::value(at.x())]))
    }
}
