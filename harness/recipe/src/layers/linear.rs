//! Dense layer.

use zoo_graph::formula::Formula;
use zoo_graph::init::{FanMode, Kaiming, UniformInit};
use zoo_graph::{GraphError, Init, ValueId, VariableRole, ops};

use super::resolve::Place;
use super::weight_norm::{WeightNorm, weight};
use super::{Description, Module, Step, Word, Work};
use crate::builder::{Builder, Gives};
use crate::diagnostic::Diagnostic;
use crate::python::{At, Code, Var};
use crate::values::{Size, WeightInit};

zoo_settings::settings! {
    /// Dense layer on `[features]` with a weight `[out, in]`, or `[in, out]` if it is `transposed`.
    pub struct Linear {
        /// Number of outputs.
        pub out: Size,
        /// Whether a bias is added.
        pub bias: bool = true,
        /// Which of as many equal parts of the outputs the bias is added to; by default all. `[true, false, true]` for
        /// a layer that makes queries, keys and values, if keys have no bias; the parameter has elements for them too.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub bias_of: Vec<bool> = Vec::new(),
        /// Whether the weight is `[in, out]`, as in the Conv1D of transformers and in Keras. Its fans are the same.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub transposed: bool = false,
        /// Whether the reference passes the parameters to a function and never calls the module, as the attention of
        /// torchvision's Swin does: a golden then has no output of this module.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub functional: bool = false,
        /// Whether the weight is a direction times a length, and where these have their names from.
        pub weight_norm?: WeightNorm,
        /// Initialisation of the parameters.
        #[serde(skip_serializing_if = "WeightInit::is_empty")]
        pub init: WeightInit = WeightInit::default(),
    }
}

