//! Adam: arXiv 1412.6980 in the form of `torch.optim.Adam` (eps outside the root, decay as L2), not amsgrad.

use zoo_graph::{
    formula::{Expression, UpdateOperands},
    ops::{DecayTerm, LongestStep},
};

use super::{Rule, Slot, UsualRate, Written, real};

settings! {
    /// Adam.
    Adam {
        /// Decay rate of the first moment.
        #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
        beta1: f64 = 0.9,
        /// Decay rate of the second moment.
        #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
        beta2: f64 = 0.999,
        /// Added to the root of the second moment.
        #[schemars(extend("exclusiveMinimum" = 0))]
        eps: f64 = 1e-8,
    }
    /// Weight decay: the parameter times this is added to its gradient.
    weight_decay = 0.0
}

impl Rule for Adam {
    fn device(&self) -> &'static str {
        "ApplyAdam"
    }

    fn slots(&self) -> Vec<Slot> {
        MOMENTS.to_vec()
    }

    fn next<'f>(&self, at: UpdateOperands<'f>) -> Vec<Expression<'f>> {
        let d = at.gradient + at.weight_decay * at.parameter;
        let moments = Moments::next([self.beta1, self.beta2], &at, d);
        let rate = at.learning_rate / moments.correction[0];
        let step = rate * moments.first / moments.denominator(self.eps);
        vec![at.parameter - step, moments.first, moments.second]
    }

    fn emit(&self) -> Written {
        Written::class(
            "torch.optim.Adam",
            vec![("betas", format!("({}, {})", real(self.beta1), real(self.beta2))), ("eps", real(self.eps))],
        )
    }

    fn decay_term(&self) -> DecayTerm {
        DecayTerm::InGradient
    }

    fn longest(&self, _weight_decay: f64) -> LongestStep {
        LongestStep::Rates(1.0 / (1.0 - self.beta1))
    }

    fn usual_rate(&self) -> UsualRate {
        UsualRate::About { rate: 1e-3, of: "Adam", source: "0.001 (arXiv 1412.6980)" }
    }
}

/// What Adam and its relatives keep.
pub(super) const MOMENTS: [Slot; 2] = [Slot::zero("exp_avg"), Slot::zero("exp_avg_sq")];

/// The moments after a step.
pub(super) struct Moments<'f> {
    pub first: Expression<'f>,
    pub second: Expression<'f>,
    /// What remains of their start from zero: `1 - beta^t`.
    pub correction: [Expression<'f>; 2],
}

impl<'f> Moments<'f> {
    /// Moments that have taken in `d`.
    pub fn next([beta1, beta2]: [f64; 2], at: &UpdateOperands<'f>, d: Expression<'f>) -> Self {
        let (m, v) = (at.slots[0], at.slots[1]);
        let correction = [beta1, beta2].map(|beta| 1.0 - at.update.number(beta).pow(at.update));
        Self { first: m + (1.0 - beta1) * (d - m), second: beta2 * v + (1.0 - beta2) * d * d, correction }
    }

    /// The root of the corrected second moment, and `eps`.
    pub fn denominator(&self, eps: f64) -> Expression<'f> {
        self.second.sqrt() / self.correction[1].sqrt() + eps
    }
}
