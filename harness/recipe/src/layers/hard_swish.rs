//! Swish with a piecewise linear sigmoid.

use zoo_graph::{GraphError, ValueId, formula::Formula, ops::DeviceName};

use super::{Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// x * min(max(x + 3, 0), 6) / 6 (arXiv 1905.02244; PyTorch's Hardswish).
    pub struct HardSwish {}
}

impl Word for HardSwish {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let formula = Formula::define(0, |[x]| [x * (x + 3.0).max(0.0).min(6.0) / 6.0]);
        at.formula(formula, DeviceName::new("HardSwish", "HardSwishGrad"), &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.either(Code::text("nn.Hardswish()"), Code::call("functional.hardswish", vec![Code::value(at.x())]))
    }
}