/// In Python.
const TRANSPOSED: &str = r#"
class TransposedLinear(nn.Linear):
    """A dense layer with a weight `[in, out]`."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__(in_features, out_features, bias)
        self.weight = nn.Parameter(self.weight.detach().t().contiguous())

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight.t(), self.bias)
"#;

/// In Python.
const PARTLY: &str = r#"
def partly_biased(x: Tensor, linear: nn.Linear, parts: list[bool]) -> Tensor:
    """A dense layer whose bias is added to some of as many equal parts of its outputs."""
    used = torch.tensor(parts, dtype=x.dtype, device=x.device).repeat_interleave(linear.out_features // len(parts))
    return functional.linear(x, linear.weight, linear.bias * used)
"#;

const NORMED: &str = r#"
class PartlyBiased(nn.Linear):
    """`partly_biased` as a module, whose weight a norm may replace."""

    def __init__(self, inputs: int, outputs: int, parts: list[bool]) -> None:
        super().__init__(inputs, outputs)
        self.parts = parts

    def forward(self, x: Tensor) -> Tensor:
        return partly_biased(x, self, self.parts)
"#;

impl Word for Linear {
    const MODULE: Module = Module::Parameters;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        self.init = self.init.or(&at.init().linear);
        let parts = self.bias_of.len();
        if parts > 0 && (!self.bias || parts > MOST_PARTS || !self.out.0.is_multiple_of(parts)) {
            let message = match self.bias {
                false => "the layer has no bias".to_owned(),
                true => format!("{} outputs cannot be divided into {parts} equal parts", self.out.0),
            };
            at.error("bias_of", message);
            return None;
        }
        if self.transposed && self.weight_norm.is_some() {
            at.error("weight_norm", "lengths are those of the rows of `[out, in]`, but the weight is transposed");
            return None;
        }
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        if self.functional {
            at.gives(Gives::Nothing);
        }
        let inputs = at.shape(x).last().copied().unwrap_or(0);
        let (shape, init) = match self.transposed {
            false => ([self.out.0, inputs], [self.init.weight(), self.init.bias()]),
            true => {
                ([inputs, self.out.0], [self.init.weight(), self.init.bias()].map(|init| of_transposed(init, inputs)))
            }
        };
        let mut operands = vec![x, weight(self.weight_norm, at, &shape, &init[0])?];
        if self.bias {
            let bias = at.parameter("bias", VariableRole::Bias, &[self.out.0], &init[1])?;
            operands.push(if self.bias_of.iter().all(|part| *part) { bias } else { self.partly(at, bias)? });
        }
        at.add(ops::MatMul { transpose_a: false, transpose_b: !self.transposed }, &operands)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let (inputs, out) = (at.last(), at.size("out", self.out.0));
        let mut sizes = vec![Code::number(inputs), Code::number(out.clone())];
        let mut arguments = sizes.clone();
        if !self.bias {
            arguments.push(Code::text("bias=False"));
        }
        at.gives(out);
        if self.transposed {
            at.helper(TRANSPOSED);
        }
        let linear = Code::call(if self.transposed { "TransposedLinear" } else { "nn.Linear" }, arguments);
        if self.bias_of.iter().all(|part| *part) {
            return at.module(self.weight_norm.map_or(linear.clone(), |norm| norm.around(linear)));
        }
        let parts = Code::list(self.bias_of.iter().map(|part| Code::switch(*part)).collect());
        if self.transposed {
            return Err(at.refuse("a transposed weight with a bias of some parts has no form in PyTorch yet"));
        }
        if let Some(norm) = self.weight_norm {
            at.helper(PARTLY);
            at.helper(NORMED);
            sizes.push(parts);
            return at.module(norm.around(Code::call("PartlyBiased", sizes)));
        }
        at.helper(PARTLY);
        let child = at.registered(linear)?;
        Ok(at.function(Code::applied("partly_biased", at.x(), vec![child, parts])))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        Step::new(Work::Dense, "linear").into()
    }
}

/// Most parts of the outputs for `bias_of`.
const MOST_PARTS: usize = 16;

impl Linear {
    /// The bias, 0 for parts without.
    fn partly(&self, at: &mut Builder<'_, '_>, bias: ValueId) -> Result<ValueId, GraphError> {
        let size = (self.out.0 / self.bias_of.len()) as f64;
        let formula = Formula::define(0, |[bias]| {
            let (place, zero) = (bias.coordinate(1), bias.number(0.0));
            let chosen = |before, (part, has): (f64, &bool)| {
                place.at_least(part * size).select(if *has { bias } else { zero }, before)
            };
            [(0..).map(f64::from).zip(&self.bias_of).fold(zero, chosen)]
        });
        // Positions along the first axis are those of samples.
        let row = at.add_part("bias_row", ops::Reshape { shape: [1, self.out.0].into() }, &[bias])?;
        let row = at.unnamed_part("bias_of_parts", formula, &[row])?;
        at.add_part("partial_bias", ops::Reshape { shape: [self.out.0].into() }, &[row])
    }
}

/// The distribution of a weight `[out, in]`, or of its bias, for a weight `[in, out]`, whose axes are the other way
/// round where fans are counted.
fn of_transposed(init: Init, inputs: usize) -> Init {
    match init {
        Init::TorchDefault(_) => Init::Uniform(UniformInit { bound: 1.0 / (inputs as f64).sqrt() }),
        Init::KaimingNormal(kaiming) => Init::KaimingNormal(other_fan(kaiming)),
        Init::KaimingUniform(kaiming) => Init::KaimingUniform(other_fan(kaiming)),
        Init::XavierNormal(_)
        | Init::XavierUniform(_)
        | Init::Uniform(_)
        | Init::Normal(_)
        | Init::TruncatedNormal(_)
        | Init::Dirac(_)
        | Init::Constant(_) => init,
    }
}

fn other_fan(kaiming: Kaiming) -> Kaiming {
    let mode = match kaiming.mode {
        FanMode::FanIn => FanMode::FanOut,
        FanMode::FanOut => FanMode::FanIn,
    };
    Kaiming { mode, ..kaiming }
}
