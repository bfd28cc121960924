//! Softmax and cross entropy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, ops};

use super::{LossTerm, Terms};
use crate::lower::LOGITS;

/// Softmax and cross entropy, mean over the batch, or over all tokens of a batch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SoftmaxCrossEntropy {
    /// Share s of the probability taken from the true class (arXiv 1512.00567, section 7).
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub label_smoothing: f64,
    /// Who gets it.
    pub smoothing_over: SmoothingOver,
}

/// Classes that label smoothing gives the share s to, of K classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SmoothingOver {
    /// s/K to each of the K classes, the true one included (PyTorch, TensorFlow).
    #[default]
    AllClasses,
    /// s/(K-1) to each class but the true one (MindSpore's migration guide).
    OtherClasses,
}

impl LossTerm for SoftmaxCrossEntropy {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let logits = at.prediction(LOGITS)?;
        let (width, classes) = (at.shape(logits).last().copied(), at.classes());
        if let Some(width) = width.filter(|width| *width < classes) {
            return Err(at.refuse(format!(
                "the network has {width} logits for {classes} classes: let its last layer have `out: $classes`"
            )));
        }
        let shape = at.shape(logits).clone();
        let labels = at.labels(&shape)?;
        let over = match self.smoothing_over {
            SmoothingOver::AllClasses => ops::SmoothingOver::AllClasses,
            SmoothingOver::OtherClasses => ops::SmoothingOver::OtherClasses,
        };
        let op = ops::SoftmaxCrossEntropy { smoothing: self.label_smoothing, over };
        at.term(("cross_entropy", 1.0), op, &[logits, labels])?;
        Ok(())
    }
}
