//! One minus the Dice coefficient.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, ops::DiceLoss};

use super::{LossTerm, Terms, one, small};

/// 1 - 2*sum(p*t*mask) / (sum(p*mask) + sum(t*mask) + eps), each sum over the whole batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dice {
    /// Name of the component.
    #[serde(default = "dice_loss")]
    pub name: String,
    /// Factor in the total.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub weight: f64,
    /// Output of the model: probabilities `[1, H, W]`.
    pub prediction: String,
    /// Input of the step: `[1, H, W]`.
    pub target: String,
    /// Input of the step: weight of each pixel, `[H, W]`.
    pub mask: String,
    /// Added to the denominator.
    #[serde(default = "small")]
    #[schemars(range(min = 0))]
    pub eps: f64,
}

fn dice_loss() -> String {
    "dice_loss".into()
}

impl LossTerm for Dice {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let prediction = at.prediction(&self.prediction)?;
        let [n, c, h, w] = at.axes(prediction);
        let target = at.input(&self.target, [n, c, h, w])?;
        let mask = at.input(&self.mask, [n, h, w])?;
        at.term((&self.name, self.weight), DiceLoss { eps: self.eps }, &[prediction, target, mask])?;
        Ok(())
    }

    fn prediction(&self) -> Option<&str> {
        Some(&self.prediction)
    }
}
