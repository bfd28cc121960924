//! LARS: arXiv 1708.03888, algorithm 1.

use zoo_graph::{
    formula::{Expression, UpdateOperands},
    ops::{DecayTerm, LongestStep},
};

use super::{Rule, Slot, UsualRate};

settings! {
    /// Momentum with a learning rate per tensor, proportional to the norm of the tensor divided by the norm of its
    /// gradient. Tensors without decay use the plain learning rate (as in MLPerf's reference, where these are biases and
    /// normalisations).
    Lars {
        /// Momentum: the share of the previous velocity that is kept.
        #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
        momentum: f64 = 0.9,
        /// The trust coefficient: the rate is lr*trust*|p| / (|g| + decay*|p|).
        #[schemars(extend("exclusiveMinimum" = 0))]
        trust: f64 = 1e-3,
    }
    /// Weight decay: the parameter times this is added to its gradient.
    weight_decay = 0.0
}

impl Rule for Lars {
    fn device(&self) -> &'static str {
        "ApplyLars"
    }

    fn slots(&self) -> Vec<Slot> {
        vec![Slot::zero("momentum_buffer")]
    }

    fn next<'f>(&self, at: UpdateOperands<'f>) -> Vec<Expression<'f>> {
        let (p, g) = (at.parameter, at.gradient);
        let (norm, gradient_norm) = (norm(p), norm(g));
        let ratio = self.trust * norm / (gradient_norm + at.weight_decay * norm);
        let rate = at.learning_rate * where_decaying(&at, norm * gradient_norm, ratio);
        let v = self.momentum * at.slots[0] + rate * (g + at.weight_decay * p);
        vec![p - v, v]
    }

    fn decay_term(&self) -> DecayTerm {
        DecayTerm::InRule
    }

    fn longest(&self, weight_decay: f64) -> LongestStep {
        match weight_decay {
            0.0 => LongestStep::OfGradient,
            _ => LongestStep::OfParameter(self.trust / (1.0 - self.momentum)),
        }
    }

    fn usual_rate(&self) -> UsualRate {
        UsualRate::Any
    }
}

/// Euclidean norm of a tensor.
pub(super) fn norm(x: Expression<'_>) -> Expression<'_> {
    x.square().row_sum().sqrt()
}

/// The ratio of norms, if the parameter decays and the product of the norms is not zero; otherwise 1.
pub(super) fn where_decaying<'f>(
    at: &UpdateOperands<'f>,
    norms: Expression<'f>,
    ratio: Expression<'f>,
) -> Expression<'f> {
    (norms * at.weight_decay).greater(0.0).select(ratio, 1.0)
}
