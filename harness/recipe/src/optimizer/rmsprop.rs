//! RMSprop, in the forms of `torch.optim.RMSprop` and of TensorFlow 1 (`tf.compat.v1.train.RMSPropOptimizer`), with
//! which MobileNets and EfficientNets were trained.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{
    formula::{Expression, UpdateOperands},
    ops::{DecayTerm, LongestStep},
};

use super::{Rule, Slot, UsualRate, Written, real};

settings! {
    /// The gradient divided by the root of a moving average of its square.
    RmsProp {
        /// Share of the average square that is kept (`decay` in TensorFlow).
        #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
        alpha: f64 = 0.99,
        /// Added to the denominator.
        #[schemars(extend("exclusiveMinimum" = 0))]
        eps: f64 = 1e-8,
        /// Momentum: the share of the previous velocity that is kept.
        #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
        momentum: f64 = 0.0,
        /// Whether to divide by the standard deviation of the gradient instead of the root of its mean square.
        centered: bool = false,
        /// Variant.
        form: RmsForm = RmsForm::Pytorch,
    }
    /// Weight decay: the parameter times this is added to its gradient.
    weight_decay = 0.0
}

/// The variants of PyTorch and TensorFlow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RmsForm {
    /// sqrt(s) + eps; s starts at 0; p -= lr*v.
    #[default]
    Pytorch,
    /// sqrt(s + eps); s starts at 1; the learning rate is applied before the momentum: v = momentum*v + lr*d, p -= v.
    Tensorflow,
}

/// The last step in which the longest step is needed: goldens have three.
const LAST_STEP: i32 = 3;

impl Rule for RmsProp {
    fn device(&self) -> &'static str {
        "ApplyRmsProp"
    }

    fn slots(&self) -> Vec<Slot> {
        let start = match self.form {
            RmsForm::Pytorch => 0.0,
            RmsForm::Tensorflow => 1.0,
        };
        let mut slots = vec![Slot { name: "square_avg", start }];
        slots.extend(self.centered.then_some(Slot::zero("grad_avg")));
        slots.extend((self.momentum > 0.0).then_some(Slot::zero("momentum_buffer")));
        slots
    }

    fn next<'f>(&self, at: UpdateOperands<'f>) -> Vec<Expression<'f>> {
        let fresh = 1.0 - self.alpha;
        let d = at.gradient + at.weight_decay * at.parameter;
        let square = self.alpha * at.slots[0] + fresh * d * d;
        let mut next = vec![square];
        let mut variance = square;
        if self.centered {
            let mean = at.slots[1] + fresh * (d - at.slots[1]);
            variance = square - mean * mean;
            next.push(mean);
        }
        let denominator = match self.form {
            RmsForm::Pytorch => variance.sqrt() + self.eps,
            RmsForm::Tensorflow => (variance + self.eps).sqrt(),
        };
        let (inner_rate, outer_rate) = match self.form {
            RmsForm::Pytorch => (d.number(1.0), at.learning_rate),
            RmsForm::Tensorflow => (at.learning_rate, d.number(1.0)),
        };
        let mut step = inner_rate * d / denominator;
        if self.momentum > 0.0 {
            let velocity = at.slots[at.slots.len() - 1];
            step = self.momentum * velocity + step;
            next.push(step);
        }
        next.insert(0, at.parameter - outer_rate * step);
        next
    }

    fn emit(&self) -> Written {
        let mut arguments = vec![("alpha", real(self.alpha)), ("eps", real(self.eps))];
        arguments.extend((self.momentum != 0.0).then(|| ("momentum", real(self.momentum))));
        arguments.extend(self.centered.then(|| ("centered", "True".to_owned())));
        match self.form {
            RmsForm::Pytorch => Written::class("torch.optim.RMSprop", arguments),
            RmsForm::Tensorflow => Written { class: "RmsPropTensorflow", arguments, text: Some(TENSORFLOW) },
        }
    }

    fn decay_term(&self) -> DecayTerm {
        DecayTerm::InGradient
    }

    /// The gradient is at most `1 / sqrt(1 - alpha)` times the root of the average square. Its variance is smallest if
    /// all gradients before it were equal and a little smaller: in step t it is at least alpha^t (1 - alpha) / (1 -
    /// alpha + alpha^t) times its square.
    fn longest(&self, _weight_decay: f64) -> LongestStep {
        let fresh = 1.0 - self.alpha;
        let kept = self.alpha.powi(LAST_STEP);
        let least = if self.centered { kept * fresh / (fresh + kept) } else { fresh };
        LongestStep::Rates(1.0 / (least.sqrt() * (1.0 - self.momentum)))
    }

    fn usual_rate(&self) -> UsualRate {
        UsualRate::About { rate: 1e-2, of: "RMSprop", source: "0.01 (PyTorch's default), 0.045 (arXiv 1801.04381)" }
    }
}

/// The form of TensorFlow as a class.
const TENSORFLOW: &str = r#"
class RmsPropTensorflow(torch.optim.Optimizer):
    """RMSprop as in TensorFlow: eps inside the root, averages of squares start at 1, velocities include the rate."""

    def __init__(
        self,
        params: Iterable[dict],
        lr: float,
        alpha: float = 0.9,
        eps: float = 1e-8,
        momentum: float = 0.0,
        centered: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        settings = {"alpha": alpha, "eps": eps, "momentum": momentum, "centered": centered}
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, **settings})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.update(parameter, group)

    def update(self, parameter: Tensor, group: dict) -> None:
        state = self.state[parameter]
        gradient = parameter.grad.add(parameter, alpha=group["weight_decay"])
        square = state.setdefault("square_avg", torch.ones_like(parameter))
        square.mul_(group["alpha"]).addcmul_(gradient, gradient, value=1 - group["alpha"])
        variance = square
        if group["centered"]:
            mean = state.setdefault("grad_avg", torch.zeros_like(parameter)).lerp_(gradient, 1 - group["alpha"])
            variance = square - mean.square()
        step = group["lr"] * gradient / torch.sqrt(variance + group["eps"])
        if group["momentum"]:
            velocity = state.setdefault("momentum_buffer", torch.zeros_like(parameter))
            step = velocity.mul_(group["momentum"]).add_(step)
        parameter.sub_(step)
"#;
