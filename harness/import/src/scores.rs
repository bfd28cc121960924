//! Attention that is computed step by step: products of queries and keys, a scale, a bias, a mask, softmax, dropout,
//! and the product with the values. The steps are one layer of a recipe, so that they are put together here.

use zoo_recipe::Layer;
use zoo_recipe::layers::{DotProductAttention, RelativePositionBias, Rotary};
use zoo_recipe::schema::{Pair, Size};

use crate::Refusal;
use crate::arguments::At;
use crate::constant::Constant;
use crate::cosine::Computed;
use crate::functions::PRODUCTS;
use crate::heads::Heads;
use crate::offsets::Offsets;
use crate::operation::{Tensor, Unit, What, Windows};
use crate::reader::{Picked, Reader, SCORES, Seen};
use crate::trace::Argument;
use crate::turned::TURNED;
use crate::view::{View, simplified};
use crate::word::Word;

const VALUES: &str = "keys and values have one length and as many heads";

/// Most tokens of a window with a bias of relative positions.
pub(crate) const MOST_TOKENS: usize = 4096;

/// A learned bias of scores.
#[derive(Clone, Debug)]
pub(crate) enum Bias {
    /// Rows of a parameter.
    Rows(Picked),
    /// What a small network makes of offsets.
    Offsets(Offsets),
}

/// Queries and keys are divided by their lengths.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cosine {
    /// Their products are not multiplied yet.
    Plain,
    /// Multiplied by e^min(x, bound) of a parameter.
    Times(String, f64),
}

/// Scores, or the weights that softmax makes of them.
#[derive(Clone, Debug)]
pub(crate) struct Scores {
    /// Queries and keys, `[samples, heads, tokens, d]`.
    pub queries: (Tensor, Vec<View>),
    pub keys: (Tensor, Vec<View>),
    /// `[samples, heads, queries, keys]`.
    pub extents: [usize; 4],
    /// The same, samples perhaps as several axes.
    pub shape: Vec<usize>,
    pub scale: f64,
    /// Number of heads of keys.
    pub shared: usize,
    pub rotary: Option<Rotary>,
    /// The factor of their hyperbolic tangent.
    pub bounded: Option<f64>,
    pub bias: Option<Bias>,
    pub cosine: Option<Cosine>,
    pub segments: bool,
    pub causal: bool,
    pub window: Option<usize>,
    /// The input that is 0 for keys that are not seen.
    pub mask: Option<Tensor>,
    /// What is added to scores that are not seen, if they have a weight.
    pub masked: Option<f64>,
    /// Minus the exponent of the smallest slope by which they fall with the distance of a key, and whether that only
    /// holds for keys before the query.
    pub alibi: Option<(f64, bool)>,
    /// A constant of 0 and 1 that they are multiplied by.
    pub kept: Option<Constant>,
    pub is_softmax: bool,
    pub dropout: f64,
}

impl Scores {
    /// Products of queries and keys.
    fn of([queries, keys]: [(Tensor, Vec<View>); 2], extents: [usize; 4], shape: Vec<usize>) -> Self {
        Self {
            queries,
            keys,
            extents,
            shape,
            scale: 1.0,
            shared: extents[1],
            rotary: None,
            bounded: None,
            bias: None,
            cosine: None,
            segments: false,
            causal: false,
            window: None,
            mask: None,
            masked: None,
            alibi: None,
            kept: None,
            is_softmax: false,
            dropout: 0.0,
        }
    }

    /// Whether there are keys that a query does not see.
    pub fn is_masked(&self) -> bool {
        self.segments || self.causal || self.window.is_some()
    }

    /// Whether they are a product, a factor of it, and softmax.
    pub fn is_plain(&self) -> bool {
        let is_bounded = matches!(self.cosine, Some(Cosine::Times(..)));
        let falls = self.alibi.is_some() || self.kept.is_some();
        let has_more = self.rotary.is_some() || self.bias.is_some() || is_bounded || self.mask.is_some();
        !has_more && !falls && !self.is_masked() && self.shared == self.extents[1]
    }

