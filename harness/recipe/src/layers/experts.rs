//! A mixture of experts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::formula::{Expression, Formula};
use zoo_graph::init::UniformInit;
use zoo_graph::ops::{Combine, Cumsum, DeviceName, Dispatch, GroupedMatMul, Reshape, Split, TopK};
use zoo_graph::{GraphError, Init, Phase, ValueId, VariableRole};

use super::gelu::Approximation;
use super::resolve::Place;
use super::{Description, Module, Step, Word, Work};
use crate::builder::{Builder, Routing};
use crate::diagnostic::Diagnostic;
use crate::python::{At, Binding, Code, Var};
use crate::values::{Size, WeightInit};

zoo_settings::settings! {
    /// A mixture of experts on `[T, E]` (arXiv 1701.06538, 2101.03961): for each token, the weighted sum of the gated
    /// MLPs of the `top` experts with the largest scores. An expert computes `down(silu(gate) * up)`; gate and up are
    /// the halves of one product. Parameters `gate_up_proj` `[experts, 2*hidden, E]` and `down_proj`
    /// `[experts, E, hidden]`, as in transformers. Shared experts are an MLP beside it, whose result is added.
    pub struct Experts {
        /// Tap with the score of each expert for each token, `[T, experts]`: the result of a dense layer, usually
        /// without bias.
        pub scores: String,
        /// Number of experts that a token uses.
        pub top: Size,
        /// Width of the hidden layer of an expert.
        pub hidden: Size,
        /// How scores become weights.
        pub weights: ExpertWeights = ExpertWeights::default(),
        /// Whether the weights of the experts that a token uses are divided by their sum.
        pub normalize: bool = true,
        /// Factor of the weights.
        pub scale: f64 = 1.0,
        /// Name of a parameter with a number per expert that is added to the weights for the choice alone, as in
        /// DeepSeek-V3 (arXiv 2408.15664). It starts at 0, and no gradient changes it.
        pub bias?: String,
        /// How many tokens of a batch an expert computes at most, as a multiple of its even share (arXiv 2006.16668).
        /// Of further tokens, in their order, it does not contribute to the result. By default, it computes all.
        #[schemars(extend("exclusiveMinimum" = 0))]
        pub capacity?: f64,
        /// The activation of an expert.
        pub activation: ExpertActivation = ExpertActivation::default(),
        /// Initialisation of the parameters.
        #[serde(skip_serializing_if = "WeightInit::is_empty")]
        pub init: WeightInit = WeightInit::default(),
    }
}

/// How the scores of experts become weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExpertWeights {
    /// Softmax over all experts. If the weights are divided by their sum, this is the softmax over the chosen ones.
    #[default]
    Softmax,
    /// The sigmoid of each score.
    Sigmoid,
}

/// The activation of the gate of an expert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExpertActivation {
    /// See `silu`.
    #[default]
    Silu,
    /// See `gelu`.
    Gelu,
    /// `gelu` with `approximate: tanh`.
    GeluTanh,
    /// See `relu`.
    Relu,
}

impl ExpertWeights {
    fn of<'f>(self, score: Expression<'f>) -> Expression<'f> {
        match self {
            Self::Softmax => score.softmax(),
            Self::Sigmoid => score.sigmoid(),
        }
    }
}

impl ExpertActivation {
    fn in_python(self) -> &'static str {
        match self {
            Self::Silu => "functional.silu",
            Self::Gelu => "functional.gelu",
            Self::GeluTanh => "nn.GELU(approximate=\"tanh\")",
            Self::Relu => "functional.relu",
        }
    }

    /// The operator of a device for the activation of a gate times another value.
    fn device(self) -> DeviceName {
        match self {
            Self::Silu => DeviceName::new("SwiGlu", "SwiGluGrad"),
            Self::Gelu | Self::GeluTanh => DeviceName::new("GeGluV2", "GeGluGradV2"),
            Self::Relu => DeviceName::new("Mul", "MulGrad"),
        }
    }

    fn of<'f>(self, x: Expression<'f>) -> Expression<'f> {
        match self {
            Self::Silu => x * x.sigmoid(),
            Self::Gelu => Approximation::None.gelu(x),
            Self::GeluTanh => Approximation::Tanh.gelu(x),
            Self::Relu => x.max(0.0),
        }
    }
}

