//! Optimizers with PyTorch's formulas, and what their slots are called in MindSpore.

/// The class of an optimizer of PyTorch, or of a program, and its text.
pub(crate) fn optimizer(class: &str) -> Result<(&'static str, Option<&'static str>), String> {
    match class {
        "torch.optim.SGD" => Ok(("Sgd", Some(SGD))),
        "torch.optim.Adam" => Ok(("Adam", Some(ADAM))),
        "torch.optim.AdamW" => Ok(("AdamW", Some(ADAMW))),
        "torch.optim.RMSprop" => Ok(("RmsProp", Some(RMSPROP))),
        "Lamb" => Ok(("Lamb", Some(LAMB))),
        other => Err(super::unwritten(other)),
    }
}

/// The base of all.
pub(crate) const RULE: &str = r#"
class Rule:
    """An update rule: parameters in groups with their own decay, and what it keeps of each in slots."""

    def __init__(self, params: Sequence, lr: float, weight_decay: float, slots: Sequence[str]) -> None:
        groups = params if isinstance(params[0], dict) else [{"params": params}]
        self.param_groups = [{"lr": lr, "weight_decay": weight_decay, **group} for group in groups]
        self.parameters = ParameterTuple([parameter for group in groups for parameter in group["params"]])
        self.slots = [self.parameters.clone(slot, "zeros") for slot in slots]
        self.done = 0

    def get_parameters(self) -> list[Parameter]:
        """What it keeps."""
        return [kept for slot in self.slots for kept in slot]

    def __call__(self, gradients: Sequence[Tensor]) -> None:
        """Takes a step; the gradients are in the order of the parameters."""
        self.done += 1
        rows = iter(zip(self.parameters, gradients, *self.slots, strict=True))
        for group in self.param_groups:
            for _ in group["params"]:
                self.update(group, *next(rows))

    def update(self, group: dict, parameter: Parameter, gradient: Tensor, *slots: Parameter) -> None:
        raise NotImplementedError
"#;

const SGD: &str = r#"
class Sgd(Rule):
    """Gradient descent with momentum; the decay is a part of the gradient."""

    def __init__(
        self, params: Sequence, lr: float, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, lr, weight_decay, ["moments"] if momentum else [])
        self.momentum, self.nesterov = momentum, nesterov

    def update(self, group: dict, parameter: Parameter, gradient: Tensor, *slots: Parameter) -> None:
        gradient = gradient + group["weight_decay"] * parameter
        for moments in slots:
            ops.assign(moments, self.momentum * moments + gradient)
            gradient = gradient + self.momentum * moments if self.nesterov else moments
        ops.assign(parameter, parameter - group["lr"] * gradient)
"#;

const ADAM: &str = r#"
class Adam(Rule):
    """Adam with eps beside the corrected root; the decay is a part of the gradient."""

    def __init__(
        self, params: Sequence, lr: float, betas: tuple[float, float], eps: float, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, lr, weight_decay, ["moment1", "moment2"])
        self.betas, self.eps = betas, eps

    def update(self, group: dict, parameter: Parameter, gradient: Tensor, *slots: Parameter) -> None:
        (first, second), (beta1, beta2) = slots, self.betas
        gradient = gradient + group["weight_decay"] * parameter
        ops.assign(first, first + (1 - beta1) * (gradient - first))
        ops.assign(second, beta2 * second + (1 - beta2) * gradient * gradient)
        root = ops.sqrt(second) / math.sqrt(1 - beta2**self.done) + self.eps
        ops.assign(parameter, parameter - group["lr"] / (1 - beta1**self.done) * first / root)
"#;

const ADAMW: &str = r#"
class AdamW(Rule):
    """Adam with eps beside the corrected root, and decay apart from the gradient."""

    def __init__(
        self, params: Sequence, lr: float, betas: tuple[float, float], eps: float, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, lr, weight_decay, ["moment1", "moment2"])
        self.betas, self.eps = betas, eps

    def update(self, group: dict, parameter: Parameter, gradient: Tensor, *slots: Parameter) -> None:
        (first, second), (beta1, beta2) = slots, self.betas
        ops.assign(first, first + (1 - beta1) * (gradient - first))
        ops.assign(second, beta2 * second + (1 - beta2) * gradient * gradient)
        root = ops.sqrt(second) / math.sqrt(1 - beta2**self.done) + self.eps
        decayed = parameter * (1 - group["lr"] * group["weight_decay"])
        ops.assign(parameter, decayed - group["lr"] / (1 - beta1**self.done) * first / root)
