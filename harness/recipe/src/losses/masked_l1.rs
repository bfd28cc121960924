//! Mean absolute difference where a mask is set.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, ops};

use super::{LossTerm, Terms, one};

/// sum(|prediction - target| * mask) / sum(mask), 0 for an empty mask.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MaskedL1 {
    /// Name of the component.
    #[serde(default = "l1_loss")]
    pub name: String,
    /// Factor in the total.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub weight: f64,
    /// Output of the model: `[1, H, W]`.
    pub prediction: String,
    /// Input of the step: `[H, W]`.
    pub target: String,
    /// Input of the step: weight of each pixel, `[H, W]`.
    pub mask: String,
}

fn l1_loss() -> String {
    "l1_loss".into()
}

impl LossTerm for MaskedL1 {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let prediction = at.prediction(&self.prediction)?;
        let [n, _, h, w] = at.axes(prediction);
        let target = at.input(&self.target, [n, h, w])?;
        let mask = at.input(&self.mask, [n, h, w])?;
        at.term((&self.name, self.weight), ops::MaskedL1, &[prediction, target, mask])?;
        Ok(())
    }

    fn prediction(&self) -> Option<&str> {
        Some(&self.prediction)
    }
}
