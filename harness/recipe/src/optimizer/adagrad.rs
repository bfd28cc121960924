//! Adagrad: Duchi et al., JMLR 12 (2011), in the form of `torch.optim.Adagrad`.

use zoo_graph::{
    formula::{Expression, UpdateOperands},
    ops::{DecayTerm, LongestStep},
};

use super::{Rule, Slot, UsualRate, Written, real};

settings! {
    /// The gradient divided by the root of the sum of its squares.
    Adagrad {
        /// The learning rate of update t, from 1, is divided by 1 + (t - 1)*lr_decay.
        #[schemars(range(min = 0))]
        lr_decay: f64 = 0.0,
        /// Initial value of the sum of squares.
        #[schemars(range(min = 0))]
        initial_accumulator_value: f64 = 0.0,
        /// Added to the root of the sum.
        #[schemars(extend("exclusiveMinimum" = 0))]
        eps: f64 = 1e-10,
    }
    /// Weight decay: the parameter times this is added to its gradient.
    weight_decay = 0.0
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

    fn emit(&self) -> Written {
        let initial = ("initial_accumulator_value", real(self.initial_accumulator_value));
        let mut arguments = vec![("eps", real(self.eps))];
        arguments.extend((self.initial_accumulator_value != 0.0).then_some(initial));
        arguments.extend((self.lr_decay != 0.0).then_some(("lr_decay", real(self.lr_decay))));
        Written::class("torch.optim.Adagrad", arguments)
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