    /// These scores in another shape, if that is a matter of samples alone.
    pub fn viewed(&self, shape: &[usize], views: &[View]) -> Option<Self> {
        let [n, heads, queries, keys] = self.extents;
        let is_own = |shape: &[usize]| shape.ends_with(&self.extents[1..]) || *shape == [n * heads, queries, keys];
        let keeps = |view: &View| matches!(view, View::Reshape(to) if is_own(to));
        let fits = is_own(shape) && views.iter().all(keeps);
        fits.then(|| Self { shape: shape.to_vec(), ..self.clone() })
    }
}

/// Whether scores of heads of this width are divided by its square root: the same number, whichever way it was rounded.
pub(crate) fn is_usual(scale: f64, width: usize) -> bool {
    let usual = 1.0 / (width as f64).sqrt();
    (scale - usual).abs() <= 4.0 * f64::EPSILON * usual
}

/// Whether views make `[heads, query, key]` of rows for each query and key.
pub(crate) fn is_by_head(rows: &Constant, views: &[View], shape: &[usize], [heads, t, s]: [usize; 3]) -> bool {
    let views = simplified(&[&rows.shape[..], &[heads]].concat(), views);
    let views = match &views[..] {
        [View::Reshape(apart), rest @ ..] if apart == &[t, s, heads] => rest,
        all => all,
    };
    let by_head = match views {
        [View::Permute(order)] | [View::Permute(order), View::Reshape(_)] => order == &[2, 0, 1],
        _ => false,
    };
    by_head && shape.ends_with(&[heads, t, s]) && shape.iter().product::<usize>() == heads * t * s
}

