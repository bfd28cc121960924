//! Layer normalisation.

use zoo_graph::formula::{Expression, Formula};
use zoo_graph::{GraphError, Init, ValueId, VariableRole, ops::DeviceName};

use super::{Module, Word};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::{BnInit, Size};

zoo_settings::settings! {
    /// Normalises each sample, or each of its rows, with its mean and biased variance, with a scale and a shift per
    /// element (arXiv 1607.06450; PyTorch's LayerNorm over the last `axes` axes). Parameters `weight` and, unless
    /// switched off, `bias`.
    pub struct LayerNorm {
        /// Number of trailing axes that are normalised together.
        pub axes: Size = Size(1),
        /// Normalises `[C, H, W]` over the channels of each pixel instead, with parameters of shape `[C]` (ConvNeXt's
        /// LayerNorm2d).
        pub channels_first: bool = false,
        /// Whether a shift is added.
        pub bias: bool = true,
        /// Added to the variance.
        #[schemars(range(min = 0, max = 1))]
        pub eps: f64 = 1e-5,
        /// Initialisation of the parameters.
        #[serde(skip_serializing_if = "BnInit::is_empty")]
        pub init: BnInit = BnInit::default(),
    }
}

/// A row less its mean, over the root of its variance.
pub(super) fn normalised(x: Expression<'_>, eps: f64) -> Expression<'_> {
    let centred = x - x.row_mean();
    centred * (centred.square().row_mean() + eps).rsqrt()
}

/// In Python.
const CHANNELS_FIRST: &str = r#"
class LayerNorm2d(nn.LayerNorm):
    """Normalises `[C, H, W]` over the channels of each pixel."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
"#;

impl Word for LayerNorm {
    const MODULE: Module = Module::Parameters;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let x = if self.channels_first { at.transposed("channels_last", &[0, 2, 3, 1], x)? } else { x };
        let (axes, eps) = (if self.channels_first { 1 } else { self.axes.0 }, self.eps);
        let shape = at.shape(x).to_vec();
        if axes >= shape.len() {
            let message =
                format!("cannot normalise {axes} axes of a value with {} axes besides the batch", shape.len() - 1);
            return Err(at.refuse(message));
        }
        let own = &shape[shape.len() - axes..];
        let weight =
            at.parameter("weight", VariableRole::NormWeight, own, &Init::Constant(self.init.gamma.unwrap_or(1.0)))?;
        let name = DeviceName::new("LayerNorm", "LayerNormGrad");
        let y = if self.bias {
            let shift = Init::Constant(self.init.beta.unwrap_or(0.0));
            let bias = at.parameter("bias", VariableRole::NormBias, own, &shift)?;
            let formula = Formula::define(axes, |[x, weight, bias]| [normalised(x, eps) * weight + bias]);
            at.formula(formula, name, &[x, weight, bias])?
        } else {
            let formula = Formula::define(axes, |[x, weight]| [normalised(x, eps) * weight]);
            at.formula(formula, name, &[x, weight])?
        };
        if self.channels_first { at.transposed("channels_first", &[0, 3, 1, 2], y) } else { Ok(y) }
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let own: Vec<Code> = match self.channels_first {
            true => vec![Code::number(at.extent(1))],
            false => {
                let rank = at.input().len();
                (rank.saturating_sub(self.axes.0)..rank).map(|axis| Code::number(at.extent(axis))).collect()
            }
        };
        let own = match <[Code; 1]>::try_from(own) {
            Ok([one]) => one,
            Err(several) => Code::list(several),
        };
        let mut arguments = vec![own];
        if self.eps != 1e-5 {
            arguments.push(Code::named("eps", Code::number(at.real("eps", self.eps))));
        }
        if !self.bias {
            arguments.push(Code::text("bias=False"));
        }
        if self.channels_first {
            at.helper(CHANNELS_FIRST);
        }
        at.module(Code::call(if self.channels_first { "LayerNorm2d" } else { "nn.LayerNorm" }, arguments))
    }
}
