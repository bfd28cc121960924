//! Weighted L1 distance of box offsets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, ops};

use super::{LossTerm, Terms, one};

/// The sum over the four offsets of |prediction - target|, times the weights, summed and divided by the batch size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightedL1 {
    /// Name of the component.
    #[serde(default = "loc_loss")]
    pub name: String,
    /// Factor in the total.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub weight: f64,
    /// Output of the model: `[4A, H, W]`, which is `[4, A, H, W]`.
    pub prediction: String,
    /// Input of the step: `[4, A, H, W]`.
    pub target: String,
    /// Input of the step: weight of each anchor, `[A, H, W]`.
    pub weights: String,
}

fn loc_loss() -> String {
    "loc_loss".into()
}

impl LossTerm for WeightedL1 {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let prediction = at.prediction(&self.prediction)?;
        let [n, c, h, w] = at.axes(prediction);
        let target = at.input(&self.target, [n, 4, c / 4, h, w])?;
        let weights = at.input(&self.weights, [n, c / 4, h, w])?;
        at.term((&self.name, self.weight), ops::WeightedL1, &[prediction, target, weights])?;
        Ok(())
    }

    fn prediction(&self) -> Option<&str> {
        Some(&self.prediction)
    }
}
