//! Binary cross entropy over positives and hard negatives.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{
    GraphError,
    ops::{self, HardNegatives, MiningScope},
};

use super::{Diagnostic, Judged, LossTerm, Terms};

term! {
    /// Binary cross entropy over positives and hard negatives: with P positives and N = min(negatives,
    /// floor(negative_ratio*P)) the sum over the positives and over the N negatives with the largest loss **in the
    /// whole batch**, divided by P + N + eps (arXiv 1911.08947, section 3.5).
    pub struct BalancedBce called "bce_loss" {
        /// Output of the model: probabilities `[1, H, W]`.
        pub prediction: String,
        /// Input of the step: 1 for positives, 0 for negatives, `[1, H, W]`.
        pub target: String,
        /// Input of the step: 0 for pixels that are ignored, `[H, W]`.
        pub mask: String,
        /// Negatives per positive.
        #[schemars(range(min = 0))]
        pub negative_ratio: f64 = 3.0,
        /// Added to the count.
        #[schemars(range(min = 0))]
        pub eps: f64 = 1e-6,
        /// How the hardest negatives are found. Loss and gradient do not depend on it.
        pub top_k: TopK = TopK::default(),
        /// The set from which the hardest negatives are selected.
        pub mine_over: MineOver = MineOver::default(),
    }
}

/// The set from which the hardest negatives are selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MineOver {
    /// The negatives of the whole batch (as the authors of DB do).
    #[default]
    Batch,
    /// The negatives of each image, with its own number of positives.
    Image,
}

/// How the k largest of many values are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TopK {
    /// Selection of k, which is computed in the step.
    #[default]
    Dynamic,
    /// All are sorted and multiplied by a mask of their ranks, so that every shape is static, as some devices require.
    Static,
}

impl LossTerm for BalancedBce {
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError> {
        let prediction = at.prediction(&self.prediction)?;
        let [n, h, w] = at.one_channel(prediction)?;
        let target = at.input(&self.target, [n, 1, h, w])?;
        let mask = at.input(&self.mask, [n, h, w])?;
        let hard_negatives = match self.top_k {
            TopK::Dynamic => HardNegatives::TopK,
            TopK::Static => HardNegatives::RankMask,
        };
        let scope_of_mining = match self.mine_over {
            MineOver::Batch => MiningScope::Batch,
            MineOver::Image => MiningScope::Image,
        };
        let op = ops::BalancedBce {
            negative_ratio: self.negative_ratio,
            eps: self.eps,
            hard_negatives,
            scope: scope_of_mining,
        };
        let results = at.term((&self.name, self.weight), op, &[prediction, target, mask])?;
        for (name, value) in ["positive_count", "negative_count", "ohem_kth_loss"].into_iter().zip(&results[2..]) {
            at.metric(name, *value);
        }
        Ok(())
    }

    fn emit(&self, at: &mut Judged<'_>) -> Result<(), Diagnostic> {
        let text = match self.mine_over {
            MineOver::Batch => OF_BATCH,
            MineOver::Image => OF_IMAGES,
        };
        let numbers = [("ratio", self.negative_ratio), ("eps", self.eps)];
        at.call((&self.name, self.weight), text, &[&self.prediction], &[&self.target, &self.mask], &numbers)
    }

    fn prediction(&self) -> Option<&str> {
        Some(&self.prediction)
    }
}

const OF_BATCH: &str = r#"
def balanced_bce(p: Tensor, target: Tensor, mask: Tensor, ratio: float, eps: float) -> Tensor:
    """Binary cross entropy over the positives and the hardest negatives of all samples together."""
    mask = mask[:, None]
    positive, negative = (target * mask).trunc(), ((1 - target) * mask).trunc()
    count = min(int(negative.sum()), int(positive.sum() * ratio))
    entropy = functional.binary_cross_entropy(p, target, reduction="none")
    hardest = (entropy * negative).flatten().topk(count).values
    return ((entropy * positive).sum() + hardest.sum()) / (positive.sum() + count + eps)
"#;

const OF_IMAGES: &str = r#"
def balanced_bce(p: Tensor, target: Tensor, mask: Tensor, ratio: float, eps: float) -> Tensor:
    """Binary cross entropy over the positives and the hardest negatives of each sample."""
    mask = mask[:, None]
    positive, negative = (target * mask).trunc(), ((1 - target) * mask).trunc()
    entropy = functional.binary_cross_entropy(p, target, reduction="none")
    total, count = (entropy * positive).sum(), positive.sum()
    for losses, own, others in zip(entropy, positive, negative, strict=True):
        hard = min(int(others.sum()), int(own.sum() * ratio))
        total = total + (losses * others).flatten().topk(hard).values.sum()
        count = count + hard
    return total / (count + eps)
"#;
