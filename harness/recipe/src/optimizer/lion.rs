//! Lion: arXiv 2302.06675, algorithm 2.

use zoo_graph::{
    formula::{Expression, UpdateOperands},
    ops::{DecayTerm, LongestStep},
};

use super::{Rule, Slot, UsualDecay, UsualRate, Written, real};

settings! {
    /// The sign of a moving average of the gradient.
    Lion {
        /// Share of the average in the direction of the step.
        #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
        beta1: f64 = 0.9,
        /// Share of the average that is kept.
        #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
        beta2: f64 = 0.99,
    }
    /// Weight decay: the parameter times this and the learning rate is subtracted from it.
    weight_decay = 0.0
}

impl Rule for Lion {
    fn device(&self) -> &'static str {
        "ApplyLion"
    }

    fn slots(&self) -> Vec<Slot> {
        vec![Slot::zero("exp_avg")]
    }

    fn next<'f>(&self, at: UpdateOperands<'f>) -> Vec<Expression<'f>> {
        let (m, g) = (at.slots[0], at.gradient);
        let direction = (self.beta1 * m + (1.0 - self.beta1) * g).sign();
        let decayed = at.parameter * (1.0 - at.learning_rate * at.weight_decay);
        vec![decayed - at.learning_rate * direction, self.beta2 * m + (1.0 - self.beta2) * g]
    }

    fn emit(&self) -> Written {
        Written {
            class: "Lion",
            arguments: vec![("betas", format!("({}, {})", real(self.beta1), real(self.beta2)))],
            text: Some(TEXT),
        }
    }

    fn decay_term(&self) -> DecayTerm {
        DecayTerm::InRule
    }

    fn longest(&self, _weight_decay: f64) -> LongestStep {
        LongestStep::Rates(1.0)
    }

    fn usual_decay(&self) -> UsualDecay {
        UsualDecay::APART
    }

    fn usual_rate(&self) -> UsualRate {
        UsualRate::About { rate: 1e-4, of: "Lion", source: "0.0001 (arXiv 2302.06675: a tenth to a third of AdamW's)" }
    }
}

/// The class.
const TEXT: &str = r#"
class Lion(torch.optim.Optimizer):
    """The sign of a moving average of the gradient (arXiv 2302.06675)."""

    def __init__(self, params: Iterable[dict], lr: float, betas: tuple[float, float], weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.update(parameter, group)

    def update(self, parameter: Tensor, group: dict) -> None:
        average = self.state[parameter].setdefault("exp_avg", torch.zeros_like(parameter))
        direction = average.lerp(parameter.grad, 1 - group["betas"][0]).sign()
        parameter.mul_(1 - group["lr"] * group["weight_decay"]).sub_(direction, alpha=group["lr"])
        average.lerp_(parameter.grad, 1 - group["betas"][1])
"#;
