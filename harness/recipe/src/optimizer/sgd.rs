//! Stochastic gradient descent with momentum: `torch.optim.SGD` with dampening 0.

use zoo_graph::{
    formula::{Expression, UpdateOperands},
    ops::{DecayTerm, LongestStep},
};

use super::{Rule, Slot, UsualRate, Written, real};
use crate::diagnostic::{Finding, Severity};

settings! {
    /// Stochastic gradient descent with momentum.
    Sgd {
        /// Momentum: the share of the previous velocity that is kept.
        #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
        momentum: f64 = 0.0,
        /// Nesterov momentum: p -= lr*(g + decay*p + momentum*v), with v updated first.
        nesterov: bool = false,
    }
    /// Weight decay: the parameter times this is added to its gradient.
    weight_decay = 0.0
}

impl Rule for Sgd {
    fn device(&self) -> &'static str {
        "ApplyMomentum"
    }

    fn slots(&self) -> Vec<Slot> {
        vec![Slot::zero("momentum_buffer")]
    }

    fn next<'f>(&self, at: UpdateOperands<'f>) -> Vec<Expression<'f>> {
        let d = at.gradient + at.weight_decay * at.parameter;
        let v = self.momentum * at.slots[0] + d;
        let direction = if self.nesterov { d + self.momentum * v } else { v };
        vec![at.parameter - at.learning_rate * direction, v]
    }

    fn emit(&self) -> Written {
        let mut arguments = Vec::new();
        arguments.extend((self.momentum != 0.0).then(|| ("momentum", real(self.momentum))));
        arguments.extend(self.nesterov.then(|| ("nesterov", "True".to_owned())));
        Written::class("torch.optim.SGD", arguments)
    }

    fn decay_term(&self) -> DecayTerm {
        DecayTerm::InGradient
    }

    fn longest(&self, _weight_decay: f64) -> LongestStep {
        LongestStep::OfGradient
    }

    fn usual_rate(&self) -> UsualRate {
        UsualRate::WithBatch
    }

    fn findings(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        if self.nesterov && self.momentum == 0.0 {
            found.push(Finding {
                severity: Severity::Error,
                key: "nesterov",
                message: "Nesterov momentum needs a momentum".into(),
                hint: "set momentum, for example 0.9",
            });
        }
        if self.momentum > 0.99 || (self.momentum > 0.0 && self.momentum < 0.5) {
            found.push(Finding {
                severity: Severity::Warning,
                key: "momentum",
                message: format!("momentum {} is far from the usual 0.9", self.momentum),
                hint: "0.9 (arXiv 1512.03385); the velocity is the sum of the last 1/(1 - momentum) gradients",
            });
        }
        found
    }
}
