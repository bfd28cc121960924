//! Attention without parameters.

use zoo_graph::formula::Formula;
use zoo_graph::ops::{self, DeviceName, MatMul};
use zoo_graph::{GraphError, Phase, ValueId};

use super::alibi::{ALIBI, slope};
use super::resolve::Place;
use super::rotary::Rotary;
use super::{Description, Module, Step, Word, Work};
use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::python::{At, Binding, Code, Kind, Number, Var};
use crate::values::Size;

zoo_settings::settings! {
    /// Scaled dot-product attention of several heads (arXiv 1706.03762; PyTorch's scaled_dot_product_attention):
    /// softmax(q k^T / sqrt(d)) v. It reads queries, keys and values from one value `[T, (heads + 2*kv_heads)*d]`, in
    /// this order, as the output of a single dense layer; or keys and values from taps, where values may have another
    /// width. The result is `[T, heads*d]`, of the width of values. Axes before T, as in `windows`, are batch axes.
    pub struct DotProductAttention {
        /// Number of query heads.
        pub heads: Size,
        /// Number of heads of keys and values, each shared by several query heads (arXiv 2305.13245); by default
        /// `heads`.
        pub kv_heads?: Size,
        /// Tap of the keys; values must come from a tap too.
        pub key?: String,
        /// Tap of the values.
        pub value?: String,
        /// Whether a token only sees itself and the preceding tokens.
        pub causal: bool = false,
        /// A token only sees tokens that are less than this many away from it: itself and, with `causal`, as many
        /// before it as make this number (sliding windows).
        pub window?: Size,
        /// Tap or input `[T]` that is 0 for padding tokens, which are ignored.
        pub mask?: String,
        /// Tap or input `[T]` of numbers: a token only sees tokens with the same number (packed samples, or the regions
        /// of shifted windows).
        pub segments?: String,
        /// Tap `[heads, T, T]` that is added to the scores, for example of `relative_position_bias`.
        pub bias?: String,
        /// Tap `[heads, 1, 1]`, for example of `logit_scale`: scores are the cosines of the angles between queries and
        /// keys times this factor, instead of q k^T / sqrt(d) (arXiv 2111.09883).
        pub cosine?: String,
        /// Takes `slope * distance` from the score of a key that is so far away (ALiBi, arXiv 2108.12409). The slopes
        /// of the heads are powers of 2, the smallest `2^-alibi`: 8 in the paper.
        #[schemars(extend("exclusiveMinimum" = 0))]
        pub alibi?: f64,
        /// Rotates queries and keys by an angle proportional to their position, so that scores depend on distances.
        pub rotary?: Rotary,
        /// Factor of the scores; by default 1/sqrt(d).
        #[schemars(range(min = 0))]
        pub scale?: f64,
        /// Bounds scores: `softcap * tanh(score / softcap)` (Gemma 2).
        #[schemars(extend("exclusiveMinimum" = 0))]
        pub softcap?: f64,
        /// What is added to the scores of tokens that a token does not see: -100 in torchvision's Swin Transformer. By
        /// default, their probability is 0, whatever their scores.
        #[schemars(range(max = 0))]
        pub masked?: f64,
        /// Share of the probabilities set to zero in training.
        #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
        pub dropout: f64 = 0.0,
    }
}

/// In Python.
const HEADS: &str = r#"
def split_heads(x: Tensor, heads: int) -> Tensor:
    """`[..., T, heads * d]` as `[..., heads, T, d]`."""
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)


def join_heads(x: Tensor) -> Tensor:
    """The reverse of `split_heads`."""
    return x.transpose(-3, -2).flatten(-2)
"#;

