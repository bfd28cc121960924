//! Optimizers: settings and formula, one file per optimizer.
//!
//! To add one, write its file and list it in the `optimizers!` table below. Its device operator joins the names in
//! `zoo_graph::ops::Assign`.

/// The settings of an optimizer with their defaults. What all optimizers have follows: weight decay, whose meaning and
/// default each states, the parameters without it, and groups.
macro_rules! settings {
    (
        $(#[doc = $doc:literal])+ $rule:ident {$($(#[$about:meta])+ $key:ident: $value:ty = $default:expr,)+}
        #[doc = $decay:literal] weight_decay = $weight_decay:literal
    ) => {
        zoo_settings::settings! {
            $(#[doc = $doc])+
            pub struct $rule {
                $($(#[$about])+ pub $key: $value = $default,)+
                #[doc = $decay]
                #[schemars(range(min = 0))]
                pub weight_decay: f64 = $weight_decay,
                /// Parameters without weight decay.
                pub no_decay: Vec<$crate::optimizer::DecayGroup> = Vec::new(),
                /// Parameter groups with their own settings.
                #[serde(skip_serializing_if = "Vec::is_empty")]
                pub groups: Vec<$crate::optimizer::ParameterGroup> = Vec::new(),
            }
        }
    };
}

mod adagrad;
mod adam;
mod adamw;
mod group;
mod lamb;
mod lars;
mod lion;
mod rmsprop;
mod sgd;

pub use adagrad::Adagrad;
pub use adam::Adam;
pub use adamw::AdamW;
pub use group::{DecayGroup, LrFactor, LrFactorError, ParameterGroup};
pub use lamb::Lamb;
pub use lars::Lars;
pub use lion::Lion;
pub use rmsprop::{RmsForm, RmsProp};
pub use sgd::Sgd;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{
    formula::{Expression, Formula, UpdateOperands},
    ops::{Assign, DecayTerm, Group, LongestStep, Update},
};

use crate::{diagnostic::Finding, python::real};

macro_rules! optimizers {
    ($($(#[doc = $doc:literal])+ $tag:ident: $rule:ident,)+) => {
        /// The update rule.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "lowercase", deny_unknown_fields)]
        pub enum Optimizer {
            $($(#[doc = $doc])+ $rule($rule),)+
        }

        impl Optimizer {
            /// Its name in a recipe.
            pub fn tag(&self) -> &'static str {
                match self {
                    $(Self::$rule(_) => stringify!($tag),)+
                }
            }

            fn rule(&self) -> &dyn Rule {
                match self {
                    $(Self::$rule(rule) => rule,)+
                }
            }

            /// Mutable access to the weight decay of parameters without a group, the exclusions from it, and the groups.
            pub fn decay_mut(&mut self) -> (&mut f64, &mut Vec<DecayGroup>, &mut Vec<ParameterGroup>) {
                match self {
                    $(Self::$rule(rule) => (&mut rule.weight_decay, &mut rule.no_decay, &mut rule.groups),)+
                }
            }

            /// The weight decay of parameters without a group, the exclusions from it, and the groups.
            pub fn decay(&self) -> (f64, &[DecayGroup], &[ParameterGroup]) {
                match self {
                    $(Self::$rule(rule) => (rule.weight_decay, &rule.no_decay, &rule.groups),)+
                }
            }
        }
    };
}

optimizers! {
    /// Stochastic gradient descent with momentum: v = momentum*v + (g + decay*p), p -= lr*v; v starts as the first (g +
    /// decay*p) (PyTorch's SGD).
    sgd: Sgd,
    /// Adam (arXiv 1412.6980), decay added to the gradient (PyTorch's Adam).
    adam: Adam,
    /// Adam with decoupled weight decay (arXiv 1711.05101; PyTorch's AdamW).
    adamw: AdamW,
    /// The gradient divided by the root of a moving average of its square (RMSprop of PyTorch or TensorFlow).
    rmsprop: RmsProp,
    /// The gradient divided by the root of the sum of its squares (PyTorch's Adagrad).
    adagrad: Adagrad,
    /// The sign of a moving average of the gradient (arXiv 2302.06675).
    lion: Lion,
    /// Momentum with a learning rate per tensor, proportional to the norm of the tensor divided by the norm of its
    /// gradient (arXiv 1708.03888).
    lars: Lars,
    /// Adam with decay, with the step of each tensor scaled to the norm of the tensor (arXiv 1904.00962).
    lamb: Lamb,
}

/// What an optimizer knows of itself.
trait Rule {
    /// The device operator that it is.
    fn device(&self) -> &'static str;

    /// Its state per parameter.
    fn slots(&self) -> Vec<Slot>;

    /// The next values of the parameter and of its slots.
    fn next<'f>(&self, at: UpdateOperands<'f>) -> Vec<Expression<'f>>;

    /// How it is written in PyTorch.
    fn emit(&self) -> Written;

    /// The position of weight decay in [`Rule::next`].
    fn decay_term(&self) -> DecayTerm;

    /// The longest step along a gradient whose direction is chance, of a parameter with this decay.
    fn longest(&self, weight_decay: f64) -> LongestStep;

    /// Which learning rates are usual.
    fn usual_rate(&self) -> UsualRate;

    /// Which weight decay is usual.
    fn usual_decay(&self) -> UsualDecay {
        UsualDecay::OF_GRADIENTS
    }

    /// Checks of its settings beyond the schema.
    fn findings(&self) -> Vec<Finding> {
        Vec::new()
    }
}

/// The state of an optimizer per parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slot {
    /// Its name in checkpoints, as in PyTorch's state of the optimizer.
    pub name: &'static str,
    /// The number that all its elements start as.
    pub start: f64,
}

impl Slot {
    /// A slot that starts at zero.
    const fn zero(name: &'static str) -> Self {
        Self { name, start: 0.0 }
    }
}

/// How an optimizer is written in PyTorch.
pub(crate) struct Written {
    /// Its class.
    pub class: &'static str,
    /// Arguments of the class, without learning rate and weight decay.
    pub arguments: Vec<(&'static str, String)>,
    /// The text of the class, if PyTorch has no such optimizer.
    pub text: Option<&'static str>,
}

impl Written {
    /// A class of PyTorch with the same formula.
    fn class(class: &'static str, arguments: Vec<(&'static str, String)>) -> Self {
        Self { class, arguments, text: None }
    }
}

/// Which learning rates are usual.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum UsualRate {
    /// They go with the batch: 0.1 per 256 samples (arXiv 1706.02677).
    WithBatch,
    /// About this one, independent of the batch.
    About {
        /// The learning rate.
        rate: f64,
        /// Of whom.
        of: &'static str,
        /// Where that is found.
        source: &'static str,
    },
    /// They go with settings of the rule.
    Any,
}

/// Which weight decay is usual.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct UsualDecay {
    /// More than this is probably a slip.
    pub most: f64,
    /// What is usual.
    pub usual: &'static str,
    /// Where that is found.
    pub source: &'static str,
}

impl UsualDecay {
    /// Of decay that is added to the gradient.
    pub const OF_GRADIENTS: Self = Self {
        most: 2e-3,
        usual: "1e-4",
        source: "1e-4 (arXiv 1512.03385), 5e-4 (arXiv 1409.1556), 1/32768 (NVIDIA's ResNet50)",
    };
    /// Of decay that is taken from the parameter, times the learning rate.
    pub const APART: Self = Self {
        most: 1.0,
        usual: "0.01 to 0.3",
        source: "0.01 (PyTorch's AdamW), 0.1 (arXiv 2005.14165), 0.3 (torchvision's ViT-B/16)",
    };
}

impl Optimizer {
    /// Its state per parameter.
    pub fn slots(&self) -> Vec<Slot> {
        self.rule().slots()
    }

    /// The operator that updates a parameter of this group.
    pub fn operator(&self, group: Group) -> Assign {
        let rule = self.rule();
        let slots = rule.slots().len();
        let formula = Formula::update(slots, |at| rule.next(at));
        let longest = rule.longest(group.weight_decay);
        let update = Update::Optimizer { slots, group, decay: rule.decay_term(), longest };
        Assign::new(formula, rule.device(), update)
    }

    /// How it is written in PyTorch.
    pub(crate) fn emit(&self) -> Written {
        self.rule().emit()
    }

    /// Which learning rates are usual.
    pub(crate) fn usual_rate(&self) -> UsualRate {
        self.rule().usual_rate()
    }

    /// Which weight decay is usual.
    pub(crate) fn usual_decay(&self) -> UsualDecay {
        self.rule().usual_decay()
    }

    /// Checks of its settings beyond the schema.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        self.rule().findings()
    }
}

#[cfg(test)]
mod tests;