impl Reader<'_> {
    /// The scores that an argument is.
    pub(crate) fn scores(&self, argument: Option<&Argument>) -> Option<Scores> {
        let Some(Seen::Scores(scores)) = self.given(argument) else { return None };
        Some((**scores).clone())
    }

    pub(crate) fn becomes(&mut self, at: &mut At<'_>, scores: Scores) -> Result<(), Refusal> {
        self.is(at.made()?.value, Seen::Scores(Box::new(scores)));
        Ok(())
    }

    /// The scores of queries and keys, which may be given as columns.
    pub(crate) fn scores_of(
        &mut self,
        at: &mut At<'_>,
        [first, second]: [Option<&Argument>; 2],
        columns: bool,
    ) -> Result<Scores, Refusal> {
        let shape = |argument: Option<&Argument>| argument.and_then(|argument| self.shape(argument.value()?));
        let (Some(mut from), Some(mut to)) = (shape(first), shape(second)) else {
            let given = [first, second].into_iter().flatten();
            let refused = given.clone().find_map(|one| self.refused.get(&one.value()?)).cloned();
            let unsaid = given.clone().find_map(|one| match self.given(Some(one))? {
                Seen::Unsaid(what) => Some(*what),
                _ => None,
            });
            let what = unsaid.unwrap_or("it multiplies matrices");
            return Err(refused.unwrap_or_else(|| at.refuse(what, if unsaid.is_some() { SCORES } else { PRODUCTS })));
        };
        if from.len() < 2 || to.len() < 2 {
            return Err(at.refuse(format!("it multiplies matrices {from:?} and {to:?}"), PRODUCTS));
        }
        for argument in [first, second] {
            self.not_turned(at, argument)?;
            if let Some(computed @ (Computed::Turned(turned) | Computed::Columns(turned))) = self.computed(argument)
                && turned.rotary().is_none()
            {
                let (what, nearest) = computed.refusal();
                return Err(at.refuse(what, nearest));
            }
        }
        let (Some(queries), Some(keys)) = (self.heads(at, first, false), self.heads(at, second, columns)) else {
            return Err(at.refuse(format!("it multiplies matrices {from:?} and {to:?}"), PRODUCTS));
        };
        if columns && to.len() > 1 {
            let last = to.len() - 1;
            to.swap(last, last - 1);
        }
        let shape = [&from[..from.len() - 1], &to[to.len() - 2..to.len() - 1]].concat();
        // Samples and heads may be one axis, and windows of samples are one of their own.
        for extents in [&mut from, &mut to] {
            if let Some(apart) = self.apart(extents) {
                *extents = apart;
            }
            if let [n, windows, _, _, _] = extents[..] {
                extents.splice(..2, [n * windows]);
            }
        }
        let (&[n, heads, t, d], &[samples, shared, s, width]) = (&from[..], &to[..]) else {
            return Err(at.refuse(format!("it multiplies matrices {from:?} and {to:?}"), PRODUCTS));
        };
        let shared = shared / keys.group;
        if [samples, width] != [n, d] || shared == 0 || !heads.is_multiple_of(shared) || queries.group != 1 {
            return Err(at.refuse(
                format!("{heads} heads of queries of width {d}, and {shared} heads of keys of width {width}"),
                "heads have one width, and heads of queries share keys evenly (`kv_heads`)",
            ));
        }
        if queries.rotary != keys.rotary {
            return Err(at.refuse("queries and keys are turned by different angles", TURNED));
        }
        let scores = Scores::of([queries.of, keys.of], [n, heads, t, s], shape);
        Ok(Scores { scale: queries.by * keys.by, shared, rotary: queries.rotary, ..scores })
    }

    /// A product of matrices: scores of queries and keys, or their weights with values.
    pub(crate) fn product(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let (first, second) = (at.input(), at.argument(1, &["other", "mat2", "tensor2"]));
        if let Some(scores) = self.scores(first) {
            return match scores.is_plain() && !self.has_values(at, &scores, second) {
                true => self.multiplied(at, [first, second]),
                false => self.weighted(at, scores, second),
            };
        }
        let made = at.made()?;
        let of_length_one = |argument| match self.computed(argument) {
            Some(Computed::OfLengthOne(base, views, axis)) => Some(((*base, views.clone()), *axis)),
            _ => None,
        };
        let scores = match [first, second].map(of_length_one) {
            // The rows of the queries, and the columns of the keys, are of length one.
            [Some((queries, 3)), Some(((base, mut views), 2))] => {
                let [Some(from), Some(to)] = [first, second].map(|argument| self.shape(argument?.value()?)) else {
                    return Err(at.unknown_form("other"));
                };
                let (&[n, heads, t, d], &[_, _, width, s]) = (&from[..], &to[..]) else {
                    return Err(at.refuse(format!("it multiplies matrices {from:?} and {to:?}"), PRODUCTS));
                };
                if [n, heads, d] != [to[0], to[1], width] {
                    return Err(at.refuse(format!("it multiplies matrices {from:?} and {to:?}"), PRODUCTS));
                }
                views.push(View::Permute(vec![0, 1, 3, 2]));
                let keys = (base, simplified(self.shape_of(base), &views));
                let scores = Scores::of([queries, keys], [n, heads, t, s], made.shape.clone());
                Scores { cosine: Some(Cosine::Plain), ..scores }
            }
            _ => match self.scores_of(at, [first, second], true) {
                Ok(scores) => scores,
                Err(refusal) => return self.multiplied(at, [first, second]).map_err(|_| refusal),
            },
        };
        self.becomes(at, Scores { shape: made.shape.clone(), ..scores })
    }

    /// Scores times a number.
    pub(crate) fn scale_of_scores(&mut self, at: &mut At<'_>, scores: Scores, by: f64) -> Result<(), Refusal> {
        if scores.is_softmax || scores.bias.is_some() || scores.is_masked() {
            return Err(at.refuse("weights, or scores with a bias or a mask, are multiplied by a number", SCORES));
        }
        match scores.bounded {
            Some(bounded) => self.becomes(at, Scores { bounded: Some(bounded * by), ..scores }),
            None => self.becomes(at, Scores { scale: scores.scale * by, ..scores }),
        }
    }

    /// The hyperbolic tangent of scores.
    pub(crate) fn tangent_of_scores(&mut self, at: &mut At<'_>, scores: Scores) -> Result<(), Refusal> {
        let is_cosine = scores.cosine.is_some() || scores.bounded.is_some();
        if scores.is_softmax || scores.bias.is_some() || scores.is_masked() || is_cosine {
            return Err(at.refuse("it bounds weights, or scores with a bias or a mask", SCORES));
        }
        self.becomes(at, Scores { bounded: Some(1.0), ..scores })
    }

    /// Cosines times e^min(x, bound) of a parameter.
    pub(crate) fn factor_of_scores(
        &mut self,
        at: &mut At<'_>,
        scores: Scores,
        (name, bound): (String, f64),
    ) -> Result<(), Refusal> {
        let is_masked = scores.is_masked();
        if scores.cosine != Some(Cosine::Plain) || scores.is_softmax || scores.bias.is_some() || is_masked {
            return Err(at.refuse(
                format!("scores are multiplied by the parameter `{name}`"),
                "cosines are: `dot_product_attention` with `cosine`, and `logit_scale`",
            ));
        }
        self.becomes(at, Scores { cosine: Some(Cosine::Times(name, bound)), ..scores })
    }

    pub(crate) fn softmax_of_scores(&mut self, at: &mut At<'_>, scores: Scores, axis: usize) -> Result<(), Refusal> {
        if scores.kept.is_some() {
            return Err(at.refuse("it sets scores to 0", SCORES));
        }
        if scores.is_softmax || axis + 1 != scores.shape.len() {
            return Err(at.refuse("softmax of scores is not along the keys", SCORES));
        }
        self.becomes(at, Scores { is_softmax: true, ..scores })
    }

    pub(crate) fn dropout_of_scores(&mut self, at: &mut At<'_>, scores: Scores, rate: f64) -> Result<(), Refusal> {
        if !scores.is_softmax || scores.dropout != 0.0 {
            return Err(at.refuse("scores are dropped before softmax, or twice", SCORES));
        }
        self.becomes(at, Scores { dropout: rate, ..scores })
    }

    /// Scores with a learned bias.
    pub(crate) fn bias_of_scores(&mut self, at: &mut At<'_>, scores: Scores, bias: Bias) -> Result<(), Refusal> {
        if scores.is_softmax || scores.bias.is_some() {
            return Err(at.refuse("there are two biases, or one after softmax", SCORES));
        }
        self.becomes(at, Scores { bias: Some(bias), ..scores })
    }

    /// Heads of samples and their windows as one axis.
    fn by_sample(&self, (base, views): &(Tensor, Vec<View>)) -> Vec<usize> {
        let mut shape = crate::view::shape(self.shape_of(*base), views);
        if let [n, windows, _, _, _] = shape[..] {
            shape.splice(..2, [n * windows]);
        }
        shape
    }

    /// Whether an argument is the values of weights.
    fn has_values(&self, at: &At<'_>, scores: &Scores, values: Option<&Argument>) -> bool {
        let Some(Heads { of: values, by: 1.0, rotary: None, .. }) = self.heads(at, values, false) else { return false };
        let shape = self.by_sample(&values);
        // Heads may be beside samples.
        let by_heads = (4..=5).contains(&scores.shape.len()) || scores.extents[1] > 1;
        let is_attention = scores.is_softmax && by_heads;
        is_attention
            && shape.get(..3) == self.by_sample(&scores.keys).get(..3)
            && shape.get(2) == Some(&scores.extents[3])
    }

    /// The weights of an attention with its values: the whole attention.
    pub(crate) fn weighted(
        &mut self,
        at: &mut At<'_>,
        scores: Scores,
        values: Option<&Argument>,
    ) -> Result<(), Refusal> {
        let [n, heads, t, s] = scores.extents;
        let Some(Heads { of: values, by: 1.0, rotary: None, .. }) = self.heads(at, values, false) else {
            return Err(at.unknown_form("other"));
        };
        let (shape, keys) = (self.by_sample(&values), self.by_sample(&scores.keys));
        let (&[_, _, _, d], &[_, _, _, e]) = (&keys[..], &shape[..]) else {
            return Err(at.refuse(format!("the values are {shape:?}, and the keys {keys:?}"), VALUES));
        };
        if shape[..3] != [n, scores.shared, s] || shape[..3] != keys[..3] {
            return Err(at.refuse(format!("the values are {shape:?}, and the keys {keys:?}"), VALUES));
        }
        if !scores.is_softmax || !(3..=5).contains(&scores.shape.len()) {
            return Err(at.refuse("scores are multiplied by values without softmax", SCORES));
        }
        if matches!((scores.alibi, scores.causal), (Some((_, true)), false)) {
            return Err(at.refuse("scores rise with the number of a key, and later keys are not hidden", SCORES));
        }
        let Scores { queries, keys, bias, segments, causal, window, masked, dropout, cosine, .. } = scores;
        let (rotary, shared, softcap, mask) = (scores.rotary, scores.shared, scores.bounded, scores.mask);
        // softcap * tanh(score / softcap)
        let scale = scores.scale * softcap.unwrap_or(1.0);
        let is_cosine = cosine.is_some();
        let is_own = !is_cosine && !is_usual(scale, d);
        let cosine = match cosine {
            None => None,
            Some(Cosine::Times(name, bound)) if scale == 1.0 => Some(self.logit_scale(at, &name, bound, heads)?),
            Some(Cosine::Times(..) | Cosine::Plain) => {
                return Err(at.refuse(
                    "cosines are not multiplied by a parameter, or by a number too",
                    "`logit_scale` gives a learned factor of cosines",
                ));
            }
        };
        let extents = [heads, t, s];
        let bias = match bias {
            None => None,
            Some(Bias::Rows(bias)) => Some(match self.distance_bias(at, &bias, extents) {
                Some(bias) => bias,
                None => self.relative_bias(at, queries.0, &bias, extents)?,
            }),
            Some(Bias::Offsets(bias)) => {
                let window = self.windows(queries.0).map(|windows| windows.size);
                Some(self.continuous_bias(at, &bias, extents, window)?)
            }
        };
        // Windows that are not moved are one part each: the same layer says both, where others are moved.
        let in_one = |windows: &Windows| windows.shift == [0, 0] && self.moves_windows;
        let windows = self.windows(queries.0).filter(|windows| segments || in_one(windows)).cloned();
        let masked = if windows.is_some() && !segments { self.masked } else { masked };
        let segments = windows.map(|windows| {
            let shape = vec![1, windows.grid().iter().product(), t];
            self.inner(at, What::Segments(windows), Vec::new(), shape)
        });
        let layer = DotProductAttention {
            heads: Size(heads),
            kv_heads: (shared != heads).then_some(Size(shared)),
            key: None,
            value: None,
            causal,
            window: window.map(Size),
            scale: is_own.then_some(scale),
            softcap,
            alibi: scores.alibi.map(|(most, _)| most),
            mask: None,
            segments: None,
            bias: None,
            cosine: None,
            rotary,
            masked,
            dropout,
        };
        let beside: Vec<Tensor> = mask.into_iter().chain(segments).chain(bias).chain(cosine).collect();
        let said = DotProductAttention { scale: Some(scale), ..layer.clone() };
        self.attend(at, layer, [queries, keys, values], [n, t, s, d, e], &beside)?;
        let result = at.units.last().map(Unit::result).filter(|_| !is_own && !is_cosine);
        self.said.extend(result.map(|result| (result, Word::of(&Layer::DotProductAttention(said)))));
        Ok(())
    }

    /// The bias of scores by the distance of two pixels of a window.
    fn relative_bias(
        &mut self,
        at: &mut At<'_>,
        queries: Tensor,
        bias: &Picked,
        [heads, t, s]: [usize; 3],
    ) -> Result<Tensor, Refusal> {
        let table = self.trace.shape(&bias.table).to_vec();
        let own = self.windows(queries).map(|windows| windows.size);
        let squares =
            (1..=t.min(MOST_TOKENS)).filter(|height| t.is_multiple_of(*height)).map(|height| [height, t / height]);
        let rows = |[height, width]: [usize; 2]| (2 * height - 1) * (2 * width - 1);
        // A table of distances has one for each pixel of the window, by head.
        let mirrored = table == [heads, t] && bias.rows.len() == t * s;
        let is_index = |size: &[usize; 2]| {
            let own = if mirrored { [heads, t] } else { [rows(*size), heads] };
            t == s && t <= MOST_TOKENS && size[0] * size[1] == t && table == own && {
                let of = if mirrored { RelativePositionBias::columns } else { RelativePositionBias::rows };
                bias.rows.values().eq(of(*size).into_iter().map(f64::from))
            }
        };
        let size = own.into_iter().chain(squares).find(is_index);
        let by_head = is_by_head(&bias.rows, &bias.views, &bias.shape, [heads, t, s]);
        let Some(size) = size.filter(|_| by_head) else {
            return Err(at.refuse(
                format!("scores have a bias of rows of `{}` that are not those of relative positions", bias.table),
                "`relative_position_bias` has a row for each distance of two pixels of a window, `distance_bias` for distances of tokens",
            ));
        };
        let init = zoo_graph::Init::Constant(0.0);
        let layer = RelativePositionBias { size: Pair(size), heads: Size(heads), mirrored, tap: String::new(), init };
        let what = What::Layer(Word::of(&Layer::RelativePositionBias(layer)));
        Ok(self.beside(at, what, bias.table.clone(), vec![heads, t, s]))
    }
}
