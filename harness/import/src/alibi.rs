//! Biases of scores that fall with the distance of a key (ALiBi): constants by head, query and key.

use zoo_recipe::layers::alibi_slopes;

use crate::Refusal;
use crate::arguments::{At, NAMED};
use crate::constant::Constant;
use crate::masks::{UNSEEN, with_scores};
use crate::reader::{Reader, SCORES};
use crate::scores::Scores;
use crate::turned::rounded;

/// Scores that fall with the distance of a key.
pub(crate) struct Falling {
    /// Minus the exponent of the smallest slope.
    pub most: f64,
    /// Whether they only do so for keys before the query.
    pub before: bool,
    /// What else the constant does: it hides keys, `[queries, keys]`.
    pub mask: Constant,
}

impl Falling {
    /// What a constant does with scores, if it is this.
    pub fn of(bias: &Constant, scores: &Scores) -> Option<Self> {
        let [_, heads, t, s] = scores.extents;
        if bias.values().all(|value| value == 0.0 || value <= UNSEEN) {
            return None;
        }
        let values = with_scores(bias, scores).filter(|_| t == s && t > 1)?;
        let value = |head: usize, query: usize, key: usize| values[(head * t + query) * t + key];
        let is_seen = |query: usize, key: usize| value(0, query, key) > UNSEEN;
        let steps: Vec<f64> = (0..heads).map(|head| value(head, t - 1, t - 1) - value(head, t - 1, t - 2)).collect();
        // Softmax is the same for all that is added to a whole row.
        let falls = |head: usize, query: usize, key: usize| {
            let found = value(head, query, query) - value(head, query, key);
            let wanted = steps[head] * query.abs_diff(key) as f64;
            is_seen(query, query) && (found - wanted).abs() <= 1e-6 * steps[head] * t as f64
        };
        let pairs = || (0..t).flat_map(|query| (0..t).map(move |key| (query, key)));
        let all = |is_one: fn(usize, usize) -> bool| {
            let seen = || pairs().filter(|(query, key)| is_one(*query, *key) && is_seen(*query, *key));
            (0..heads).all(|head| seen().all(|(query, key)| falls(head, query, key)))
        };
        let hides_alike = |head| pairs().all(|(query, key)| is_seen(query, key) == (value(head, query, key) > UNSEEN));
        if !(0..heads).all(hides_alike) || !all(|query, key| key <= query) {
            return None;
        }
        // The last of as many heads as make a power of two.
        let most = rounded(-steps[(1 << heads.ilog2()) - 1].log2());
        let near = |(found, wanted): (&f64, f64)| (found - wanted).abs() <= 1e-6 * wanted;
        let is_usual = most > 0.0 && most.is_finite() && steps.iter().zip(alibi_slopes(heads, most)).all(near);
        let mask = pairs().map(|(query, key)| if is_seen(query, key) { 0.0 } else { f64::NEG_INFINITY });
        let mask = Constant::new(vec![t, t], mask);
        is_usual.then(|| Self { most, before: !all(|query, key| key > query), mask })
    }
}

impl Reader<'_> {
    /// `beta` times a constant plus `alpha` times a product of matrices.
    pub(crate) fn biased_product(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let (beta, alpha) = (at.float(NAMED, "beta", 1.0)?, at.float(NAMED, "alpha", 1.0)?);
        let (bias, first, second) = (at.input(), at.argument(1, &["batch1"]), at.argument(2, &["batch2"]));
        let scores = self.scores_of(at, [first, second], true)?;
        let scores = Scores { scale: scores.scale * alpha, shape: at.made()?.shape.clone(), ..scores };
        let scores = match (beta, bias.and_then(|bias| self.trace.constant(bias))) {
            (0.0, _) => scores,
            (_, Some(bias)) => self.with_mask(at, scores, &bias.times(beta))?,
            (_, None) => return Err(at.refuse("it adds a tensor to scores that is no constant", SCORES)),
        };
        self.becomes(at, scores)
    }
}