/// In Python.
const MASKED: &str = r#"
def masked_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    segments: Tensor | None = None,
    bias: Tensor | None = None,
    masked: float = -torch.inf,
    causal: bool = False,
    window: int | None = None,
    dropout_p: float = 0.0,
    scale: float | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Attention with a bias of the scores, where a query sees keys of its own segment that are no padding."""
    before = k.shape[-2] - q.shape[-2]
    seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device)
    if causal:
        seen = seen.tril(before)
    if window is not None:
        seen = seen.triu(before - window + 1).tril(before + window - 1)
    if mask is not None:
        seen = seen & (mask != 0).reshape(mask.shape[0], *[1] * (q.dim() - 2), mask.shape[-1])
    if segments is not None:
        seen = seen & (segments[..., None, :, None] == segments[..., None, None, :])
    scores = torch.where(seen, 0.0, torch.tensor(masked, dtype=q.dtype, device=q.device))
    if bias is not None:
        scores = scores + bias
    if softcap is not None:
        products = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
        weights = (torch.tanh(products / softcap) * softcap + scores).softmax(-1)
        return functional.dropout(weights, dropout_p) @ v
    return functional.scaled_dot_product_attention(q, k, v, scores, dropout_p, scale=scale)
"#;

impl Word for DotProductAttention {
    const MODULE: Module = Module::Function;
    const CHANCE: Option<&'static str> = Some("dropout");

    fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
        if self.cosine.is_some() && self.scale.is_some() {
            at.error("scale", "`cosine` is the factor of scores");
            return None;
        }
        if let Some(message) = self.rotary.as_ref().and_then(Rotary::fault) {
            at.error("rotary", message);
            return None;
        }
        if self.alibi.is_some() && self.bias.is_some() {
            at.error("alibi", "`bias` is another bias of the scores");
            return None;
        }
        if self.key.is_some() != self.value.is_some() {
            at.error("", "either both keys and values come from taps, or neither");
            return None;
        }
        let taps = [
            ("key", &mut self.key),
            ("value", &mut self.value),
            ("mask", &mut self.mask),
            ("segments", &mut self.segments),
            ("bias", &mut self.bias),
            ("cosine", &mut self.cosine),
        ];
        for (key, tap) in taps {
            if let Some(name) = tap {
                *name = at.tap(key, name)?;
            }
        }
        Some(())
    }

    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
        let kv_heads = self.kv_heads.unwrap_or(self.heads).0;
        let Self { causal, scale, softcap, alibi, masked, dropout, .. } = *self;
        let window = self.window.map(|window| window.0);
        let heads = Heads { heads: self.heads.0, kv_heads, causal, window, scale, softcap, alibi, masked, dropout };
        let beside = |tap: &Option<String>| tap.as_ref().map(|tap| at.tapped(tap)).transpose();
        let beside = Beside {
            mask: beside(&self.mask)?,
            segments: beside(&self.segments)?,
            bias: beside(&self.bias)?,
            cosine: beside(&self.cosine)?,
        };
        let operands = match (&self.key, &self.value) {
            (Some(key), Some(value)) => {
                let (key, value) = (at.tapped(key)?, at.tapped(value)?);
                expect_equal_ranks(at, [x, key, value])?;
                [
                    heads.apart(at, "q", x, heads.heads)?,
                    heads.apart(at, "k", key, kv_heads)?,
                    heads.apart(at, "v", value, kv_heads)?,
                ]
            }
            _ => heads.packed(at, x)?,
        };
        let [q, k, v] = operands;
        let operands = match &self.rotary {
            Some(rotary) => [rotary.turned(at, "q", q)?, rotary.turned(at, "k", k)?, v],
            None => [q, k, v],
        };
        let operands = match (self.cosine.is_some(), operands) {
            (true, [q, k, v]) => [of_length_one(at, "q", q)?, of_length_one(at, "k", k)?, v],
            (false, operands) => operands,
        };
        heads.attend(at, operands, beside)
    }

    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
        let mut operands = match (&self.key, &self.value) {
            (Some(key), Some(value)) => [at.x(), at.tap(key), at.tap(value)],
            _ => {
                let parts = self.parts(at);
                let split = Code::method(at.x(), "split", vec![parts, Code::text("dim=-1")]);
                let width = self.width(at, self.heads.0);
                at.gives(width);
                match at.functions(split, 3)[..] {
                    [q, k, v] => {
                        [q, k, v].into_iter().zip(["q", "k", "v"]).for_each(|(part, name)| at.named(part, name));
                        [q, k, v]
                    }
                    _ => return Err(at.refuse("a split into three gives three")),
                }
            }
        };
        at.helper(HEADS);
        let heads = at.size("heads", self.heads.0);
        let kv_heads = self.kv_heads.map_or_else(|| heads.clone(), |heads| at.size("kv_heads", heads.0));
        for (operand, heads) in operands.iter_mut().zip([&heads, &kv_heads, &kv_heads]) {
            *operand = at.function(Code::applied("split_heads", *operand, vec![Code::number(heads.clone())]));
        }
        let name = |at: &mut At<'_, '_>, operands: &[Var; 3]| {
            operands.iter().zip(["q", "k", "v"]).for_each(|(operand, name)| at.named(*operand, name));
        };
        name(at, &operands);
        if let Some(rotary) = &self.rotary {
            for operand in &mut operands[..2] {
                *operand = rotary.emit(at, *operand);
            }
        }
        if let Some(factor) = &self.cosine {
            let factor = at.tap(factor);
            for operand in &mut operands[..2] {
                *operand = at.function(Code::applied("functional.normalize", *operand, vec![Code::text("dim=-1")]));
            }
            operands[0] = at.function(Code::operation(operands[0], "*", factor));
        }
        if kv_heads.value != heads.value {
            let group = heads.value / kv_heads.value;
            for operand in &mut operands[1..] {
                let repeat = vec![Code::number(Number::of(group, Kind::Whole)), Code::text("dim=-3")];
                *operand = at.function(Code::method(*operand, "repeat_interleave", repeat));
            }
        }
        let mut arguments: Vec<Code> = operands.iter().map(|operand| Code::value(*operand)).collect();
        let taps = [&self.mask, &self.segments, &self.bias];
        let plain = taps.iter().all(|tap| tap.is_none())
            && self.masked.is_none()
            && self.window.is_none()
            && self.softcap.is_none()
            && self.alibi.is_none();
        for (key, tap) in [("mask", &self.mask), ("segments", &self.segments), ("bias", &self.bias)] {
            if let Some(tap) = tap {
                arguments.push(Code::named(key, Code::value(at.tap(tap))));
            }
        }
        if let Some(most) = self.alibi {
            at.helper(ALIBI);
            let mut of: Vec<Code> = operands[..2].iter().map(|operand| Code::value(*operand)).collect();
            of.push(Code::number(at.real("alibi", most)));
            arguments.push(Code::named("bias", Code::call("alibi_bias", of)));
        }
        if let Some(masked) = self.masked {
            arguments.push(Code::named("masked", Code::real(masked)));
        }
        if self.causal {
            arguments.push(Code::text(if plain { "is_causal=True" } else { "causal=True" }));
        }
        if self.dropout != 0.0 || at.is_written("dropout") {
            let rate = Code::number(at.real("dropout", self.dropout));
            arguments.push(Code::named("dropout_p", rate.around("", " if self.training else 0.0", Binding::Loose)));
        }
        if let Some(window) = self.window {
            arguments.push(Code::named("window", Code::number(at.size("window", window.0))));
        }
        if self.cosine.is_some() {
            arguments.push(Code::text("scale=1.0"));
        }
        for (key, value) in [("scale", self.scale), ("softcap", self.softcap)] {
            if let Some(value) = value {
                arguments.push(Code::named(key, Code::number(at.real(key, value))));
            }
        }
        if !plain {
            at.helper(MASKED);
        }
        let function = if plain { "functional.scaled_dot_product_attention" } else { "masked_attention" };
        let y = at.function(Code::call(function, arguments));
        Ok(at.function(Code::applied("join_heads", y, Vec::new())))
    }

    fn describe(&self, _: &'static str) -> Description<'_> {
        let taps = [&self.key, &self.value, &self.mask, &self.segments, &self.bias, &self.cosine]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        Step { reads: taps, ..Step::new(Work::Dense, format!("attention {} heads", self.heads.0)) }.into()
    }
}

impl DotProductAttention {
    /// The widths of queries, keys and values in one value, as Python.
    fn parts(&self, at: &mut At<'_, '_>) -> Code {
        let (heads, kv_heads) = (self.heads.0, self.kv_heads.unwrap_or(self.heads).0);
        let [queries, keys] = [heads, kv_heads].map(|heads| Code::number(self.width(at, heads)));
        if heads == kv_heads { queries } else { Code::list(vec![queries, keys.clone(), keys]) }
    }

    /// The numbers of so many heads of the present value.
    fn width(&self, at: &mut At<'_, '_>, heads: usize) -> Number {
        let all = self.heads.0 + 2 * self.kv_heads.unwrap_or(self.heads).0;
        let (width, share) = (at.last(), Number::real(heads as f64 / all as f64));
        let part = width.times(&share).filter(|part| part.value.fract() == 0.0);
        part.unwrap_or_else(|| Number::real((width.value * share.value).round())).whole()
    }
}

/// Requires that queries, keys and values have the same number of axes.
fn expect_equal_ranks(at: &Builder<'_, '_>, operands: [ValueId; 3]) -> Result<(), GraphError> {
    let [queries, keys, values] = operands.map(|operand| at.rank(operand));
    if keys == queries && values == queries {
        return Ok(());
    }
    let [queries, keys, values] = operands.map(|operand| at.shape(operand));
    Err(at.refuse(format!(
        "queries, keys and values need the same number of axes; including the batch, they are {queries}, {keys} and \
         {values}"
    )))
}

/// Queries or keys, each divided by its length, or by 1e-12 if it is shorter (PyTorch's normalize).
fn of_length_one(at: &mut Builder<'_, '_>, part: &str, x: ValueId) -> Result<ValueId, GraphError> {
    let formula = Formula::define(1, |[x]| [x * x.square().row_sum().max(SHORTEST * SHORTEST).rsqrt()]);
    at.unnamed_part(&format!("{part}_of_length_one"), formula, &[x])
}

/// The `eps` of PyTorch's normalize.
const SHORTEST: f64 = 1e-12;

/// Optional operands of attention.
#[derive(Clone, Copy, Default)]
pub(super) struct Beside {
    /// `[n, s]`, 0 for masked keys.
    pub mask: Option<ValueId>,
    /// `[n or 1, .., t]`, numbers of which a query and the keys that it sees have the same.
    pub segments: Option<ValueId>,
    /// `[heads, t, s]`, added to scores.
    pub bias: Option<ValueId>,
    /// `[heads, 1, 1]`, by which scores are multiplied instead of 1 / sqrt(d).
    pub cosine: Option<ValueId>,
}

/// The computation of attention, independent of the layers of its operands.
pub(super) struct Heads {
    pub heads: usize,
    pub kv_heads: usize,
    pub causal: bool,
    /// How far away a key that a query sees is less than.
    pub window: Option<usize>,
    /// The factor of scores, if it is not 1 / sqrt(d).
    pub scale: Option<f64>,
    /// The bound of scores.
    pub softcap: Option<f64>,
    /// Minus the exponent of the smallest slope, if scores fall with the distance.
    pub alibi: Option<f64>,
    /// What is added to the scores of keys that a query does not see; `None` if they have no weight.
    pub masked: Option<f64>,
    pub dropout: f64,
}

impl Heads {
    /// Queries, keys and values `[n, .., heads, t, d]` of a value `[n, .., t, (heads + 2*kv_heads)*d]`.
    pub fn packed(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<[ValueId; 3], GraphError> {
        let all = self.heads + 2 * self.kv_heads;
        let split = self.apart(at, "qkv", x, all)?;
        let axis = at.rank(split) - 3;
        let sizes = vec![self.heads, self.kv_heads, self.kv_heads];
        let parts = at.add_parts("split", Phase::Forward, ops::Split { axis, sizes }, &[split])?;
        <[ValueId; 3]>::try_from(parts).map_err(|_| at.refuse("a split into three gives three".to_owned()))
    }

    /// `[n, .., heads, t, d]` of `[n, .., t, heads*d]`.
    pub fn apart(&self, at: &mut Builder<'_, '_>, part: &str, x: ValueId, heads: usize) -> Result<ValueId, GraphError> {
        let shape = at.shape(x).to_vec();
        let [leading @ .., t, width] = &shape[..] else {
            return Err(at.refuse("a sample is to be tokens, [T, E]".to_owned()));
        };
        if leading.is_empty() {
            return Err(at.refuse("expected tokens, [T, E], for each sample; this value has one axis".to_owned()));
        }
        if !width.is_multiple_of(heads) || !self.heads.is_multiple_of(self.kv_heads) {
            let message =
                format!("{width} numbers per token cannot be divided among {heads} heads ({} of queries)", self.heads);
            return Err(at.refuse(message));
        }
        let split = [leading, &[*t, heads, width / heads]].concat();
        let heads = at.add_part(&format!("{part}_heads"), ops::Reshape { shape: split.into() }, &[x])?;
        at.transposed(part, &heads_and_tokens(leading.len()), heads)
    }

    /// `[n, .., t, heads*e]` of queries and keys `[n, .., heads, t, d]` and values `[n, .., heads, t, e]`.
    pub fn attend(
        &self,
        at: &mut Builder<'_, '_>,
        [q, k, v]: [ValueId; 3],
        beside: Beside,
    ) -> Result<ValueId, GraphError> {
        let stream = at.stream();
        let queries = at.shape(q).to_vec();
        let [leading @ .., heads, t, d] = &queries[..] else {
            return Err(at.refuse("queries without heads".to_owned()));
        };
        let (heads, t, d) = (*heads, *t, *d);
        let s = at.shape(k)[at.rank(k) - 2];
        let e = at.shape(v)[at.rank(v) - 1];
        let (kv, group) = (self.kv_heads, self.heads / self.kv_heads);
        let of_heads = |axes: [usize; 3]| ops::Reshape { shape: [leading, &axes].concat().into() };
        // Heads of queries that share keys and values are rows of one product.
        let joined = |at: &mut Builder<'_, '_>, part: &str, x, width| match group {
            1 => Ok(x),
            _ => at.add_part(part, of_heads([kv, group * t, width]), &[x]),
        };
        let q = joined(at, "q_groups", q, d)?;
        let mut scores = at.add_part("scores", MatMul { transpose_a: false, transpose_b: true }, &[q, k])?;
        if group > 1 {
            scores = at.add_part("by_head", of_heads([heads, t, s]), &[scores])?;
        }
        let mut probabilities = self.probabilities(at, scores, (leading, s as f64 - t as f64, d), beside)?;
        if at.left_to_chance() && self.dropout > 0.0 {
            probabilities = at.add_part("dropout", ops::Dropout { rate: self.dropout, stream }, &[probabilities])?;
        }
        let probabilities = joined(at, "groups", probabilities, s)?;
        let product = MatMul { transpose_a: false, transpose_b: false };
        let mut y = at.add_part("values", product, &[probabilities, v])?;
        if group > 1 {
            y = at.add_part("values_by_head", of_heads([heads, t, e]), &[y])?;
        }
        let y = at.transposed("by_token", &heads_and_tokens(leading.len()), y)?;
        at.add_part("joined", ops::Reshape { shape: [leading, &[t, heads * e]].concat().into() }, &[y])
    }

    /// The softmax of scores `[leading.., heads, t, s]` along the keys that a query sees, where `before` keys come
    /// before the first query and queries have `d` channels.
    fn probabilities(
        &self,
        at: &mut Builder<'_, '_>,
        scores: ValueId,
        (leading, before, d): (&[usize], f64, usize),
        beside: Beside,
    ) -> Result<ValueId, GraphError> {
        let mut operands = vec![scores];
        let mut place = |value| {
            operands.push(value);
            operands.len() - 1
        };
        let bias = beside.bias.map(&mut place);
        let cosine = beside.cosine.map(&mut place);
        let mask = match beside.mask {
            None => None,
            Some(mask) => {
                let [n, s] = at.shape(mask)[..].try_into().map_err(|_| at.refuse("a mask is `[T]`".to_owned()))?;
                let shape = [&[n], &vec![1; leading.len() + 1][..], &[s]].concat();
                Some(place(at.add_part("mask", ops::Reshape { shape: shape.into() }, &[mask])?))
            }
        };
        let segments = match beside.segments.filter(|segments| !at.is_zero(*segments)) {
            None => None,
            Some(segments) => {
                let shape = at.shape(segments).to_vec();
                let Some((t, before)) = shape.split_last() else {
                    return Err(at.refuse("segments are `[T]`".to_owned()));
                };
                let of_queries = ops::Reshape { shape: [before, &[1, *t, 1]].concat().into() };
                let of_keys = ops::Reshape { shape: [before, &[1, 1, *t]].concat().into() };
                let queries = place(at.add_part("segments_of_queries", of_queries, &[segments])?);
                Some([queries, place(at.add_part("segments_of_keys", of_keys, &[segments])?)])
            }
        };
        let scale = self.scale.unwrap_or_else(|| 1.0 / (d as f64).sqrt());
        let (query, key) = (leading.len() + 1, leading.len() + 2);
        let formula = Formula::over(1, operands.len(), |x| {
            let score = cosine.map_or_else(|| x[0] * scale, |factor| x[0] * x[factor]);
            let score = self.softcap.map_or(score, |most| (score / most).tanh() * most);
            let score = bias.map_or(score, |bias| score + x[bias]);
            let score = self.alibi.map_or(score, |most| {
                let distance = x[0].coordinate(query) + before - x[0].coordinate(key);
                score - slope(x[0].coordinate(query - 1), self.heads, most) * distance.abs()
            });
            // Each is 1 if a query sees a key; in causal attention, if the key is not after the query.
            let causal = self.causal.then(|| (x[0].coordinate(query) + before).at_least(x[0].coordinate(key)));
            let window = self.window.map(|window| {
                let distance = x[0].coordinate(query) + before - x[0].coordinate(key);
                x[0].number(window as f64).greater(distance.abs())
            });
            let mask = mask.map(|mask| x[mask]);
            let segments = segments.map(|[query, key]| x[query].equal(x[key]));
            let seen = [causal, window, mask, segments].into_iter().flatten().reduce(|all, one| all * one);
            let score = match (seen, self.masked) {
                (None, _) => score,
                (Some(seen), None) => seen.select(score, f64::NEG_INFINITY),
                (Some(seen), Some(masked)) => seen.select(score, score + masked),
            };
            score.softmax()
        });
        at.formula_part("probabilities", formula, DeviceName::new("SoftmaxV2", "SoftmaxGrad"), &operands)
    }
}

/// The order of axes that exchanges tokens and heads behind so many leading axes; it is its own inverse.
fn heads_and_tokens(leading: usize) -> Vec<usize> {
    (0..leading).chain([leading + 1, leading, leading + 2]).collect()
}
