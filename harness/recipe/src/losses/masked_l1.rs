//! Mean absolute difference where a mask is set.

use zoo_graph::{GraphError, formula::Formula, ops::DeviceName};

use super::{Diagnostic, Judged, LossTerm, Terms};

term! {
    /// sum(|prediction - target| * mask) / sum(mask), 0 for an empty mask.
    pub struct MaskedL1 called "l1_loss" {
        /// Output of the model: `[1, H, W]`.
        pub prediction: String,
        /// Input of the step: `[H, W]`.
        pub target: String,
        /// Input of the step: weight of each pixel, `[H, W]`.
        pub mask: String,
    }
}

impl MaskedL1 {
    /// The loss of prediction, target and mask with the same three axes.
    pub fn formula() -> Formula {
        Formula::define(3, |[p, target, mask]| {
            let weight = mask.row_sum();
            [((p - target).abs() * mask).row_sum() / weight.equal(0.0).select(1.0, weight)]
        })
    }
}

impl LossTerm for MaskedL1 {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let prediction = at.prediction(&self.prediction)?;
        let [n, h, w] = at.one_channel(prediction)?;
        let target = at.input(&self.target, [n, h, w])?;
        let mask = at.input(&self.mask, [n, h, w])?;
        let prediction = at.reshaped(format!("loss/{}/prediction", self.name), prediction, [n, h, w])?;
        let device = DeviceName::new("MaskedL1Loss", "MaskedL1LossGrad");
        at.formula_term((&self.name, self.weight), Self::formula(), device, &[prediction, target, mask])
    }

    fn emit(&self, at: &mut Judged<'_>) -> Result<(), Diagnostic> {
        at.call((&self.name, self.weight), TEXT, &[&self.prediction], &[&self.target, &self.mask], &[])
    }

    fn prediction(&self) -> Option<&str> {
        Some(&self.prediction)
    }
}

const TEXT: &str = r#"
def masked_l1(p: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Mean absolute difference where the mask is set."""
    weight = mask.sum()
    return ((p[:, 0] - target).abs() * mask).sum() / torch.where(weight == 0, 1, weight)
"#;
