//! The exponential linear unit.

use zoo_graph::{GraphError, ValueId, formula::Formula, ops::DeviceName};

use super::{Description, Module, Step, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// x where x > 0, else alpha * (exp(x) - 1) (arXiv 1511.07289; PyTorch's ELU).
    pub struct Elu {
        /// Negated limit for x towards minus infinity.
        pub alpha: f64 = 1.0,
    }
}

impl Word for Elu {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let formula = Formula::define(0, |[x]| [x.greater(0.0).select(x, x.min(0.0).expm1() * self.alpha)]);
        at.formula(formula, DeviceName::new("Elu", "EluGrad"), &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let alpha = Code::named("alpha", Code::number(at.real("alpha", self.alpha)));
        let more = if self.alpha == 1.0 { Vec::new() } else { vec![alpha] };
        at.either(Code::call("nn.ELU", more.clone()), Code::applied("functional.elu", at.x(), more))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::riding(if self.alpha == 1.0 { "elu".to_owned() } else { format!("elu {}", self.alpha) }).into()
    }
}
