//! Normalisation by the root mean square.

use zoo_graph::formula::Formula;
use zoo_graph::ops::{self, DeviceName};
use zoo_graph::{GraphError, Init, ValueId, VariableRole};

use super::{Module, Word};
use crate::builder::{Builder, Gives};
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::Size;

zoo_settings::settings! {
    /// x / sqrt(mean of x^2 along the last axis + eps), with a scale per element (arXiv 1910.07467; PyTorch's RMSNorm).
    /// Parameter `weight`.
    pub struct RmsNorm {
        /// Added to the mean square.
        #[schemars(range(min = 0, max = 1))]
        pub eps: f64 = 1e-6,
        /// Normalises each run of this many elements of the last axis by itself, with the same scales: the heads of
        /// queries and keys in Qwen3. By default, the whole axis is one run.
        pub width?: Size,
        /// Added to the scale: 1 for a `weight` that starts at 0 (Gemma).
        pub offset: f64 = 0.0,
    }
}

impl Word for RmsNorm {
    const MODULE: Module = Module::Parameters;

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let (eps, offset, shape) = (self.eps, self.offset, at.shape(x).to_vec());
        let (leading, all) = shape.split_last().map_or((&[][..], 0), |(all, leading)| (leading, *all));
        let width = self.width.map_or(all, |width| width.0);
        if !all.is_multiple_of(width) {
            return Err(at.refuse(format!("{all} elements cannot be divided into runs of {width}")));
        }
        let weight = at.parameter("weight", VariableRole::NormWeight, &[width], &Init::Constant(1.0 - offset))?;
        let formula = Formula::define(1, |[x, weight]| [x * (x.square().row_mean() + eps).rsqrt() * (weight + offset)]);
        let device = DeviceName::new("RmsNorm", "RmsNormGrad");
        if width == all {
            return at.formula(formula, device, &[x, weight]);
        }
        let runs = [leading, &[all / width, width]].concat();
        let runs = at.add_part("runs", ops::Reshape { shape: runs.into() }, &[x])?;
        let y = at.formula(formula, device, &[runs, weight])?;
        at.gives(Gives::Value(y));
        at.add_part("joined", ops::Reshape { shape: shape.into() }, &[y])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let eps = Code::named("eps", Code::number(at.real("eps", self.eps)));
        let width = match self.width {
            Some(width) => at.size("width", width.0),
            None => at.last(),
        };
        let mut arguments = vec![Code::number(width.clone()), eps];
        let mut class = "nn.RMSNorm";
        if self.offset != 0.0 {
            at.helper(OFFSET);
            arguments.push(Code::named("offset", Code::number(at.real("offset", self.offset))));
            class = "OffsetRMSNorm";
        }
        let norm = Code::call(class, arguments);
        if self.width.is_none() {
            return at.module(norm);
        }
        let all = at.last();
        let runs = vec![Code::text("-1"), Code::tuple(vec![Code::text("-1"), Code::number(width)])];
        let runs = at.function(Code::method(at.x(), "unflatten", runs));
        let y = at.module_on(runs, norm)?;
        at.gives(all);
        Ok(at.function(Code::method(y, "flatten", vec![Code::text("-2")])))
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
