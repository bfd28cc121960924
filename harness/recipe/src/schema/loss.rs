//! The loss: the sum of the terms named in a recipe.
//!
//! Terms of networks with several outputs name the output of the model that they judge, and the inputs that it is
//! compared with: these become inputs of the training step.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The loss: the sum of the terms named here, each times its weight, at least one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Loss {
    /// Softmax and cross entropy, mean over the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softmax_cross_entropy: Option<SoftmaxCrossEntropy>,
    /// Half the sum of squares of the parameters, as part of the forward loss (TensorFlow's l2_loss).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2: Option<L2>,
    /// Binary cross entropy over the positives and the hardest negatives of the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balanced_bce: Option<BalancedBce>,
    /// Mean distance where a mask is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub masked_l1: Option<MaskedL1>,
    /// One minus the Dice coefficient.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dice: Option<Dice>,
    /// Cross entropy over pairs, averaged over positives and negatives apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub select_cross_entropy: Option<SelectCrossEntropy>,
    /// Weighted distance of box offsets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weighted_l1: Option<WeightedL1>,
    /// Logistic loss of the masks at chosen positions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask_soft_margin: Option<MaskSoftMargin>,
}

impl Loss {
    /// The terms that judge a named output of the model, with its name.
    pub fn predictions(&self) -> Vec<(&'static str, &str)> {
        let terms = [
            ("balanced_bce", self.balanced_bce.as_ref().map(|term| term.prediction.as_str())),
            ("masked_l1", self.masked_l1.as_ref().map(|term| term.prediction.as_str())),
            ("dice", self.dice.as_ref().map(|term| term.prediction.as_str())),
            ("select_cross_entropy", self.select_cross_entropy.as_ref().map(|term| term.prediction.as_str())),
            ("weighted_l1", self.weighted_l1.as_ref().map(|term| term.prediction.as_str())),
            ("mask_soft_margin", self.mask_soft_margin.as_ref().map(|term| term.prediction.as_str())),
        ];
        terms.into_iter().filter_map(|(term, prediction)| Some((term, prediction?))).collect()
    }
}

/// Softmax and cross entropy, mean over the batch.
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

/// weight * (sum of squares)/2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct L2 {
    /// Factor; what weight decay would be called in an optimizer.
    #[schemars(range(min = 0))]
    pub weight: f64,
    /// The parameters in the sum.
    #[serde(default)]
    pub over: L2Over,
}

/// The parameters that an L2 loss sums over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum L2Over {
    /// Every trained parameter, biases and normalisations included.
    #[default]
    All,
    /// Weights of convolutions and dense layers only.
    Weights,
}

fn one() -> f64 {
    1.0
}

/// Binary cross entropy over positives and hard negatives: with P positives and N = min(negatives,
/// floor(negative_ratio*P)) the sum over the positives and over the N negatives with the largest loss **in the whole
/// batch**, divided by P + N + eps (arXiv 1911.08947, section 3.5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BalancedBce {
    /// Name of the component.
    #[serde(default = "bce_loss")]
    pub name: String,
    /// Factor in the total.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub weight: f64,
    /// Output of the model: probabilities `[1, H, W]`.
    pub prediction: String,
    /// Input of the step: 1 for positives, 0 for negatives, `[1, H, W]`.
    pub target: String,
    /// Input of the step: 0 where a pixel does not count, `[H, W]`.
    pub mask: String,
    /// Negatives per positive.
    #[serde(default = "three")]
    #[schemars(range(min = 0))]
    pub negative_ratio: f64,
    /// Added to the count.
    #[serde(default = "small")]
    #[schemars(range(min = 0))]
    pub eps: f64,
    /// How the hardest negatives are found. Loss and gradient are the same.
    #[serde(default)]
    pub top_k: TopK,
    /// Among which negatives they are picked.
    #[serde(default)]
    pub mine_over: MineOver,
}

/// Among which negatives the hardest are picked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MineOver {
    /// Those of the whole batch (the DB authors').
    #[default]
    Batch,
    /// Those of each image, with its own number of positives.
    Image,
}

fn bce_loss() -> String {
    "bce_loss".into()
}
fn three() -> f64 {
    3.0
}
fn small() -> f64 {
    1e-6
}

/// How the k largest of many values are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TopK {
    /// By a selection of k, which the step computes.
    #[default]
    Dynamic,
    /// All are sorted and multiplied by a mask of their ranks: every shape is known beforehand, as some devices need.
    Static,
}

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

/// Half the mean negative log-likelihood over the positives, plus half of that over the negatives; a side without
/// members counts 0.
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

/// sum over the four offsets of |prediction - target|, times the weights, summed and divided by the batch.
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

/// Mean of log(1 + exp(-mask*logit)) over the pixels of the positions whose `select` is 1 (arXiv 1812.05050, section 3.2).
///
/// The target of a position is the window of the mask at it: `size` pixels, every `stride`, over the mask with `pad`
/// zeros around, which label nothing: they add log 2 and no gradient.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MaskSoftMargin {
    /// Name of the component.
    #[serde(default = "mask_loss")]
    pub name: String,
    /// Factor in the total.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub weight: f64,
    /// Output of the model: `[s*s, H, W]`, where each position's map of s x s logits is enlarged to `size` bilinearly with
    /// aligned corners; or one row of `size*size` logits per position.
    pub prediction: String,
    /// Input of the step: 1 inside the object, -1 outside, `[1, H', W']` as the windows cover it.
    pub target: String,
    /// Input of the step: 1 at the positions that count, `[1, H, W]`.
    pub select: String,
    /// Height and width of a window.
    #[schemars(range(min = 1, max = 4096))]
    pub size: usize,
    /// Step of the windows.
    #[schemars(range(min = 1, max = 4096))]
    pub stride: usize,
    /// Zeros around the mask.
    #[serde(default)]
    #[schemars(range(max = 4096))]
    pub pad: usize,
    /// Whether enlarging gives the corner pixels the same place (the SiamMask authors'); else the corners of those pixels.
    #[serde(default = "aligned")]
    pub align_corners: bool,
}

fn aligned() -> bool {
    true
}

fn mask_loss() -> String {
    "mask_loss".into()
}
