//! The sigmoid-weighted linear unit.

use zoo_graph::{GraphError, ValueId, formula::Formula, ops::DeviceName};

use super::{Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// x / (1 + exp(-x)) (arXiv 1702.03118; PyTorch's SiLU, also called swish).
    pub struct Silu {}
}

impl Word for Silu {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let formula = Formula::define(0, |[x]| [x * x.sigmoid()]);
        at.formula(formula, DeviceName::new("Swish", "SwishGrad"), &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.either(Code::text("nn.SiLU()"), Code::call("functional.silu", vec![Code::value(at.x())]))
    }
}
