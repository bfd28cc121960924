//! Smooth L1 distance of box offsets.

use zoo_graph::{GraphError, formula::Formula};

use super::{
    Diagnostic, Judged, LossTerm, Terms,
    sigmoid_focal::{PER_ANCHOR, anchor_labels, positives},
};

term! {
    /// With the difference d of each value of the anchors with a class: |d| - beta/2, or d^2/(2*beta) where |d| is
    /// below `beta` (arXiv 1504.08083; PyTorch's `smooth_l1_loss`); with `beta: 0` it is |d|. It is summed, divided by
    /// the number of such anchors of the sample (at least 1), and averaged over the samples.
    pub struct SmoothL1 called "bbox_regression" {
        /// Output of the model: `[T, B]`, B numbers for each of T anchors.
        pub prediction: String,
        /// Input of the step: `[T, B]`.
        pub target: String,
        /// Input of the step: the class of each anchor, `[T]`; anchors with negative values are ignored.
        pub label: String,
        /// Distance at which the parabola turns into a line.
        #[schemars(range(min = 0))]
        pub beta: f64 = 0.0,
    }
}

impl LossTerm for SmoothL1 {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let prediction = at.prediction(&self.prediction)?;
        let label = anchor_labels(at, &self.name, prediction, &self.label)?;
        let target = at.input(&self.target, at.shape(prediction).clone())?;
        let positives = positives(at, &self.name, label)?;
        let beta = self.beta;
        let distance = Formula::define(0, |[x, target, label, positives]| {
            let d = (x - target).abs();
            let smooth =
                if beta > 0.0 { d.at_least(beta).select(d - beta / 2.0, d.square() * (0.5 / beta)) } else { d };
            [label.at_least(0.0).select(smooth, 0.0) / positives]
        });
        at.sum_term((&self.name, self.weight), distance, &[prediction, target, label, positives], at.batch())
    }

    fn emit(&self, at: &mut Judged<'_>) -> Result<(), Diagnostic> {
        at.function(PER_ANCHOR);
        let inputs = [self.target.as_str(), &self.label];
        at.call((&self.name, self.weight), TEXT, &[&self.prediction], &inputs, &[("beta", self.beta)])
    }

    fn prediction(&self) -> Option<&str> {
        Some(&self.prediction)
    }
}

const TEXT: &str = r#"
def smooth_l1(p: Tensor, target: Tensor, label: Tensor, beta: float) -> Tensor:
    """Smooth L1 distance of the offsets of anchors with a class."""
    losses = functional.smooth_l1_loss(p, target, reduction="none", beta=beta)
    return per_anchor(torch.where(label[..., None] >= 0, losses, 0), label)
"#;
