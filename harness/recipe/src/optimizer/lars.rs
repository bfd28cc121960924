//! LARS: arXiv 1708.03888, algorithm 1.

use zoo_graph::{
    formula::{Expression, UpdateOperands},
    ops::{DecayTerm, LongestStep},
};

use super::{Rule, Slot, UsualRate, Written, real};

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

    fn emit(&self) -> Written {
        let arguments = vec![("momentum", real(self.momentum)), ("trust", real(self.trust))];
        Written { class: "Lars", arguments, text: Some(TEXT) }
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

/// The class.
const TEXT: &str = r#"
class Lars(torch.optim.Optimizer):
    """Momentum with a learning rate per tensor (arXiv 1708.03888); tensors without decay take the plain one."""

    def __init__(
        self, params: Iterable[dict], lr: float, momentum: float, trust: float, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "trust": trust, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.update(parameter, group)

    def update(self, parameter: Tensor, group: dict) -> None:
        decay, gradient = group["weight_decay"], parameter.grad
        norm, gradient_norm = parameter.norm(), gradient.norm()
        ratio = group["trust"] * norm / (gradient_norm + decay * norm)
        rate = group["lr"] * torch.where(norm * gradient_norm * decay > 0, ratio, 1.0)
        velocity = self.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))
        velocity.mul_(group["momentum"]).add_(rate * (gradient + decay * parameter))
        parameter.sub_(velocity)
"#;
