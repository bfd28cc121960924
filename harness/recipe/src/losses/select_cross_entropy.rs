//! Cross entropy over pairs, averaged separately over positives and negatives.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, ops};

use super::{LossTerm, Terms, one};

/// Half the mean negative log-likelihood over the positives, plus half of that over the negatives; 0 for an empty set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SelectCrossEntropy {
    /// Name of the component.
    #[serde(default = "cls_loss")]
    pub name: String,
    /// Factor in the total.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub weight: f64,
    /// Output of the model: log-probabilities `[A, H, W, 2]`.
    pub prediction: String,
    /// Input of the step: 1 positive, 0 negative, -1 ignored, `[A, H, W]`.
    pub label: String,
}

fn cls_loss() -> String {
    "cls_loss".into()
}

impl LossTerm for SelectCrossEntropy {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let prediction = at.prediction(&self.prediction)?;
        let axes = at.shape(prediction);
        let shape = axes[..axes.len().saturating_sub(1)].to_vec();
        let label = at.input(&self.label, shape)?;
        at.term((&self.name, self.weight), ops::SelectCrossEntropy, &[prediction, label])?;
        Ok(())
    }

    fn prediction(&self) -> Option<&str> {
        Some(&self.prediction)
    }
}