/// In Python.
const EXPERTS: &str = r#"
def grouped_linear(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Groups of rows that end at `ends`, each through the dense layer of its own."""
    if x.device.type in ("cpu", "npu"):
        groups = zip(x.tensor_split(ends[:-1].tolist()), weight, strict=True)
        return torch.cat([functional.linear(rows, matrix) for rows, matrix in groups])
    return functional.grouped_mm(x, weight.mT, offs=ends)


class Experts(nn.Module):
    """Gated layers, of which a token uses those with the largest scores."""

    def __init__(
        self,
        experts: int,
        width: int,
        hidden: int,
        top: int,
        activation: Callable[[Tensor], Tensor] = functional.silu,
        sigmoid: bool = False,
        normalize: bool = True,
        scale: float = 1.0,
        capacity: float | None = None,
    ) -> None:
        super().__init__()
        self.top = top
        self.activation = activation
        self.sigmoid = sigmoid
        self.normalize = normalize
        self.scale = scale
        self.capacity = capacity
        self.gate_up_proj = nn.Parameter(torch.empty(experts, 2 * hidden, width))
        self.down_proj = nn.Parameter(torch.empty(experts, width, hidden))
        for weight in self.parameters():
            nn.init.uniform_(weight, -(weight.shape[-1] ** -0.5), weight.shape[-1] ** -0.5)

    def forward(self, x: Tensor, scores: Tensor, bias: Tensor | None = None) -> Tensor:
        rows, scores = x.flatten(0, -2), scores.flatten(0, -2)
        weights = torch.sigmoid(scores) if self.sigmoid else scores.softmax(-1)
        chosen = (weights if bias is None else weights + bias).topk(self.top, dim=-1).indices
        self.routing = scores, chosen
        weights = weights.gather(-1, chosen)
        if self.normalize:
            weights = weights / weights.sum(-1, keepdim=True)
        # The choices by expert, and then by token.
        experts, order = chosen.flatten().sort(stable=True)
        weights = weights.flatten()[order]
        counts = functional.one_hot(experts, scores.shape[-1]).sum(0)
        ends = counts.cumsum(0, dtype=torch.int32)
        if self.capacity is not None:
            most = math.ceil(self.capacity * len(order) / len(counts))
            places = torch.arange(len(order), device=x.device) - (ends - counts)[experts]
            weights = weights * (places < most)
        tokens = order // self.top
        gate, up = grouped_linear(rows[tokens], self.gate_up_proj, ends).chunk(2, dim=-1)
        y = grouped_linear(self.activation(gate) * up, self.down_proj, ends) * weights[:, None]
        return torch.zeros_like(rows).index_add(0, tokens, y * self.scale).view_as(x)
"#;

impl Word for Experts {
    const MODULE: Module = Module::Parameters;

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        if let Some(
            Init::KaimingNormal(_)
            | Init::KaimingUniform(_)
            | Init::XavierNormal(_)
            | Init::XavierUniform(_)
            | Init::Dirac(_),
        ) = self.init.weight
        {
            at.error("init", "the fans of a table of matrices are not those of a matrix: use `uniform` or `normal`");
            return None;
        }
        if self.capacity.is_some_and(|capacity| !(capacity > 0.0 && capacity.is_finite())) {
            at.error("capacity", "expected a positive number");
            return None;
        }
        self.scores = at.tap("scores", &self.scores)?;
        self.bias = self.bias.as_ref().map(|bias| at.beside(bias));
        self.init = self.init.or(&at.init().linear);
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let scores = at.tapped(&self.scores)?;
        let (shape, of_scores) = (at.shape(x).to_vec(), at.shape(scores).to_vec());
        let ([leading @ .., width], [tokens @ .., experts]) = (&shape[..], &of_scores[..]) else {
            return Err(at.refuse("experts read tokens, [T, E], and their scores".to_owned()));
        };
        if leading != tokens || leading.is_empty() {
            let message = format!("scores {} are not those of tokens {}", at.shape(scores), at.shape(x));
            return Err(at.refuse(message));
        }
        let (rows, width, experts, hidden) = (leading.iter().product::<usize>(), *width, *experts, self.hidden.0);
        let top = self.top.0;
        if top > experts {
            return Err(at.refuse(format!("a token cannot use {top} of {experts} experts")));
        }
        let flat = at.add_part("rows", Reshape { shape: [rows, width].into() }, &[x])?;
        let scores = at.add_part("scores", Reshape { shape: [rows, experts].into() }, &[scores])?;
        let weights = self.routing(at, scores, [rows, experts])?;
        let of_experts = |at: &mut Builder<'_, '_>, leaf, [outputs, inputs]: [usize; 2]| {
            let default = Init::Uniform(UniformInit { bound: 1.0 / (inputs as f64).sqrt() });
            let init = self.init.weight.clone().filter(|init| !matches!(init, Init::TorchDefault(_)));
            at.parameter(leaf, VariableRole::Weight, &[experts, outputs, inputs], &init.unwrap_or(default))
        };
        let gate_up = of_experts(at, "gate_up_proj", [2 * hidden, width])?;
        let down = of_experts(at, "down_proj", [width, hidden])?;
        let dispatched = at.add_part("dispatch", Dispatch { top }, &[flat, weights])?;
        let product = GroupedMatMul { top, transpose: true };
        let both = at.add_part("gate_up", product.clone(), &[dispatched, gate_up, weights])?;
        let halves = at.add_parts("halves", Phase::Forward, Split { axis: 1, sizes: vec![hidden; 2] }, &[both])?;
        let gated = Formula::define(0, |[gate, up]| [self.activation.of(gate) * up]);
        let activated = at.formula_part("activated", gated, self.activation.device(), &halves)?;
        let results = at.add_part("down", product, &[activated, down, weights])?;
        let y = at.add_part("combine", Combine { top, weighted: true }, &[results, weights])?;
        at.add(Reshape { shape: shape.into() }, &[y])
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        at.helper(EXPERTS);
        let scores = at.tap(&self.scores);
        let experts = at.last_of(scores);
        let sizes = [experts.clone(), at.last(), at.size("hidden", self.hidden.0), at.size("top", self.top.0)];
        let mut arguments = sizes.map(Code::number).to_vec();
        let mut set = |key: &str, value: Code| arguments.push(Code::named(key, value));
        if self.activation != ExpertActivation::default() {
            set("activation", Code::text(self.activation.in_python()));
        }
        if self.weights == ExpertWeights::Sigmoid {
            set("sigmoid", Code::switch(true));
        }
        if !self.normalize {
            set("normalize", Code::switch(false));
        }
        if self.scale != 1.0 {
            set("scale", Code::number(at.real("scale", self.scale)));
        }
        if let Some(capacity) = self.capacity {
            set("capacity", Code::number(at.real("capacity", capacity)));
        }
        let child = at.registered(Code::call("Experts", arguments))?;
        let mut operands = vec![Code::value(at.x()), Code::value(scores)];
        if let Some(bias) = &self.bias {
            let start = Code::call("torch.zeros", vec![Code::number(experts)]);
            operands.push(at.parameter_beside(bias, start)?);
        }
        let call = Code::call("", operands);
        Ok(at.function(Code { pieces: [child.pieces, call.pieces].concat(), binding: Binding::Tight }))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        let step = Step::new(Work::Dense, format!("experts {} at a time", self.top.0));
        Step { reads: vec![&self.scores], ..step }.into()
    }
}

impl Experts {
    /// The weight of each expert for each token, `[tokens, experts]`.
    fn routing(&self, at: &mut Builder<'_, '_>, scores: ValueId, shape: [usize; 2]) -> Result<ValueId, GraphError> {
        let ([tokens, experts], count) = (shape, self.top.0);
        let all = at.unnamed_part("all_weights", Formula::define(1, |[score]| [self.weights.of(score)]), &[scores])?;
        let choice = match &self.bias {
            None => all,
            Some(bias) => {
                let start = Init::Constant(0.0);
                let bias = at.parameter_called(bias.clone(), VariableRole::Bias, &[experts], &start)?;
                at.unnamed_part("choice", Formula::define(0, |[weight, bias]| [weight + bias]), &[all, bias])?
            }
        };
        let chosen = at.add_part("chosen", TopK { count }, &[choice])?;
        at.routed(Routing { scores, chosen });
        // What is not chosen is 0, even where a step diverges and weights are NaN: a token has no further choices.
        let weights = Formula::define(1, |[weight, chosen]| {
            let shared = if self.normalize { weight / chosen.select(weight, 0.0).row_sum() } else { weight };
            [chosen.select(if self.scale == 1.0 { shared } else { shared * self.scale }, 0.0)]
        });
        let weights = at.unnamed_part("weights", weights, &[all, chosen])?;
        let Some(capacity) = self.capacity else { return Ok(weights) };
        let most = (capacity * (count * tokens) as f64 / experts as f64).ceil();
        let places = at.add_part("places", Cumsum { axis: 0, reverse: false }, &[chosen])?;
        let kept = Formula::define(0, |[weight, place]| [place.greater(most).select(0.0, weight)]);
        at.unnamed_part("kept", kept, &[weights, places])
    }
}
