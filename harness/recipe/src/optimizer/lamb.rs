//! LAMB: arXiv 1904.00962, algorithm 2, with the bias correction of its published code.

use zoo_graph::{
    formula::{Expression, UpdateOperands},
    ops::{DecayTerm, LongestStep},
};

use super::{
    Rule, Slot, UsualDecay, UsualRate, Written,
    adam::{MOMENTS, Moments},
    lars::{norm, where_decaying},
    real,
};

settings! {
    /// Adam with decay, with the step of each tensor scaled to the norm of the tensor. Tensors without decay take the step
    /// of Adam (as in the code of the paper, where these are biases and normalisations).
    Lamb {
        /// Decay rate of the first moment.
        #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
        beta1: f64 = 0.9,
        /// Decay rate of the second moment.
        #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
        beta2: f64 = 0.999,
        /// Added to the root of the second moment.
        #[schemars(extend("exclusiveMinimum" = 0))]
        eps: f64 = 1e-6,
    }
    /// Weight decay: the parameter times this is added to the direction of its step.
    weight_decay = 0.01
}

impl Rule for Lamb {
    fn device(&self) -> &'static str {
        "ApplyLamb"
    }

    fn slots(&self) -> Vec<Slot> {
        MOMENTS.to_vec()
    }

    fn next<'f>(&self, at: UpdateOperands<'f>) -> Vec<Expression<'f>> {
        let moments = Moments::next([self.beta1, self.beta2], &at, at.gradient);
        let direction =
            moments.first / moments.correction[0] / moments.denominator(self.eps) + at.weight_decay * at.parameter;
        let (norm, step_norm) = (norm(at.parameter), norm(direction));
        let rate = at.learning_rate * where_decaying(&at, norm * step_norm, norm / step_norm);
        vec![at.parameter - rate * direction, moments.first, moments.second]
    }

    fn emit(&self) -> Written {
        let arguments =
            vec![("betas", format!("({}, {})", real(self.beta1), real(self.beta2))), ("eps", real(self.eps))];
        Written { class: "Lamb", arguments, text: Some(TEXT) }
    }

    fn decay_term(&self) -> DecayTerm {
        DecayTerm::InRule
    }

    fn longest(&self, weight_decay: f64) -> LongestStep {
        match weight_decay {
            0.0 => LongestStep::Rates(1.0 / (1.0 - self.beta1)),
            _ => LongestStep::OfParameter(1.0),
        }
    }

    fn usual_decay(&self) -> UsualDecay {
        UsualDecay::APART
    }

    fn usual_rate(&self) -> UsualRate {
        UsualRate::About { rate: 2e-3, of: "LAMB", source: "0.002 (arXiv 1904.00962)" }
    }
}

/// The class.
const TEXT: &str = r#"
class Lamb(torch.optim.Optimizer):
    """Adam with decay and a step per tensor in proportion to its norm (arXiv 1904.00962); tensors without decay take
    the step of Adam."""

    def __init__(
        self, params: Iterable[dict], lr: float, betas: tuple[float, float], eps: float, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.update(parameter, group)

    def update(self, parameter: Tensor, group: dict) -> None:
        state, decay, (beta1, beta2) = self.state[parameter], group["weight_decay"], group["betas"]
        count = state["step"] = state.get("step", 0) + 1
        first = state.setdefault("exp_avg", torch.zeros_like(parameter)).lerp_(parameter.grad, 1 - beta1)
        second = state.setdefault("exp_avg_sq", torch.zeros_like(parameter))
        second.mul_(beta2).addcmul_(parameter.grad, parameter.grad, value=1 - beta2)
        root = second.sqrt() / math.sqrt(1 - beta2**count) + group["eps"]
        direction = first / (1 - beta1**count) / root + decay * parameter
        norm, length = parameter.norm(), direction.norm()
        ratio = torch.where(norm * length * decay > 0, norm / length, 1.0)
        parameter.sub_(group["lr"] * ratio * direction)
"#;
