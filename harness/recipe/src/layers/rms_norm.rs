//! Normalisation by the root mean square.

use zoo_graph::{GraphError, Init, ValueId, VariableRole, formula::Formula, ops::DeviceName};

use super::{Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// x / sqrt(mean of x^2 along the last axis + eps), with a scale per element (arXiv 1910.07467; PyTorch's RMSNorm).
    /// Parameter `weight`.
    pub struct RmsNorm {
        /// Added to the mean square.
        #[schemars(range(min = 0, max = 1))]
        pub eps: f64 = 1e-6,
    }
}

impl Word for RmsNorm {
    const MODULE: Module = Module::Parameters;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let (eps, shape) = (self.eps, at.shape(x).last().copied().unwrap_or(0));
        let weight = at.parameter("weight", VariableRole::NormWeight, &[shape], &Init::Constant(1.0))?;
        let formula = Formula::define(1, |[x, weight]| [x * (x.square().row_mean() + eps).rsqrt() * weight]);
        at.formula(formula, DeviceName::new("RmsNorm", "RmsNormGrad"), &[x, weight])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let eps = Code::named("eps", Code::number(at.real("eps", self.eps)));
        let arguments = vec![Code::number(at.last()), eps];
        at.module(Code::call("nn.RMSNorm", arguments))
    }
}
