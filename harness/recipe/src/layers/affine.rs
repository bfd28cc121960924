//! A learned factor and a learned addend per channel.

use zoo_graph::{GraphError, Init, ValueId, VariableRole, formula::Formula, ops::DeviceName};

use super::{Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};

zoo_settings::settings! {
    /// alpha * x + beta for each element of the last axis of `[T, E]`, which takes the place of a normalisation (Aff of
    /// arXiv 2105.03404). Parameters `alpha` and `beta`, `[1, 1, E]` as in timm.
    pub struct Affine {}
}

/// In Python.
const AFFINE: &str = r#"
class Affine(nn.Module):
    """A factor and an addend per channel in place of a normalisation (arXiv 2105.03404)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, 1, dim))
        self.beta = nn.Parameter(torch.zeros(1, 1, dim))

    def forward(self, x: Tensor) -> Tensor:
        return self.alpha * x + self.beta
"#;

impl Word for Affine {
    const MODULE: Module = Module::Parameters;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let [_, _, e] = at.tokens(x)?;
        let alpha = at.parameter("alpha", VariableRole::NormWeight, &[1, 1, e], &Init::Constant(1.0))?;
        let beta = at.parameter("beta", VariableRole::NormBias, &[1, 1, e], &Init::Constant(0.0))?;
        let affine = Formula::define(0, |[x, alpha, beta]| [alpha * x + beta]);
        at.formula(affine, DeviceName::new("Addcmul", "AddcmulGrad"), &[x, alpha, beta])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.helper(AFFINE);
        let arguments = vec![Code::number(at.last())];
        at.module(Code::call("Affine", arguments))
    }
}
