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
        /// Added to the scale: 1 for a `weight` that starts at 0 (Gemma).
        pub offset: f64 = 0.0,
    }
}

impl Word for RmsNorm {
    const MODULE: Module = Module::Parameters;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let (eps, shape) = (self.eps, at.shape(x).last().copied().unwrap_or(0));
        let weight = at.parameter("weight", VariableRole::NormWeight, &[shape], &Init::Constant(1.0 - self.offset))?;
        let offset = self.offset;
        let formula = Formula::define(1, |[x, weight]| [x * (x.square().row_mean() + eps).rsqrt() * (weight + offset)]);
        at.formula(formula, DeviceName::new("RmsNorm", "RmsNormGrad"), &[x, weight])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let eps = Code::named("eps", Code::number(at.real("eps", self.eps)));
        let mut arguments = vec![Code::number(at.last()), eps];
        if self.offset == 0.0 {
            return at.module(Code::call("nn.RMSNorm", arguments));
        }
        at.helper(OFFSET);
        arguments.push(Code::named("offset", Code::number(at.real("offset", self.offset))));
        at.module(Code::call("OffsetRMSNorm", arguments))
    }
}

/// In Python.
const OFFSET: &str = r#"
class OffsetRMSNorm(nn.Module):
    """Normalises by the root mean square, with a number added to the weight."""

    def __init__(self, width: int, eps: float, offset: float) -> None:
        super().__init__()
        self.eps = eps
        self.offset = offset
        self.weight = nn.Parameter(torch.full((width,), 1.0 - offset))

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.weight.shape, self.offset + self.weight, self.eps)
"#;
