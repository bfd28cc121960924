//! The hyperbolic tangent.

use zoo_graph::{GraphError, ValueId, formula::Formula, ops::DeviceName};

use super::{Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// Hyperbolic tangent.
    pub struct Tanh {}
}

impl Word for Tanh {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let formula = Formula::define(0, |[x]| [x.tanh()]);
        at.formula(formula, DeviceName::new("Tanh", "TanhGrad"), &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.either(Code::text("nn.Tanh()"), Code::call("torch.tanh", vec![Code::value(at.x())]))
    }
}
