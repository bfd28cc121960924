//! Multi-head attention with its dense layers.

use zoo_graph::{GraphError, Init, ValueId, VariableRole, init::Xavier, ops};

use super::dot_product_attention::{Beside, Heads};
use super::resolve::Place;
use super::{Description, Module, Step, Word, Work};
use crate::builder::{Builder, Gives};
use crate::diagnostic::Diagnostic;
use crate::python::{At, Binding, Code, Piece, Var};
use crate::values::{Size, WeightInit};

zoo_settings::settings! {
    /// Multi-head attention of tokens `[T, E]`, to each other or to those of taps, with the parameters of PyTorch's
    /// MultiheadAttention: `in_proj_weight` `[3E, E]`, `in_proj_bias`, `out_proj.weight`, `out_proj.bias`. For networks
    /// whose dense layers have other names, use `dot_product_attention`.
    pub struct Attention {
        /// Number of heads; E is divided among them.
        pub heads: Size,
        /// Tap `[S, E]` of the keys; values must come from a tap too. By default, both are the tokens themselves.
        pub key?: String,
        /// Tap `[S, E]` of the values.
        pub value?: String,
        /// Whether a token only sees itself and the preceding tokens.
        pub causal: bool = false,
        /// Tap or input `[S]` that is 0 for padding tokens, which are ignored.
        pub mask?: String,
        /// Share of the probabilities set to zero in training.
        #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
        pub dropout: f64 = 0.0,
        /// Initialisation of `in_proj_weight` and `in_proj_bias`; by default as in PyTorch, `xavier_uniform` and 0.
        #[serde(skip_serializing_if = "WeightInit::is_empty")]
        pub init: WeightInit = WeightInit::default(),
        /// Initialisation of `out_proj.weight` and `out_proj.bias`; by default as in PyTorch, `torch_default` and 0.
        #[serde(skip_serializing_if = "WeightInit::is_empty")]
        pub out_init: WeightInit = WeightInit::default(),
    }
}

/// In Python.
const CAUSAL: &str = r#"
def causal_mask(x: Tensor) -> Tensor:
    """True where a token of `[N, T, E]` does not see another: behind it."""
    return torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
"#;

impl Word for Attention {
    const MODULE: Module = Module::Parameters;
    const CHANCE: Option<&'static str> = Some("dropout");

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        if self.key.is_some() != self.value.is_some() {
            at.error("", "either both keys and values come from taps, or neither");
            return None;
        }
        for (key, tap) in [("key", &mut self.key), ("value", &mut self.value), ("mask", &mut self.mask)] {
            if let Some(name) = tap {
                *name = at.tap(key, name)?;
            }
        }
        let zero = Some(Init::Constant(0.0));
        let xavier = Some(Init::XavierUniform(Xavier::default()));
        self.init = self.init.or(&WeightInit { weight: xavier, bias: zero.clone() });
        self.out_init = self.out_init.or(&WeightInit { weight: None, bias: zero });
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let [_, _, e] = at.tokens(x)?;
        let mask = self.mask.as_ref().map(|tap| at.tapped(tap)).transpose()?;
        let product = ops::MatMul { transpose_a: false, transpose_b: true };
        let (weight, bias) = (VariableRole::Weight, VariableRole::Bias);
        let in_weight = at.parameter("in_proj_weight", weight.clone(), &[3 * e, e], &self.init.weight())?;
        let in_bias = at.parameter("in_proj_bias", bias.clone(), &[3 * e], &self.init.bias())?;
        let out_weight = at.parameter("out_proj.weight", weight, &[e, e], &self.out_init.weight())?;
        let out_bias = at.parameter("out_proj.bias", bias, &[e], &self.out_init.bias())?;
        let heads = Heads {
            heads: self.heads.0,
            kv_heads: self.heads.0,
            causal: self.causal,
            window: None,
            scale: None,
            softcap: None,
            alibi: None,
            masked: None,
            dropout: self.dropout,
        };
        let operands = match (&self.key, &self.value) {
            (Some(key), Some(value)) => {
                let sources = [("q", x), ("k", at.tapped(key)?), ("v", at.tapped(value)?)];
                let mut operands = [x; 3];
                for (part, (name, source)) in sources.into_iter().enumerate() {
                    let rows = ops::Slice { start: vec![part * e, 0], size: vec![e, e] };
                    let weight = at.add_part(&format!("{name}_weight"), rows, &[in_weight])?;
                    let rows = ops::Slice { start: vec![part * e], size: vec![e] };
                    let bias = at.add_part(&format!("{name}_bias"), rows, &[in_bias])?;
                    let projected = at.add_part(&format!("{name}_proj"), product.clone(), &[source, weight, bias])?;
                    operands[part] = heads.apart(at, name, projected, heads.heads)?;
                }
                operands
            }
            _ => {
                let packed = at.add_part("in_proj", product.clone(), &[x, in_weight, in_bias])?;
                heads.packed(at, packed)?
            }
        };
        let attended = heads.attend(at, operands, Beside { mask, ..Beside::default() })?;
        let y = at.add_part("out_proj", product, &[attended, out_weight, out_bias])?;
        // PyTorch's module returns a pair; the second element is ignored.
        at.gives(Gives::Parts(vec![("0".to_owned(), y)]));
        Ok(y)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let mut arguments = vec![Code::number(at.last()), Code::number(at.size("heads", self.heads.0))];
        if self.dropout != 0.0 || at.is_written("dropout") {
            arguments.push(Code::named("dropout", Code::number(at.real("dropout", self.dropout))));
        }
        arguments.push(Code::text("batch_first=True"));
        let child = at.registered(Code::call("nn.MultiheadAttention", arguments))?;
        let x = at.x();
        let [key, value] = [&self.key, &self.value].map(|tap| tap.as_ref().map_or(x, |tap| at.tap(tap)));
        let mut operands = vec![Code::value(x), Code::value(key), Code::value(value)];
        if let Some(mask) = &self.mask {
            let mask = Code::of(at.tap(mask), " == 0");
            operands.push(Code::named("key_padding_mask", mask));
        }
        operands.push(Code::text("need_weights=False"));
        if self.causal {
            at.helper(CAUSAL);
            operands.push(Code::named("attn_mask", Code::applied("causal_mask", x, Vec::new())));
        }
        let mut pieces = child.pieces;
        pieces.push(Piece::List("(", operands, ")"));
        pieces.push(Piece::Text("[0]".into()));
        Ok(at.function(Code { pieces, binding: Binding::Tight }))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        let reads = [&self.key, &self.value, &self.mask].into_iter().flatten().map(String::as_str).collect();
        Step { reads, ..Step::new(Work::Dense, format!("attention {} heads", self.heads.0)) }.into()
    }
}
