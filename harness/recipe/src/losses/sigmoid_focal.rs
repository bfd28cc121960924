//! Focal loss of independent classes.

use zoo_graph::{
    GraphError, ValueId,
    formula::Formula,
    ops::{Map, Reshape},
};

use super::{Diagnostic, Judged, LossTerm, Terms};

term! {
    /// Binary cross entropy of each class, weighted by the probability of the wrong answer (arXiv 1708.02002;
    /// torchvision's `sigmoid_focal_loss`): -a * (1 - p)^gamma * log(p), where p is the predicted probability of the
    /// truth, and a is `alpha` for the class of an anchor and 1 - `alpha` for all others. It is summed over all anchors
    /// that are not ignored, divided by the number of anchors of the sample with a class (at least 1), and averaged
    /// over the samples.
    pub struct SigmoidFocal called "classification" {
        /// Output of the model: logits `[T, K]` of K classes for each of T anchors.
        pub prediction: String,
        /// Input of the step: the class of each anchor, `[T]`; -1 is background, -2 is ignored.
        pub label: String,
        /// Weight of the class of an anchor; other classes have 1 - `alpha`.
        #[schemars(range(min = 0, max = 1))]
        pub alpha: f64 = 0.25,
        /// Exponent of 1 - p.
        #[schemars(range(min = 0))]
        pub gamma: f64 = 2.0,
    }
}

impl LossTerm for SigmoidFocal {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let logits = at.prediction(&self.prediction)?;
        let label = anchor_labels(at, &self.name, logits, &self.label)?;
        let positives = positives(at, &self.name, label)?;
        let (alpha, gamma) = (self.alpha, self.gamma);
        let focal = Formula::define(0, |[x, label, positives]| {
            let truth = label.equal(x.coordinate(2));
            // With x negated for the class of the anchor, 1 - p is sigmoid(x), and -log(p) is softplus(x).
            let x = truth.select(-x, x);
            let lacking = if gamma == 2.0 { x.sigmoid().square() } else { x.sigmoid().pow(gamma) };
            let loss = truth.select(alpha, 1.0 - alpha) * lacking * x.softplus();
            [label.at_least(-1.0).select(loss, 0.0) / positives]
        });
        at.sum_term((&self.name, self.weight), focal, &[logits, label, positives], at.batch())
    }

    fn emit(&self, at: &mut Judged<'_>) -> Result<(), Diagnostic> {
        let numbers = [("alpha", self.alpha), ("gamma", self.gamma)];
        at.function(PER_ANCHOR);
        at.call((&self.name, self.weight), TEXT, &[&self.prediction], &[&self.label], &numbers)
    }

    fn prediction(&self) -> Option<&str> {
        Some(&self.prediction)
    }
}

/// The mean over the samples of a sum over anchors.
pub(super) const PER_ANCHOR: &str = r#"
def per_anchor(losses: Tensor, label: Tensor) -> Tensor:
    """The sum of losses, divided by the number of anchors of the sample with a class, mean over the samples."""
    return (losses.flatten(1).sum(1) / (label >= 0).sum(1).clamp(min=1)).mean()
"#;

const TEXT: &str = r#"
def sigmoid_focal(logits: Tensor, label: Tensor, alpha: float, gamma: float) -> Tensor:
    """Focal loss of the classes of anchors; -1 is background, -2 is ignored."""
    truth = label[..., None] == torch.arange(logits.shape[-1], device=logits.device)
    wrong = torch.where(truth, -logits, logits)
    share = torch.where(truth, logits.new_tensor(alpha), 1 - alpha)
    losses = share * wrong.sigmoid() ** gamma * -functional.logsigmoid(-wrong)
    return per_anchor(torch.where(label[..., None] >= -1, losses, 0), label)
"#;

/// The classes of anchors in the shape of predictions, `[N, T, 1]`.
pub(super) fn anchor_labels(
    at: &mut Terms<'_>,
    term: &str,
    prediction: ValueId,
    label: &str,
) -> Result<ValueId, GraphError> {
    let [n, anchors, _] = at.shape(prediction)[..] else {
        let message = format!(
            "needs a prediction per anchor, [T, K]; this prediction is {} including the batch",
            at.shape(prediction)
        );
        return Err(at.refuse(message));
    };
    let label = at.input(label, [n, anchors])?;
    at.add(format!("loss/{term}/label"), Reshape { shape: [n, anchors, 1].into() }, &[label])
}

/// How many anchors of each sample have a class, at least 1, `[N, 1, 1]`.
pub(super) fn positives(at: &mut Terms<'_>, term: &str, label: ValueId) -> Result<ValueId, GraphError> {
    let count = Formula::define(0, |[label]| [label.at_least(0.0)]).summed(vec![1]);
    let count = Map::with_space(count, at.shape(label).clone());
    let count = at.add(format!("loss/{term}/count"), count, &[label])?;
    let positives = Map::with_space(Formula::define(0, |[count]| [count.max(1.0)]), at.shape(count).clone());
    at.add(format!("loss/{term}/positives"), positives, &[count])
}
