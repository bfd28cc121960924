"""What rounding does to a step: results of functions and their gradients, moved in their last place."""

from collections.abc import Callable

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

LAST_PLACE = 2.0**-52
"""Relative distance of neighbours in f64."""


def moves(seed: int, last_place: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Moves each element of an f64 tensor by this share of it, up or down by chance."""
    chance = torch.Generator().manual_seed(seed)

    def moved(values: torch.Tensor) -> torch.Tensor:
        up = torch.empty_like(values).random_(0, 2, generator=chance)  # with the order in memory of the values
        return values * (1 + last_place * (2 * up - 1))

    return moved


def is_real(result: object) -> bool:
    return isinstance(result, torch.Tensor) and result.is_floating_point()


def operand(args: tuple, kwargs: dict) -> tuple[torch.Tensor, tuple, dict]:
    """The operand of a call, which may be named, and its other arguments."""
    x, *rest = args or (kwargs["input"],)
    return x, tuple(rest), {key: value for key, value in kwargs.items() if key != "input"}


class Rounding(TorchFunctionMode):
    """Moves what functions compute, and the gradients of their results.

    Functions that use one intermediate result for many elements are computed step by step: its rounding does not average out.
    """

    def __init__(self, moved: Callable[[torch.Tensor], torch.Tensor]):
        super().__init__()
        self.moved = moved

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in _STEPS:
            x, rest, named = operand(args, kwargs)
            function(x.detach(), *rest, **named)  # for running statistics
            with self:
                return _STEPS[function](*args, **kwargs)
        if function is nn.functional.cross_entropy and kwargs.get("reduction", "mean") == "mean":
            logits, rest, kwargs = operand(args, kwargs)
            args = (self._with_probabilities(logits), *rest)
        result = function(*args, **kwargs)
        if getattr(function, "__name__", "") in _ROUND_NOTHING:
            return result
        known = {given.untyped_storage().data_ptr() for given in (*args, *kwargs.values()) if isinstance(given, torch.Tensor)}

        def rounded(value):
            # Views and results in place are no new values.
            if not is_real(value) or not known or value.untyped_storage().data_ptr() in known:
                return value
            value = self.moved(value)
            if value.requires_grad:
                value.register_hook(self.moved)
            return value

        return type(result)(map(rounded, result)) if type(result) in (tuple, list) else rounded(result)

    def _with_probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """Moves the probabilities p in the gradient p - y of a cross entropy. Where p is almost y, the difference consists of their
        rounding, which neither logits nor loss show: at a loss of 1e-8, the gradient has 8 digits in f64."""
        if not logits.requires_grad or logits.dim() == 1:
            return logits
        p = logits.detach().softmax(1)
        rounding = (self.moved(p) - p) * (p.shape[1] / p.numel())
        logits = logits.clone()
        # Targets that are ignored have a gradient of exactly zero.
        logits.register_hook(lambda gradient: gradient + rounding * (gradient != 0).any(1, keepdim=True))
        return logits


def _normalised(x, axes, eps, mean=None, variance=None):
    centred = x - (x.mean(axes, keepdim=True) if mean is None else mean)
    return centred * ((centred.square().mean(axes, keepdim=True) if variance is None else variance) + eps).rsqrt()


def _along(given, x):
    """A value per channel."""
    return given.reshape(-1, *[1] * (x.dim() - 2))


def _affine(x, weight, bias, channels=True):
    """With a parameter per channel, or parameters of the last axes."""
    for given, act in ((weight, torch.mul), (bias, torch.add)):
        if given is not None:
            x = act(x, _along(given, x) if channels else given)
    return x


def _layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    return _affine(_normalised(input, tuple(range(-len(normalized_shape), 0)), eps), weight, bias, channels=False)


def _rms_norm(input, normalized_shape, weight=None, eps=None):
    axes = tuple(range(-len(normalized_shape), 0))
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    return _affine(input * (input.square().mean(axes, keepdim=True) + eps).rsqrt(), weight, None, channels=False)


def _group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    groups = input.reshape(len(input), num_groups, -1)
    return _affine(_normalised(groups, -1, eps).reshape(input.shape), weight, bias)


def _instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5):
    known = () if use_input_stats else (_along(running_mean, input), _along(running_var, input))
    return _affine(_normalised(input, tuple(range(2, input.dim())), eps, *known), weight, bias)


def _batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    known = () if training else (_along(running_mean, input), _along(running_var, input))
    return _affine(_normalised(input, (0, *range(2, input.dim())), eps, *known), weight, bias)


_STEPS = {
    nn.functional.layer_norm: _layer_norm,
    nn.functional.rms_norm: _rms_norm,
    nn.functional.group_norm: _group_norm,
    nn.functional.instance_norm: _instance_norm,
    nn.functional.batch_norm: _batch_norm,
}
_ROUND_NOTHING = {
    *("__get__", "clone", "contiguous", "reshape", "flatten", "to", "float", "double", "type", "type_as", "copy_"),
    *("cat", "concat", "concatenate", "stack", "hstack", "vstack", "repeat", "repeat_interleave", "tile", "roll", "flip", "rot90"),
    *("pad", "__getitem__", "gather", "index_select", "embedding", "take", "take_along_dim", "unfold", "where", "masked_fill"),
    *("relu", "relu6", "threshold", "hardtanh", "abs", "neg", "__neg__", "sign", "clamp", "clamp_min", "clamp_max", "tril", "triu"),
    *("max", "min", "amax", "amin", "maximum", "minimum", "topk", "sort", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle"),
    *(f"{kind}max_pool{axes}d" for kind in ("", "adaptive_") for axes in (1, 2, 3)),
    *(f"{made}_like" for made in ("zeros", "ones", "full", "empty")),
    *(f"new_{made}" for made in ("zeros", "ones", "full", "empty", "tensor")),
}
"""Functions whose results are operands or constants, unrounded."""