"#;

const RMSPROP: &str = r#"
class RmsProp(Rule):
    """Gradients by the root of their average square, eps beside the root; the decay is a part of the gradient."""

    def __init__(
        self,
        params: Sequence,
        lr: float,
        alpha: float,
        eps: float,
        momentum: float = 0.0,
        centered: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        slots = ["mean_square", *["moments"] * (momentum > 0), *["mean_grad"] * centered]
        super().__init__(params, lr, weight_decay, slots)
        self.alpha, self.eps, self.momentum, self.centered = alpha, eps, momentum, centered

    def update(self, group: dict, parameter: Parameter, gradient: Tensor, *slots: Parameter) -> None:
        gradient = gradient + group["weight_decay"] * parameter
        square, *others = slots
        ops.assign(square, self.alpha * square + (1 - self.alpha) * gradient * gradient)
        spread = square
        if self.centered:
            mean = others.pop()
            ops.assign(mean, mean + (1 - self.alpha) * (gradient - mean))
            spread = square - mean * mean
        step = gradient / (ops.sqrt(spread) + self.eps)
        for moments in others:
            ops.assign(moments, self.momentum * moments + step)
            step = moments
        ops.assign(parameter, parameter - group["lr"] * step)
"#;

const LAMB: &str = r#"
class Lamb(Rule):
    """Adam with decay and a step per tensor in proportion to its norm (arXiv 1904.00962); tensors without decay take
    the step of Adam."""

    def __init__(
        self, params: Sequence, lr: float, betas: tuple[float, float], eps: float, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, lr, weight_decay, ["moment1", "moment2"])
        self.betas, self.eps = betas, eps

    def update(self, group: dict, parameter: Parameter, gradient: Tensor, *slots: Parameter) -> None:
        (first, second), (beta1, beta2) = slots, self.betas
        decay = group["weight_decay"]
        ops.assign(first, first + (1 - beta1) * (gradient - first))
        ops.assign(second, beta2 * second + (1 - beta2) * gradient * gradient)
        root = ops.sqrt(second) / math.sqrt(1 - beta2**self.done) + self.eps
        direction = first / (1 - beta1**self.done) / root + decay * parameter
        norm, length = ops.sqrt((parameter * parameter).sum()), ops.sqrt((direction * direction).sum())
        ratio = ops.where(norm * length * decay > 0, norm / length, ops.ones_like(norm))
        ops.assign(parameter, parameter - group["lr"] * ratio * direction)
"#;

/// As `torch.nn.utils.clip_grad_norm_`.
pub(crate) const CLIPPED_NORM: &str = r#"
def clipped(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Gradients, made smaller if their norm over all parameters is more than BOUND."""
    norm = ops.sqrt(sum((gradient * gradient).sum() for gradient in gradients))
    factor = ops.minimum(BOUND / (norm + 1e-6), 1.0)
    return [gradient * factor for gradient in gradients]
"#;

/// As `torch.nn.utils.clip_grad_value_`.
pub(crate) const CLIPPED_VALUE: &str = r#"
def clipped(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Gradients, each number of which is at most BOUND."""
    return [gradient.clip(-BOUND, BOUND) for gradient in gradients]
"#;

/// Moving averages (`train.ema`).
pub(crate) const AVERAGE: &str = r#"
class Average:
    """The moving average of the parameters."""

    def __init__(self, network: nn.Cell) -> None:
        self.own = ParameterTuple(list(parameters(network).values()))
        self.kept = self.own.clone("average", "same")

    def follow(self, done: int) -> None:
        """Moves towards the parameters after `done` updates."""
        decay = DECAY
        for kept, parameter in zip(self.kept, self.own, strict=True):
            ops.assign(kept, kept + (1 - decay) * (parameter - kept))
"#;
