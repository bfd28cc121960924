//! Masks of attention scores: constants by their form, and inputs that are 0 for padding.

use crate::Refusal;
use crate::alibi::Falling;
use crate::arguments::At;
use crate::constant::Constant;
use crate::cosine::Computed;
use crate::functions::CHOICE;
use crate::operation::Windows;
use crate::reader::{Reader, SCORES, Seen};
use crate::scores::{Bias, Scores};
use crate::trace::{Argument, Call, ModuleCall, Trace};

/// What is added at most to scores that are not seen: in f64, their weight is exactly 0 unless they are larger than
/// those that are seen by more than 9254, and then no mask of this network hides anything. What is larger, as -100, is
/// a part of the score.
pub(crate) const UNSEEN: f64 = -1e4;

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

/// A constant by head, query and key, if it is one of scores that is the same for all samples.
pub(crate) fn with_scores(constant: &Constant, scores: &Scores) -> Option<Vec<f64>> {
    let [n, heads, t, s] = scores.extents;
    let shape = match constant.shape[..] {
        [both, t, s] if both == n * heads => vec![n, heads, t, s],
        ref own => [&vec![1; 4usize.checked_sub(own.len())?][..], own].concat(),
    };
    if !shape.iter().zip(scores.extents).all(|(own, extent)| *own == 1 || *own == extent) {
        return None;
    }
    let values: Vec<f64> = constant.values().collect();
    let strides: Vec<usize> =
        (0..4).map(|axis| if shape[axis] == 1 { 0 } else { shape[axis + 1..].iter().product() }).collect();
    let sample = shape[1..].iter().product::<usize>();
    let first = values.get(..sample)?;
    if sample == 0
        || heads * t * s == 0
        || !values.chunks(sample).all(|other| other == first)
        || heads * t * s > 1 << 22
    {
        return None;
    }
    let place = |head, query, key| head * strides[1] + query * strides[2] + key * strides[3];
    let keys = |head, query| (0..s).map(move |key| first[place(head, query, key)]);
    Some((0..heads).flat_map(|head| (0..t).flat_map(move |query| keys(head, query))).collect())
}

/// What the first mask of a network leaves of scores that are not seen.
pub(crate) fn first_masked(trace: &Trace, call: &ModuleCall) -> Option<f64> {
    call.body.iter().find_map(|inner| match inner {
        Call::Module(inner) => first_masked(trace, inner),
        Call::Function(inner) if inner.name().contains("add") => masked(trace.constant(inner.args.get(1)?)?).flatten(),
        Call::Function(_) => None,
    })
}

/// What is compared with numbers of tokens.
pub(crate) const COUNTED: &str = "numbers are compared in formulas alone: `map: \"select(x > 0, x, 0)\"`, written by hand; positions \
                                  counted from tokens that are no padding may be an input (`--indices position_ids=N`)";

