//! The loss: the weighted sum of its terms, one file per term.
//!
//! In networks with several outputs, a term names the output of the model and the inputs to compare it with, which
//! become inputs of the training step. To add a term, write its file and list it in the `losses!` table below.

/// The settings of a term: the name of its component and its weight, which all terms have, and its own.
macro_rules! term {
    ($(#[doc = $doc:literal])+ pub struct $term:ident called $name:literal {$($own:tt)*}) => {
        zoo_settings::settings! {
            $(#[doc = $doc])+
            pub struct $term {
                /// Name of the component.
                pub name: String = $name.into(),
                /// Factor in the total.
                #[schemars(range(min = 0))]
                pub weight: f64 = 1.0,
                $($own)*
            }
        }
    };
}

mod balanced_bce;
mod bce;
mod comparison;
mod dice;
mod expert_balance;
mod expert_z;
mod formula;
mod giou;
mod l2;
mod mae;
mod mask_soft_margin;
mod masked_l1;
mod mse;
mod nll;
mod select_cross_entropy;
mod sigmoid_focal;
mod smooth_l1;
mod softmax_cross_entropy;
mod softmax_dice;
mod triplet;
mod weighted_l1;

pub use balanced_bce::{BalancedBce, MineOver, TopK};
pub use bce::{Bce, Binary};
pub use comparison::Comparison;
pub use dice::Dice;
pub use expert_balance::ExpertBalance;
pub use expert_z::ExpertZ;
pub use formula::{FormulaTerm, Reduction};
pub use giou::Giou;
pub use l2::{L2, L2Over};
pub use mae::Mae;
pub use mask_soft_margin::MaskSoftMargin;
pub use masked_l1::MaskedL1;
pub use mse::Mse;
pub use nll::Nll;
pub use select_cross_entropy::SelectCrossEntropy;
pub use sigmoid_focal::SigmoidFocal;
pub use smooth_l1::SmoothL1;
pub use softmax_cross_entropy::{SmoothingOver, SoftmaxCrossEntropy};
pub use softmax_dice::SoftmaxDice;
pub use triplet::Triplet;
pub use weighted_l1::WeightedL1;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::GraphError;

use crate::builder::{LABEL, Terms};
use crate::diagnostic::Diagnostic;
use crate::python::{Binding, Code, Judged, real};

macro_rules! losses {
    ($($(#[doc = $doc:literal])+ $tag:ident: $term:ident,)+) => {
        /// The loss: the weighted sum of its terms, at least one.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct Loss {
            $($(#[doc = $doc])+
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub $tag: Option<$term>,)+
            /// Further cross entropies, for example of auxiliary classifiers or of a second task, by the names of their
            /// components.
            #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
            pub cross_entropies: IndexMap<String, SoftmaxCrossEntropy>,
            /// Further comparisons with numbers, of networks with several outputs, by the names of their components.
            #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
            pub comparisons: IndexMap<String, Comparison>,
            /// Terms written as formulas, by the names of their components.
            #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
            pub formulas: IndexMap<String, FormulaTerm>,
        }

        impl Loss {
            /// The existing terms, with their keys.
            pub(crate) fn terms(&self) -> impl Iterator<Item = (&'static str, &dyn LossTerm)> {
                let terms = [$((stringify!($tag), self.$tag.as_ref().map(|term| term as &dyn LossTerm))),+];
                terms.into_iter().filter_map(|(tag, term)| Some((tag, term?)))
            }
        }
    };
}

losses! {
    /// Softmax and cross entropy, mean over the samples of a batch, or over their tokens or pixels.
    softmax_cross_entropy: SoftmaxCrossEntropy,
    /// Half the sum of squares of the parameters, as part of the forward loss (TensorFlow's l2_loss).
    l2: L2,
    /// Binary cross entropy over the positives and the hardest negatives of the batch.
    balanced_bce: BalancedBce,
    /// Mean absolute difference where a mask is set.
    masked_l1: MaskedL1,
    /// One minus the Dice coefficient.
    dice: Dice,
    /// Cross entropy over pairs, averaged separately over positives and negatives.
    select_cross_entropy: SelectCrossEntropy,
    /// Weighted L1 distance of box offsets.
    weighted_l1: WeightedL1,
    /// Logistic loss of the masks at selected positions.
    mask_soft_margin: MaskSoftMargin,
    /// Focal loss of the classes of anchors.
    sigmoid_focal: SigmoidFocal,
    /// Smooth L1 distance of the offsets of anchors with a class.
    smooth_l1: SmoothL1,
    /// Generalised intersection over union of the boxes of anchors with a class.
    giou: Giou,
    /// One minus the Dice coefficient of each class.
    softmax_dice: SoftmaxDice,
    /// Even use of experts.
    expert_balance: ExpertBalance,
    /// Small scores of experts.
    expert_z: ExpertZ,
    /// Minus the logarithm of the probability of the true class, of a network that gives logarithms.
    nll: Nll,
    /// Mean squared error.
    mse: Mse,
    /// Mean absolute error.
    mae: Mae,
    /// Binary cross entropy of independent numbers.
    bce: Bce,
    /// Distances of an anchor to something like it, and to something else.
    triplet: Triplet,
}

/// What a term of the loss knows of itself.
pub(crate) trait LossTerm {
    /// Adds the term.
    fn build(&self, at: &mut Terms<'_>) -> Result<(), GraphError>;

    /// How it is written in PyTorch.
    fn emit(&self, at: &mut Judged<'_>) -> Result<(), Diagnostic>;

    /// Whether it depends on the samples' targets: not a term of parameters or of the network alone.
    fn has_target(&self) -> bool {
        true
    }

    /// The output of the model to which it applies, if named.
    fn prediction(&self) -> Option<&str> {
        None
    }
}

impl Loss {
    /// The terms that judge a named output of the model, by their paths, with its name.
    pub fn predictions(&self) -> Vec<(String, &str)> {
        let own = self.terms().filter_map(|(tag, term)| Some((format!("loss.{tag}"), term.prediction()?)));
        let further = self.cross_entropies.iter();
        let further = further.filter_map(|(name, term)| Some((further_path(name), term.prediction()?)));
        let compared = self.comparisons.iter();
        let compared = compared.filter_map(|(name, term)| Some((comparison_path(name), term.prediction()?)));
        own.chain(further).chain(compared).collect()
    }

    /// The labels that terms ignore, by the names of their inputs.
    pub(crate) fn ignored(&self) -> impl Iterator<Item = (&str, u32)> {
        let entropies = self.softmax_cross_entropy.iter().chain(self.cross_entropies.values());
        let entropies = entropies.filter_map(|term| Some((term.label.as_str(), term.ignore?)));
        let dice = self.softmax_dice.iter().filter_map(|term| Some((LABEL, term.ignore?)));
        entropies.chain(dice)
    }
}

/// Path of one of [`Loss::cross_entropies`].
pub(crate) fn further_path(name: &str) -> String {
    format!("loss.cross_entropies.{name}")
}

/// Path of one of [`Loss::comparisons`].
pub(crate) fn comparison_path(name: &str) -> String {
    format!("loss.comparisons.{name}")
}
