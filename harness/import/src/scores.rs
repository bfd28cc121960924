//! Attention that is computed step by step: products of queries and keys, a scale, a bias, a mask, softmax, dropout,
//! and the product with the values. The steps are one layer of a recipe, so that they are put together here.

use zoo_recipe::Layer;
use zoo_recipe::layers::{DotProductAttention, RelativePositionBias, Rotary};
use zoo_recipe::schema::{Pair, Size};

use crate::Refusal;
use crate::arguments::At;
use crate::constant::Constant;
use crate::cosine::{Computed, LENGTHS};
use crate::functions::{CHOICE, PRODUCTS};
use crate::offsets::Offsets;
use crate::operation::{Tensor, Unit, What, Windows};
use crate::reader::{Picked, Reader, SCORES, Seen};
use crate::trace::{Argument, Call, ModuleCall, Trace};
use crate::turned::{TURNED, Turned};
use crate::view::{View, simplified};
use crate::word::{Setting, Word};

/// What is added at most to scores that are not seen: in f64, their weight is exactly 0 unless they are larger than
/// those that are seen by more than 9254, and then no mask of this network hides anything. What is larger, as -100, is a
/// part of the score.
const UNSEEN: f64 = -1e4;

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
enum Cosine {
    /// Their products are not multiplied yet.
    Plain,
    /// Multiplied by e^min(x, bound) of a parameter.
    Times(String, f64),
}

/// Scores, or the weights that softmax makes of them.
#[derive(Clone, Debug)]
pub(crate) struct Scores {
    /// Queries and keys, `[samples, heads, tokens, d]`.
    queries: (Tensor, Vec<View>),
    keys: (Tensor, Vec<View>),
    /// `[samples, heads, queries, keys]`.
    pub extents: [usize; 4],
    /// The same, samples perhaps as several axes.
    pub shape: Vec<usize>,
    pub scale: f64,
    /// Number of heads of keys.
    shared: usize,
    rotary: Option<Rotary>,
    /// The factor of their hyperbolic tangent.
    bounded: Option<f64>,
    bias: Option<Bias>,
    cosine: Option<Cosine>,
    segments: bool,
    pub causal: bool,
    window: Option<usize>,
    /// The input that is 0 for keys that are not seen.
    mask: Option<Tensor>,
    /// What is added to scores that are not seen, if they have a weight.
    masked: Option<f64>,
    pub is_softmax: bool,
    pub dropout: f64,
}

/// Queries, keys or values.
struct Heads {
    of: (Tensor, Vec<View>),
    /// A number that they are multiplied by.
    by: f64,
    rotary: Option<Rotary>,
    /// Number of heads of queries that share one of these.
    group: usize,
}

impl Scores {
    /// Whether there are keys that a query does not see.
    fn is_masked(&self) -> bool {
        self.segments || self.causal || self.window.is_some()
    }

    /// These scores in another shape, if that is a matter of samples alone.
    pub fn viewed(&self, shape: &[usize], views: &[View]) -> Option<Self> {
        let [.., heads, queries, keys] = shape else { return None };
        let keeps = |view: &View| matches!(view, View::Reshape(to) if to.ends_with(&self.extents[1..]));
        let fits = [*heads, *queries, *keys] == self.extents[1..] && views.iter().all(keeps);
        fits.then(|| Self { shape: shape.to_vec(), ..self.clone() })
    }
}

/// Whether scores of heads of this width are divided by its square root: the same number, whichever way it was rounded.
pub(crate) fn is_usual(scale: f64, width: usize) -> bool {
    let usual = 1.0 / (width as f64).sqrt();
    (scale - usual).abs() <= 4.0 * f64::EPSILON * usual
}

/// What a mask adds to scores that are not seen, if that leaves them a weight; `None` if it is no mask.
fn masked(mask: &Constant) -> Option<Option<f64>> {
    let mut hidden = mask.values().filter(|value| *value != 0.0);
    match hidden.next() {
        None => Some(None),
        Some(first) if first <= UNSEEN => hidden.all(|value| value <= UNSEEN).then_some(None),
        Some(first) if first < 0.0 => hidden.all(|value| value == first).then_some(Some(first)),
        Some(_) => None,
    }
}

