//! Normalisation of each channel of each sample.

use zoo_graph::{GraphError, ValueId, formula::Formula, ops};

use super::layer_norm::normalised;
use super::{Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// Normalises each channel of each sample with its mean and biased variance, without parameters (arXiv 1607.08022;
    /// PyTorch's InstanceNorm2d with default settings).
    pub struct InstanceNorm {
        /// Added to the variance.
        #[schemars(range(min = 0, max = 1))]
        pub eps: f64 = 1e-5,
    }
}

impl Word for InstanceNorm {
    const MODULE: Module = Module::Function;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let axes = at.shape(x).len().saturating_sub(2);
        let eps = self.eps;
        let formula = Formula::define(axes, |[x]| [normalised(x, eps)]);
        at.formula(formula, ops::DeviceName::new("InstanceNorm", "InstanceNormGrad"), &[x])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let mut eps = Vec::new();
        if self.eps != 1e-5 {
            eps.push(Code::named("eps", Code::number(at.real("eps", self.eps))));
        }
        let class = if at.input().len() == 4 { "nn.InstanceNorm2d" } else { "nn.InstanceNorm1d" };
        let arguments = std::iter::once(Code::number(at.extent(1))).chain(eps.clone()).collect();
        at.either(Code::call(class, arguments), Code::applied("functional.instance_norm", at.x(), eps))
    }
}