impl Reader<'_> {
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
        if let Some(Falling { most, before, mask }) = Falling::of(mask, &scores) {
            if scores.alibi.is_some() || scores.bias.is_some() || scores.kept.is_some() || scores.masked.is_some() {
                return Err(at.refuse("scores have two biases, or fall after a mask", SCORES));
            }
            return self.with_mask(at, Scores { alibi: Some((most, before)), ..scores }, &mask);
        }
        if let Some(kept) = scores.kept.clone() {
            let hides = |values: Vec<f64>| values.into_iter().map(|value| value <= UNSEEN).collect::<Vec<_>>();
            let drops = |values: Vec<f64>| values.into_iter().map(|value| value == 0.0).collect::<Vec<_>>();
            let hidden = with_scores(mask, &scores).map(hides);
            if hidden.is_none() || hidden != with_scores(&kept, &scores).map(drops) {
                return Err(at.refuse("it sets scores to 0 that it does not hide", SCORES));
            }
            return self.with_mask(at, Scores { kept: None, ..scores }, mask);
        }
        let [_, _, t, s] = scores.extents;
        let Some(masked) = masked(mask) else {
            return Err(at.refuse(
                "it adds a constant to scores that is neither 0 nor the same negative number throughout",
                "masks are 0 for tokens that are seen; `dot_product_attention` has `masked` for what others get",
            ));
        };
        if scores.is_masked() && scores.masked.or(masked).is_some() {
            // The same mask twice adds twice as much.
            let again = Scores { segments: false, causal: false, window: None, masked: None, ..scores.clone() };
            let again = self.with_mask(at, again, mask)?;
            let seen = |of: &Scores| (of.segments, of.causal, of.window);
            return match scores.masked.zip(masked) {
                Some((one, other)) if seen(&again) == seen(&scores) => {
                    Ok(Scores { masked: Some(one + other), ..scores })
                }
                _ => Err(at.refuse("scores have two masks", "`dot_product_attention` has one number for `masked`")),
            };
        }
        let matrices = match &mask.shape[..] {
            [before @ .., 1, rows, columns] if [*rows, *columns] == [t, s] => before.iter().product::<usize>(),
            [rows, columns] if [*rows, *columns] == [t, s] => 1,
            _ => {
                // The same for several queries, or for heads in another order of axes.
                let matrices =
                    with_scores(mask, &scores).filter(|values| values.chunks(t * s).all(|one| *one == values[..t * s]));
                let Some(values) = matrices.filter(|_| mask.shape[..] != [t, s]) else {
                    let what = format!("it adds a constant {:?} to scores {:?}", mask.shape, scores.shape);
                    return Err(at.refuse(what, "masks are matrices of queries and keys, the same for all heads"));
                };
                return self.with_mask(at, scores, &Constant::new(vec![t, s], values.into_iter().take(t * s)));
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

    /// Scores times a constant of 0 and 1, if that is what the operands are: those that are kept, of which the others
    /// are hidden afterwards.
    pub(crate) fn kept_scores(&mut self, at: &mut At<'_>) -> Option<Scores> {
        let operands = [at.input(), at.argument(1, &["other"])];
        let scores = operands.into_iter().find_map(|operand| self.scores(operand))?;
        let kept = operands.into_iter().flatten().find_map(|operand| self.trace.constant(operand))?;
        let is_kept = kept.len() > 1 && kept.values().all(|value| value == 0.0 || value == 1.0);
        let plain = !scores.is_softmax && !scores.is_masked() && scores.bias.is_none() && scores.alibi.is_none();
        let fits = is_kept && plain && scores.kept.is_none() && with_scores(kept, &scores).is_some();
        fits.then(|| Scores { kept: Some(kept.clone()), ..scores })
    }

    /// The larger of scores and a number that is smaller than all of them that are seen.
    pub(crate) fn larger(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let (first, second) = (at.input(), at.argument(1, &["other"]));
        let least = second.and_then(|second| self.one_number(second));
        match (self.scores(first), least) {
            (Some(scores), Some(least)) if least <= f64::from(f32::MIN) => self.becomes(at, scores),
            _ => Err(at.refuse(
                "it takes the larger of two numbers, or the largest of several",
                "`map` has max(x, number) and `row_max`, and `max_pool` takes the largest of a window",
            )),
        }
    }

    /// The learned bias that an argument is.
    fn learned_bias(&self, argument: Option<&Argument>) -> Option<Bias> {
        match (self.given(argument), self.computed(argument)) {
            (Some(Seen::Picked(rows)), _) => Some(Bias::Rows(rows.clone())),
            (_, Some(Computed::Offsets(offsets))) => Some(Bias::Offsets(offsets.clone())),
            _ => None,
        }
    }

    /// A learned bias plus a constant mask. `None` if the operands are others.
    pub(crate) fn biased_mask(&mut self, at: &mut At<'_>) -> Result<Option<()>, Refusal> {
        let operands = [at.input(), at.argument(1, &["other"])];
        let mask = |argument: Option<&Argument>| self.trace.constant(argument?).cloned();
        let bias = |argument| self.learned_bias(argument);
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
            (None, None) if let (Some(Seen::Picked(rows)), None) = (self.given(Some(mask)), &scores.bias) => {
                let bias = Some(Bias::Rows(rows.clone()));
                Ok(Scores { bias, ..scores })
            }
            (None, Some(Computed::Biased(bias, mask))) if scores.bias.is_none() => {
                let (bias, mask) = (bias.clone(), mask.clone());
                self.with_mask(at, Scores { bias: Some(bias), ..scores }, &mask)
            }
            (None, Some(Computed::Seen(of) | Computed::Hides(of))) if scores.mask.is_none() => {
                let mask = Some(*of);
                self.unwritten.get_or_insert(unknown);
                Ok(Scores { mask, ..scores })
            }
            _ => match self.learned_bias(Some(mask)).filter(|_| scores.bias.is_none()) {
                Some(bias) => Ok(Scores { bias: Some(bias), ..scores }),
                None => Err(unknown),
            },
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
            _ => Err(at.refuse("it compares numbers", COUNTED)),
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
        if let (Some(Seen::Picked(rows)), Some(seen), Some(value)) =
            (self.given(first), condition.and_then(|condition| self.trace.constant(condition)), value)
            && value <= UNSEEN
        {
            let (rows, mask) = (rows.clone(), seen.clone().as_bool().added());
            return self.is_computed(at, Computed::Biased(Bias::Rows(rows), mask));
        }
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
}