/// What the first mask of a network leaves of scores that are not seen.
pub(crate) fn first_masked(trace: &Trace, call: &ModuleCall) -> Option<f64> {
    call.body.iter().find_map(|inner| match inner {
        Call::Module(inner) => first_masked(trace, inner),
        Call::Function(inner) if inner.name().contains("add") => masked(trace.constant(inner.args.get(1)?)?).flatten(),
        Call::Function(_) => None,
    })
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

    fn becomes(&mut self, at: &mut At<'_>, scores: Scores) -> Result<(), Refusal> {
        self.is(at.made()?.value, Seen::Scores(Box::new(scores)));
        Ok(())
    }

    /// Queries or keys as views of the result of an operation, and the number that they are multiplied by.
    fn factor(&self, at: &At<'_>, argument: Option<&Argument>) -> Option<((Tensor, Vec<View>), f64)> {
        let (tensor, views, by) = match self.given(argument) {
            Some(Seen::Of(tensor, views)) => (*tensor, views, 1.0),
            Some(Seen::Times(tensor, views, by)) => (*tensor, views, *by),
            _ => return None,
        };
        // A layer that only multiplies.
        let scaled = at.units.iter().rev().find_map(|unit| match unit {
            Unit::Operation(operation) if operation.result == tensor => {
                match (&operation.what, &operation.operands[..]) {
                    (What::Layer(word), [x]) if word.tag == "scale" => match word.settings.get("by")?.value {
                        Setting::Float(by) => Some((*x, by)),
                        Setting::Int(by) => Some((*x, by as f64)),
                        Setting::Bool(_)
                        | Setting::Text(_)
                        | Setting::List(_)
                        | Setting::Sides(_)
                        | Setting::Group(_) => None,
                    },
                    _ => None,
                }
            }
            _ => None,
        });
        let (tensor, own) = scaled.unwrap_or((tensor, 1.0));
        Some(((tensor, views.clone()), by * own))
    }

    /// Heads `[n, heads, t, d]`; `columns`: as `[n, heads, d, t]`.
    fn heads(&self, at: &At<'_>, argument: Option<&Argument>, columns: bool) -> Option<Heads> {
        let turned = |turned: &Turned| {
            let (of, rotary) = turned.rotary()?;
            Some(Heads { of, by: 1.0, rotary: Some(rotary), group: 1 })
        };
        match self.given(argument)? {
            Seen::Computed(computed) => match &**computed {
                Computed::Turned(own) if !columns => turned(own),
                Computed::Columns(own) if columns => turned(own),
                Computed::Grouped { of, group, columns: own } if *own == columns => {
                    Some(Heads { group: *group, ..self.heads(at, Some(&Argument::Value(*of)), false)? })
                }
                _ => None,
            },
            _ => {
                let ((base, mut views), by) = self.factor(at, argument)?;
                if columns {
                    views.push(View::Permute(vec![0, 1, 3, 2]));
                    views = simplified(self.shape_of(base), &views);
                }
                Some(Heads { of: (base, views), by, rotary: None, group: 1 })
            }
        }
    }

    /// The scores of queries and keys, which may be given as columns.
    pub(crate) fn scores_of(
        &mut self,
        at: &At<'_>,
        [first, second]: [Option<&Argument>; 2],
        columns: bool,
    ) -> Result<Scores, Refusal> {
        let shape = |argument: Option<&Argument>| argument.and_then(|argument| self.shape(argument.value()?));
        let (Some(mut from), Some(mut to)) = (shape(first), shape(second)) else {
            return Err(at.refuse("it multiplies matrices", PRODUCTS));
        };
        if from.len() < 2 || to.len() < 2 {
            return Err(at.refuse(format!("it multiplies matrices {from:?} and {to:?}"), PRODUCTS));
        }
        for argument in [first, second] {
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
        // Windows of samples are an axis of their own.
        for extents in [&mut from, &mut to] {
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
        Ok(Scores {
            queries: queries.of,
            keys: keys.of,
            extents: [n, heads, t, s],
            shape,
            scale: queries.by * keys.by,
            shared,
            rotary: queries.rotary,
            bounded: None,
            bias: None,
            cosine: None,
            segments: false,
            causal: false,
            window: None,
            mask: None,
            masked: None,
            is_softmax: false,
            dropout: 0.0,
        })
    }

    /// A product of matrices: scores of queries and keys, or their weights with values.
    pub(crate) fn product(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let (first, second) = (at.input(), at.argument(1, &["other", "mat2", "tensor2"]));
        if let Some(scores) = self.scores(first) {
            return self.weighted(at, scores, second);
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
                Scores {
                    queries,
                    keys: (base, simplified(self.shape_of(base), &views)),
                    extents: [n, heads, t, s],
                    shape: made.shape.clone(),
                    scale: 1.0,
                    shared: heads,
                    rotary: None,
                    bounded: None,
                    bias: None,
                    cosine: Some(Cosine::Plain),
                    segments: false,
                    causal: false,
                    window: None,
                    mask: None,
                    masked: None,
                    is_softmax: false,
                    dropout: 0.0,
                }
            }
            [Some(_), Some(_)] => {
                return Err(at.refuse("lengths are not those of the rows that are multiplied", LENGTHS));
            }
            _ => self.scores_of(at, [first, second], true)?,
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

    /// Scores with a mask that is 0 for keys that a query sees.
    pub(crate) fn mask_of_scores(&mut self, at: &mut At<'_>, scores: Scores, mask: &Constant) -> Result<(), Refusal> {
        let scores = self.with_mask(at, scores, mask)?;
        self.becomes(at, scores)
    }

    /// The same as a value.
    pub(crate) fn with_mask(&self, at: &At<'_>, scores: Scores, mask: &Constant) -> Result<Scores, Refusal> {
        if scores.is_softmax {
            return Err(at.refuse("a constant is added to weights, after softmax", SCORES));
        }
        let [_, _, t, s] = scores.extents;
        let Some(masked) = masked(mask) else {
            return Err(at.refuse(
                "it adds a constant to scores that is neither 0 nor the same negative number throughout",
                "masks are 0 for tokens that are seen; `dot_product_attention` has `masked` for what others get",
            ));
        };
        if scores.is_masked() && scores.masked.or(masked).is_some() {
            return Err(at.refuse("scores have two masks", "`dot_product_attention` has one number for `masked`"));
        }
        let matrices = match &mask.shape[..] {
            [before @ .., 1, rows, columns] if [*rows, *columns] == [t, s] => before.iter().product::<usize>(),
            [rows, columns] if [*rows, *columns] == [t, s] => 1,
            _ => {
                let what = format!("it adds a constant {:?} to scores {:?}", mask.shape, scores.shape);
                return Err(at.refuse(what, "masks are matrices of queries and keys"));
            }
        };
        // The same for all samples.
        let values: Vec<f64> = mask.values().collect();
        let size = (t * s).max(1);
        let first = values.get(..size).unwrap_or_default();
        let matrices = if values.chunks(size).all(|matrix| matrix == first) { 1 } else { matrices };
        // By window, query and key, whether it is seen.
        let all = |seen: &dyn Fn(usize, usize, usize) -> bool| {
            let places =
                (0..matrices).flat_map(|n| (0..t).flat_map(move |query| (0..s).map(move |key| [n, query, key])));
            values.iter().zip(places).all(|(value, [n, query, key])| (*value == 0.0) == seen(n, query, key))
        };
        // Windows are the axis before the heads.
        let beside = scores.shape.len() == 5 && scores.shape[1] == matrices && t == s;
        let is_own = |windows: &&Windows| beside && windows.counts() == [matrices, t];
        let parts = self.windows(scores.queries.0).filter(is_own).map(Windows::segments);
        let windows = || {
            let one = first.iter().rev().take(s).filter(|value| **value == 0.0).count();
            (matrices == 1 && t == s && one > 0).then_some(one)
        };
        Ok(match parts {
            _ if all(&|_, _, _| true) => scores,
            Some(parts) if all(&|n, query, key| parts[n * t + query] == parts[n * t + key]) => {
                Scores { segments: true, masked, ..scores }
            }
            _ if matrices == 1 && t == s && all(&|_, query, key| key <= query) => {
                Scores { causal: true, masked, ..scores }
            }
            _ => match windows() {
                Some(window) if all(&|_, query, key| key <= query && query - key < window) => {
                    Scores { causal: true, window: Some(window), masked, ..scores }
                }
                Some(window) if all(&|_, query, key| query.abs_diff(key) < window) => {
                    Scores { window: Some(window), masked, ..scores }
                }
                _ => {
                    return Err(at.refuse(
                        "its mask is neither causal, nor a sliding window, nor that of shifted windows",
                        "`dot_product_attention` has `causal`, `window`, `segments`, and a `mask` for padding tokens",
                    ));
                }
            },
        })
    }

    /// Scores with a number in place of those that a constant marks: a mask, if the number is so small that no weight
    /// is left.
    pub(crate) fn fill_of_scores(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let scores = self.scores(at.input());
        let mask = at.argument(1, &["mask"]).and_then(|mask| self.trace.constant(mask)).cloned();
        let value = at.argument(2, &["value"]).and_then(|value| match value {
            Argument::Other(text) if text == "-inf" => Some(f64::NEG_INFINITY),
            other => other.number(),
        });
        match (scores, mask, value) {
            (Some(scores), Some(mask), Some(value)) if value <= UNSEEN => {
                self.mask_of_scores(at, scores, &mask.filled(value))
            }
            (Some(_), Some(_), Some(value)) => Err(at.refuse(
                format!("scores that are not seen are {value}, which leaves them a weight"),
                "masked scores get -inf, or a number of at most -10000",
            )),
            _ => Err(at.refuse("it replaces numbers that a tensor marks", CHOICE)),
        }
    }

    /// A learned bias plus a constant mask. `None` if the operands are others.
    pub(crate) fn biased_mask(&mut self, at: &mut At<'_>) -> Result<Option<()>, Refusal> {
        let operands = [at.input(), at.argument(1, &["other"])];
        let mask = |argument: Option<&Argument>| self.trace.constant(argument?).cloned();
        let bias = |argument| match (self.given(argument), self.computed(argument)) {
            (Some(Seen::Picked(rows)), _) => Some(Bias::Rows(rows.clone())),
            (_, Some(Computed::Offsets(offsets))) => Some(Bias::Offsets(offsets.clone())),
            _ => None,
        };
        let [first, second] = operands;
        match mask(first).zip(bias(second)).or_else(|| mask(second).zip(bias(first))) {
            Some((mask, bias)) => self.is_computed(at, Computed::Biased(bias, mask)).map(Some),
            None => Ok(None),
        }
    }

    /// Scores with a mask of an input, constants, or both.
    pub(crate) fn with_any_mask(&mut self, at: &At<'_>, scores: Scores, mask: &Argument) -> Result<Scores, Refusal> {
        let unknown = at.refuse(
            "its mask depends on inputs or parameters",
            "`dot_product_attention` has `causal`, `window`, and a `mask` for padding tokens",
        );
        match (self.trace.constant(mask).map(Constant::added), self.computed(Some(mask))) {
            (Some(mask), _) => self.with_mask(at, scores, &mask),
            (None, Some(Computed::Biased(bias, mask))) if scores.bias.is_none() => {
                let (bias, mask) = (bias.clone(), mask.clone());
                self.with_mask(at, Scores { bias: Some(bias), ..scores }, &mask)
            }
            (None, Some(Computed::Seen(of) | Computed::Hides(of))) if scores.mask.is_none() => {
                let mask = Some(*of);
                self.unwritten.get_or_insert(unknown);
                Ok(Scores { mask, ..scores })
            }
            _ => Err(unknown),
        }
    }

    /// Whether an input is not 0. `None` if something else is compared.
    pub(crate) fn compared(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let (input, other) = (at.input(), at.argument(1, &["other"]));
        let of = match self.given(input) {
            Some(Seen::Of(tensor, views)) if views.is_empty() => Some(*tensor),
            _ => None,
        };
        let of = of.filter(|tensor| self.trace.inputs.values().any(|made| made.value == *tensor));
        match (of, other.and_then(|other| self.one_number(other))) {
            (Some(tensor), Some(0.0)) => self.is_computed(at, Computed::Seen(tensor)),
            _ => Err(at.refuse("it compares numbers", CHOICE)),
        }
    }

    /// What is seen by two masks, of which one is a constant that hides nothing.
    pub(crate) fn both_seen(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let operands = [at.input(), at.argument(1, &["other"])];
        let all = |argument: Option<&Argument>| {
            argument
                .and_then(|one| self.trace.constant(one))
                .is_some_and(|mask| mask.values().all(|value| value == 1.0))
        };
        let seen = |argument| match self.computed(argument) {
            Some(Computed::Seen(of)) => Some(*of),
            _ => None,
        };
        match operands.map(seen) {
            [Some(of), None] if all(operands[1]) => self.is_computed(at, Computed::Seen(of)),
            [None, Some(of)] if all(operands[0]) => self.is_computed(at, Computed::Seen(of)),
            _ => Err(at.refuse("it combines masks", "`dot_product_attention` has `causal` beside a `mask`")),
        }
    }

    /// Scores where a constant is not 0, and a small number elsewhere.
    pub(crate) fn chosen(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        if let Some(Computed::Seen(of)) = self.computed(at.argument(0, &["condition"])) {
            let of = *of;
            let mut value = |place, names: &[&str]| match at.argument(place, names)? {
                Argument::Other(text) if text == "-inf" => Some(f64::NEG_INFINITY),
                other => self.one_number(other),
            };
            return match (value(1, &["input", "self"]), value(2, &["other"])) {
                (Some(0.0), Some(hidden)) if hidden <= UNSEEN => self.is_computed(at, Computed::Hides(of)),
                _ => Err(at.refuse("it chooses between two tensors by a third", CHOICE)),
            };
        }
        let (condition, first) = (at.argument(0, &["condition"]), at.argument(1, &["input", "self"]));
        let other = at.argument(2, &["other"]);
        let value = other.and_then(|other| self.one_number(other));
        match (self.scores(first), condition.and_then(|condition| self.trace.constant(condition)).cloned(), value) {
            (Some(scores), Some(seen), Some(value)) if value <= UNSEEN => {
                self.mask_of_scores(at, scores, &seen.as_bool().added())
            }
            (Some(_), Some(_), Some(value)) => Err(at.refuse(
                format!("scores that are not seen are {value}, which leaves them a weight"),
                "masked scores get -inf, or a number of at most -10000",
            )),
            _ => Err(at.refuse("it chooses between two tensors by a third", CHOICE)),
        }
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
        let folded = |(base, views): &(Tensor, Vec<View>)| {
            let mut shape = crate::view::shape(self.shape_of(*base), views);
            if let [n, windows, _, _, _] = shape[..] {
                shape.splice(..2, [n * windows]);
            }
            shape
        };
        let (shape, keys) = (folded(&values), folded(&scores.keys));
        let Some(d) = shape.last().copied().filter(|d| shape[..] == [n, scores.shared, s, *d] && shape == keys) else {
            return Err(at.refuse(
                format!("the values are {shape:?}, and the keys {keys:?}"),
                "keys and values have one width, one length and as many heads",
            ));
        };
        if !scores.is_softmax || !(4..=5).contains(&scores.shape.len()) {
            return Err(at.refuse("scores are multiplied by values without softmax", SCORES));
        }
        let Scores { queries, keys, bias, segments, causal, window, masked, dropout, cosine, .. } = scores;
        let (rotary, shared, softcap, mask) = (scores.rotary, scores.shared, scores.bounded, scores.mask);
        // softcap * tanh(score / softcap)
        let scale = scores.scale * softcap.unwrap_or(1.0);
        let own_scale = (cosine.is_none() && !is_usual(scale, d)).then_some(scale);
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
            Some(Bias::Rows(bias)) => Some(self.relative_bias(at, queries.0, &bias, extents)?),
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
            scale: own_scale,
            softcap,
            mask: None,
            segments: None,
            bias: None,
            cosine: None,
            rotary,
            masked,
            dropout,
        };
        let beside: Vec<Tensor> = mask.into_iter().chain(segments).chain(bias).chain(cosine).collect();
        self.attend(at, layer, [queries, keys, values], [n, t, s, d], &beside)
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
        let is_index = |size: &[usize; 2]| {
            t == s && t <= MOST_TOKENS && size[0] * size[1] == t && table == [rows(*size), heads] && {
                let wanted = RelativePositionBias::rows(*size);
                bias.rows.values().eq(wanted.into_iter().map(f64::from))
            }
        };
        let size = own.into_iter().chain(squares).find(is_index);
        let by_head = is_by_head(&bias.rows, &bias.views, &bias.shape, [heads, t, s]);
        let Some(size) = size.filter(|_| by_head) else {
            return Err(at.refuse(
                format!("scores have a bias of rows of `{}` that are not those of relative positions", bias.table),
                "`relative_position_bias` has a row for each distance of two pixels of a window",
            ));
        };
        let init = zoo_graph::Init::Constant(0.0);
        let layer = RelativePositionBias { size: Pair(size), heads: Size(heads), tap: String::new(), init };
        let what = What::Layer(Word::of(&Layer::RelativePositionBias(layer)));
        Ok(self.beside(at, what, bias.table.clone(), vec![heads, t, s]))
    }
}
