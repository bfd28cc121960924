//! Adagrad: Duchi et al., JMLR 12 (2011), in the form of `torch.optim.Adagrad`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{
    formula::{Expression, UpdateOperands},
    ops::{DecayTerm, LongestStep},
};

use super::{DecayGroup, ParameterGroup, Rule, Slot, UsualRate};

/// The gradient divided by the root of the sum of its squares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Adagrad {
    /// The learning rate of update t, from 1, is divided by 1 + (t - 1)*lr_decay.
    #[schemars(range(min = 0))]
    pub lr_decay: f64,
    /// Initial value of the sum of squares.
    #[schemars(range(min = 0))]
    pub initial_accumulator_value: f64,
    /// Added to the root of the sum.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub eps: f64,
    /// Weight decay: the parameter times this is added to its gradient.
    #[schemars(range(min = 0))]
    pub weight_decay: f64,
    /// Parameters without weight decay.
    pub no_decay: Vec<DecayGroup>,
    /// Parameter groups with their own settings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<ParameterGroup>,
}

impl Default for Adagrad {
    fn default() -> Self {
        let (no_decay, groups) = (Vec::new(), Vec::new());
        Self { lr_decay: 0.0, initial_accumulator_value: 0.0, eps: 1e-10, weight_decay: 0.0, no_decay, groups }
    }
}

impl Rule for Adagrad {
    fn device(&self) -> &'static str {
        "ApplyAdagrad"
    }

    fn slots(&self) -> Vec<Slot> {
        vec![Slot { name: "sum", start: self.initial_accumulator_value }]
    }

    fn next<'f>(&self, at: UpdateOperands<'f>) -> Vec<Expression<'f>> {
        let d = at.gradient + at.weight_decay * at.parameter;
        let sum = at.slots[0] + d * d;
        let rate = at.learning_rate / (1.0 + (at.update - 1.0) * self.lr_decay);
        vec![at.parameter - rate * d / (sum.sqrt() + self.eps), sum]
    }

    fn decay_term(&self) -> DecayTerm {
        DecayTerm::InGradient
    }

    fn longest(&self, _weight_decay: f64) -> LongestStep {
        LongestStep::Rates(1.0)
    }

    fn usual_rate(&self) -> UsualRate {
        UsualRate::About { rate: 1e-2, of: "Adagrad", source: "0.01 (PyTorch's default)" }
    }
}
