//! Cross entropy over pairs, averaged separately over positives and negatives.

use zoo_graph::{GraphError, formula::Formula, ops::DeviceName};

use super::{Diagnostic, Judged, LossTerm, Terms};

term! {
    /// Half the mean negative log-likelihood over the positives, plus half of that over the negatives; 0 for an empty
    /// set.
    pub struct SelectCrossEntropy called "cls_loss" {
        /// Output of the model: log-probabilities `[A, H, W, 2]`.
        pub prediction: String,
        /// Input of the step: 1 positive, 0 negative, -1 ignored, `[A, H, W]`.
        pub label: String,
    }
}

impl SelectCrossEntropy {
    /// The loss of log-probabilities `[n, A, H, W, 2]` and labels `[n, A, H, W, 1]`.
    pub fn formula() -> Formula {
        Formula::define(5, |[p, label]| {
            // 1 for the second of the two probabilities, 0 for the first.
            let side = p.coordinate(4);
            let half = |class: f64| {
                let chosen = label.equal(class).select(side.equal(class), 0.0);
                -0.5 * chosen.select(p, 0.0).row_sum() / chosen.row_sum().max(1.0)
            };
            [half(1.0) + half(0.0)]
        })
    }
}

impl LossTerm for SelectCrossEntropy {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let prediction = at.prediction(&self.prediction)?;
        let [n, a, h, w, 2] = at.shape(prediction)[..] else {
            let message = format!("needs log-probabilities [A, H, W, 2]; this prediction is {}", at.shape(prediction));
            return Err(at.refuse(message));
        };
        let label = at.input(&self.label, [n, a, h, w])?;
        let label = at.reshaped(format!("loss/{}/label", self.name), label, [n, a, h, w, 1])?;
        let device = DeviceName::new("SelectCrossEntropy", "SelectCrossEntropyGrad");
        at.formula_term((&self.name, self.weight), Self::formula(), device, &[prediction, label])
    }

    fn emit(&self, at: &mut Judged<'_>) -> Result<(), Diagnostic> {
        at.call((&self.name, self.weight), TEXT, &[&self.prediction], &[&self.label], &[])
    }

    fn prediction(&self) -> Option<&str> {
        Some(&self.prediction)
    }
}

const TEXT: &str = r#"
def select_cross_entropy(p: Tensor, label: Tensor) -> Tensor:
    """Half the mean over the positives, and half of that over the negatives, of log-probabilities."""
    halves = [-0.5 * (p[..., side] * (label == side)).sum() / (label == side).sum().clamp(min=1) for side in (1, 0)]
    return halves[0] + halves[1]
"#;
