//! The logistic function.

use zoo_graph::{GraphError, ValueId, formula::Formula, ops::DeviceName};

use super::{Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// 1/(1 + exp(-x)).
    pub struct Sigmoid {}
}

impl Word for Sigmoid {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let formula = Formula::define(0, |[x]| [x.sigmoid()]);
        at.formula(formula, DeviceName::new("Sigmoid", "SigmoidGrad"), &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.either(Code::text("nn.Sigmoid()"), Code::call("torch.sigmoid", vec![Code::value(at.x())]))
    }
}
