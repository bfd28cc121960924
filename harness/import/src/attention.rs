//! Attention: operations between its products cannot be written separately in a recipe.

use zoo_recipe::Layer;
use zoo_recipe::layers as zoo;
use zoo_recipe::schema::{Size, WeightInit};

use crate::Refusal;
use crate::arguments::{At, NAMED};
use crate::constant::Constant;
use crate::masks::UNSEEN;
use crate::operation::{Tensor, What};
use crate::reader::{Reader, Seen};
use crate::trace::Argument;
use crate::view::View;
use crate::word::Word;

impl Reader<'_> {
    /// PyTorch's `scaled_dot_product_attention` of queries, keys and values `[n, heads, t, d]`.
    pub(crate) fn dot_product_attention(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let [query, key, value] =
            [("query", 0), ("key", 1), ("value", 2)].map(|(name, place)| at.argument(place, &[name]));
        let mask = at.argument(3, &["attn_mask"]);
        let dropout = at.float(4, "dropout_p", 0.0)?;
        let dropout = self.rate(at, dropout)?;
        let causal = at.flag(5, "is_causal", false)?;
        let given = at.argument(6, &["scale"]).map(|scale| scale.number().ok_or_else(|| at.unknown_form("scale")));
        let given = given.transpose()?;
        // The shapes show which heads share keys.
        at.named("enable_gqa");
        let mut scores = self.scores_of(at, [query, key], false)?;
        let width = query.and_then(|query| self.shape(query.value()?)?.last().copied()).unwrap_or_default();
        scores.scale *= given.unwrap_or_else(|| 1.0 / (width as f64).sqrt());
        let [_, _, t, s] = scores.extents;
        if causal && s != t {
            return Err(at.refuse(
                "attention is causal, but there are fewer or more queries than keys",
                "with `causal`, the last query sees all keys",
            ));
        }
        scores.causal = causal;
        if let Some(mask) = mask {
            scores = self.with_any_mask(at, scores, mask)?;
        }
        scores.is_softmax = true;
        scores.dropout = dropout;
        self.weighted(at, scores, value)
    }

    /// Attention of queries, keys and values `[n, heads, t, d]`, of which the layer takes heads side by side. `n`:
    /// samples, and windows of them; `e`: the width of values. beside: segments and bias.
    pub(crate) fn attend(
        &mut self,
        at: &mut At<'_>,
        layer: zoo::DotProductAttention,
        seen: [(Tensor, Vec<View>); 3],
        [n, t, s, d, e]: [usize; 5],
        beside: &[Tensor],
    ) -> Result<(), Refusal> {
        let heads = layer.heads.0;
        let shared = layer.kv_heads.unwrap_or(layer.heads).0;
        let samples = self.trace.batch;
        // Windows may be an axis of their own, and samples and heads one.
        let rank = at.made()?.shape.len();
        let apart = match rank {
            5 => vec![View::Reshape(vec![samples, n / samples, t, heads, e]), View::Permute(vec![0, 1, 3, 2, 4])],
            _ => vec![View::Reshape(vec![n, t, heads, e]), View::Permute(vec![0, 2, 1, 3])],
        };
        let folded = (rank == 3).then(|| View::Reshape(vec![n * heads, t, e]));
        let apart = [apart, folded.into_iter().collect()].concat();
        let [(q, _), (k, _), (v, _)] = &seen;
        let mut operands = match q == k && k == v && shared == heads && is_packed(&seen, [n, heads, t, d], samples) {
            true => vec![*q],
            false => {
                let mut operands = Vec::new();
                let parts = [(t, heads * d), (s, shared * d), (s, shared * e)];
                for ((base, views), (length, width)) in seen.iter().zip(parts) {
                    let in_windows = crate::view::shape(self.shape_of(*base), views).len() == 5;
                    let to = match n == samples && !in_windows {
                        true => vec![n, length, width],
                        false => vec![samples, n / samples, length, width],
                    };
                    let order = if in_windows { vec![0, 1, 3, 2, 4] } else { vec![0, 2, 1, 3] };
                    let together = [View::Permute(order), View::Reshape(to)];
                    operands.push(self.view(at, *base, [&views[..], &together].concat())?);
                }
                operands
            }
        };
        let shape = self.widened(operands[0], heads * e);
        operands.extend_from_slice(beside);
        let what = What::Layer(Word::of(&Layer::DotProductAttention(layer)));
        self.gives_viewed(at, what, operands, None, shape, apart)
    }

    /// PyTorch's MultiheadAttention, whose tokens are the first axis here.
    pub(crate) fn attention(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        for key in ["bias_k", "bias_v", "key_padding_mask"] {
            if at.named(key).is_some() {
                return Err(at.refuse(
                    format!("it is given `{key}`"),
                    "`attention` sees all tokens, or with `causal` the preceding ones",
                ));
            }
        }
        for key in ["add_zero_attn", "use_separate_proj_weight"] {
            if at.flag(NAMED, key, false)? {
                return Err(at.refuse(
                    format!("it has `{key}`"),
                    "`attention` has one matrix for queries, keys and values of one width",
                ));
            }
        }
        // A hint, beside the mask that it describes. Whether weights are returned, and averaged over heads, only
        // matters if they are used. The width is that of the matrix.
        for key in ["is_causal", "need_weights", "average_attn_weights", "embed_dim_to_check"] {
            at.named(key);
        }
        let given = ["query", "key", "value"].map(|key| at.named(key));
        let swapped = View::Permute(vec![1, 0, 2]);
        let mut operands = Vec::new();
        for argument in given {
            let Some(Seen::Of(base, views)) = self.given(argument) else { return Err(at.unknown_form("query")) };
            operands.push(match views.split_last() {
                Some((last, before)) if *last == swapped => self.view(at, *base, before.to_vec())?,
                _ => return Err(at.refuse("its tokens are not the first axis", "the batch is the second one here")),
            });
        }
        let [x, key, value] = operands[..] else { return Err(at.unknown_form("query")) };
        let matrix = at.named("in_proj_weight");
        let (name, shape) = self.parameter(at, matrix, "in_proj_weight")?;
        let extents = |tensor: Tensor| <[usize; 3]>::try_from(self.shape_of(tensor)).ok();
        let Some(([n, t, e], [_, s, _])) =
            extents(x).zip(extents(key)).filter(|([_, _, e], [_, _, width])| shape == [3 * e, *e] && e == width)
        else {
            return Err(at.unknown_form("in_proj_weight"));
        };
        let own = [
            ("in_proj_bias", "in_proj_bias"),
            ("out_proj_weight", "out_proj.weight"),
            ("out_proj_bias", "out_proj.bias"),
        ];
        for (key, leaf) in own {
            if at.named(key) != Some(&Argument::Parameter(format!("{name}.{leaf}"))) {
                return Err(at.refuse(
                    format!("its {key} is not `{name}.{leaf}`"),
                    "`attention` has biases in both dense layers",
                ));
            }
        }
        let heads = Size(at.size(NAMED, "num_heads", None)?);
        let rate = at.float(NAMED, "dropout_p", 0.0)?;
        let rate = if at.flag(NAMED, "training", true)? { rate } else { 0.0 };
        let dropout = self.rate(at, rate)?;
        let causal = match at.named("attn_mask") {
            Some(mask) => self.is_causal(at, mask, [t, s])?,
            None => false,
        };
        let (init, out_init) = (WeightInit::default(), WeightInit::default());
        let layer = zoo::Attention { heads, key: None, value: None, causal, mask: None, dropout, init, out_init };
        let what = What::Layer(Word::of(&Layer::Attention(layer)));
        for made in at.call.outputs.values().skip(1) {
            self.is(made.value, Seen::Unsaid("it uses the weights of an attention"));
        }
        let operands = if x == key && x == value { vec![x] } else { operands };
        self.gives_viewed(at, what, operands, Some(name), vec![n, t, e], vec![swapped])
    }

    /// Whether a mask of queries and keys hides all that come later; another one than this or none is refused.
    fn is_causal(&self, at: &At<'_>, mask: &Argument, [t, s]: [usize; 2]) -> Result<bool, Refusal> {
        let hidden = |mask: &Constant| {
            // Booleans say what is hidden, numbers are added.
            let values = mask.values().map(|value| match value {
                0.0 => Some(false),
                value => (mask.is_bool || value <= UNSEEN).then_some(true),
            });
            let values = values.collect::<Option<Vec<bool>>>()?;
            let (size, is_matrix) = (t * s, mask.shape.ends_with(&[t, s]));
            let first = values.get(..size).filter(|_| is_matrix && size > 0)?.to_vec();
            values.chunks(size).all(|matrix| *matrix == first).then_some(first)
        };
        let hidden = self.trace.constant(mask).and_then(hidden).unwrap_or_default();
        let all = |hides: &dyn Fn(usize, usize) -> bool| {
            let places = (0..t).flat_map(|query| (0..s).map(move |key| (query, key)));
            !hidden.is_empty() && places.zip(&hidden).all(|((query, key), hidden)| hides(query, key) == *hidden)
        };
        if t == s && all(&|query, key| key > query) {
            return Ok(true);
        }
        match all(&|_, _| false) {
            true => Ok(false),
            false => Err(at.refuse(
                "its mask is not a constant that hides all later tokens, or none",
                "`attention` has `causal`; `dot_product_attention` has sliding windows too",
            )),
        }
    }
}

/// Whether queries, keys and values are consecutive parts of the last axis of one tensor.
fn is_packed(seen: &[(Tensor, Vec<View>)], [n, heads, t, d]: [usize; 4], samples: usize) -> bool {
    let windows = n / samples;
    seen.iter().enumerate().all(|(part, (_, views))| {
        let by_head = [View::Reshape(vec![n, t, 3, heads, d]), View::Select(2, part), View::Permute(vec![0, 2, 1, 3])];
        let by_part = [
            View::Reshape(vec![n, t, 3, heads * d]),
            View::Select(2, part),
            View::Reshape(vec![n, t, heads, d]),
            View::Permute(vec![0, 2, 1, 3]),
        ];
        let by_window = [
            View::Reshape(vec![samples, windows, t, 3, heads * d]),
            View::Select(3, part),
            View::Reshape(vec![samples, windows, t, heads, d]),
            View::Permute(vec![0, 1, 3, 2, 4]),
        ];
        views[..] == by_head || views[..] == by_part || views[..] == by_window
    })
}
