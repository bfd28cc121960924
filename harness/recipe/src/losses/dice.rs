//! One minus the Dice coefficient.

use zoo_graph::{GraphError, formula::Formula, ops::DeviceName};

use super::{Diagnostic, Judged, LossTerm, Terms};

term! {
    /// 1 - 2*sum(p*t*mask) / (sum(p*mask) + sum(t*mask) + eps), each sum over the whole batch.
    pub struct Dice called "dice_loss" {
        /// Output of the model: probabilities `[1, H, W]`.
        pub prediction: String,
        /// Input of the step: `[1, H, W]`.
        pub target: String,
        /// Input of the step: weight of each pixel, `[H, W]`.
        pub mask: String,
        /// Added to the denominator.
        #[schemars(range(min = 0))]
        pub eps: f64 = 1e-6,
    }
}

impl Dice {
    /// The loss of prediction, target and mask with the same four axes.
    pub fn formula(eps: f64) -> Formula {
        Formula::define(4, |[p, target, mask]| {
            let both = (p * target * mask).row_sum();
            let either = (p * mask).row_sum() + (target * mask).row_sum() + eps;
            [1.0 - 2.0 * both / either]
        })
    }
}

impl LossTerm for Dice {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let prediction = at.prediction(&self.prediction)?;
        let [n, h, w] = at.one_channel(prediction)?;
        let target = at.input(&self.target, [n, 1, h, w])?;
        let mask = at.input(&self.mask, [n, h, w])?;
        let mask = at.reshaped(format!("loss/{}/mask", self.name), mask, [n, 1, h, w])?;
        let device = DeviceName::new("DiceLoss", "DiceLossGrad");
        at.formula_term((&self.name, self.weight), Self::formula(self.eps), device, &[prediction, target, mask])
    }

    fn emit(&self, at: &mut Judged<'_>) -> Result<(), Diagnostic> {
        let inputs = [self.target.as_str(), &self.mask];
        at.call((&self.name, self.weight), TEXT, &[&self.prediction], &inputs, &[("eps", self.eps)])
    }

    fn prediction(&self) -> Option<&str> {
        Some(&self.prediction)
    }
}

const TEXT: &str = r#"
def dice(p: Tensor, target: Tensor, mask: Tensor, eps: float) -> Tensor:
    """One minus the Dice coefficient."""
    mask = mask[:, None]
    return 1 - 2 * (p * target * mask).sum() / ((p * mask).sum() + (target * mask).sum() + eps)
"#;
