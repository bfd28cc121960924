//! AdamW: arXiv 1711.05101 in the form of `torch.optim.AdamW`.

use zoo_graph::{
    formula::{Expression, UpdateOperands},
    ops::{DecayTerm, LongestStep},
};

use super::{
    Rule, Slot, UsualDecay, UsualRate, Written,
    adam::{MOMENTS, Moments},
    real,
};

settings! {
    /// Adam with decoupled weight decay.
    AdamW {
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
    /// Weight decay: the parameter times this and the learning rate is subtracted from it.
    weight_decay = 0.01
}

impl Rule for AdamW {
    fn device(&self) -> &'static str {
        "ApplyAdamW"
    }

    fn slots(&self) -> Vec<Slot> {
        MOMENTS.to_vec()
    }

    fn next<'f>(&self, at: UpdateOperands<'f>) -> Vec<Expression<'f>> {
        let decayed = at.parameter * (1.0 - at.learning_rate * at.weight_decay);
        let moments = Moments::next([self.beta1, self.beta2], &at, at.gradient);
        let rate = at.learning_rate / moments.correction[0];
        let step = rate * moments.first / moments.denominator(self.eps);
        vec![decayed - step, moments.first, moments.second]
    }

    fn emit(&self) -> Written {
        Written::class(
            "torch.optim.AdamW",
            vec![("betas", format!("({}, {})", real(self.beta1), real(self.beta2))), ("eps", real(self.eps))],
        )
    }

    fn decay_term(&self) -> DecayTerm {
        DecayTerm::InRule
    }

    fn longest(&self, _weight_decay: f64) -> LongestStep {
        LongestStep::Rates(1.0 / (1.0 - self.beta1))
    }

    fn usual_decay(&self) -> UsualDecay {
        UsualDecay::APART
    }

    fn usual_rate(&self) -> UsualRate {
        UsualRate::About { rate: 1e-3, of: "AdamW", source: "0.001 (arXiv 1711.05101)" }
    }
}
