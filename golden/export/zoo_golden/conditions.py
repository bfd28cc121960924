"""The conditions of a golden: hash weights in place of a weight file, hash inputs in place of data."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import torch
from torch import nn

from .hashes import hashes, signed

NORMALISATIONS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm)
TRANSPOSED = nn.modules.conv._ConvTransposeNd
SMALL = np.float32(0.1)
"""Bound of biases, and the spread of normalisation weights about one."""

Gain = Callable[[str], float]
"""Scale of a parameter's initial values by its state_dict name; keeps losses and rounding in bounds over three steps."""


def gain_rules(rules: Iterable[tuple[str, float]]) -> Gain:
    """A gain from (shell pattern, value) pairs over parameter names; the last match wins, without a match it is 1."""
    rules = list(rules)

    def gain(name: str) -> float:
        return next((value for pattern, value in reversed(rules) if fnmatchcase(name, pattern)), 1.0)

    return gain


@torch.no_grad()
def fill(network: nn.Module, salt: str, gain: Gain) -> dict:
    """Overwrites all parameters and running statistics; returns the JSON's `init`, a rule per tensor in state_dict order.

    A parameter that several modules share has the name of the first.
    """
    init, names = {}, {parameter: name for name, parameter in network.named_parameters()}
    for prefix, module in network.named_modules():
        for local, parameter in module.named_parameters(recurse=False):
            name = f"{prefix}.{local}" if prefix else local
            if names[parameter] != name:
                continue
            init[name], values = _parameter(module, local, tuple(parameter.shape), salt + name, gain(name))
            parameter.copy_(torch.from_numpy(values))
        for local, value in (("running_mean", 0.0), ("running_var", 1.0)):
            buffer = getattr(module, local, None)
            if buffer is not None:
                name = f"{prefix}.{local}" if prefix else local
                init[name] = {"kind": "const", "value": value}
                buffer.fill_(value)
    return init


def _parameter(module: nn.Module, local: str, shape: tuple[int, ...], key: str, gain: float) -> tuple[dict, np.ndarray]:
    """Rule and f32 values of one parameter; one rounding to f32 per operation."""
    s = signed(key, shape)
    normalises = isinstance(module, NORMALISATIONS)
    if normalises and local == "weight":
        gain = np.float32(gain)
        rule = {"kind": "one_plus", "bound": float(SMALL), "gain": float(gain)}
        return rule, gain * (np.float32(1.0) + SMALL * s)
    if len(shape) < 2:
        bound = np.float32(0.1 * float(np.float32(gain))) if normalises else SMALL
        return {"kind": "uniform", "bound": float(bound)}, s * bound
    fan_in = shape[0] if isinstance(module, TRANSPOSED) else int(np.prod(shape[1:]))
    bound = np.float32(gain * np.sqrt(6.0 / fan_in))
    return {"kind": "uniform", "fan_in": fan_in, "gain": gain, "bound": float(bound)}, s * bound


@torch.no_grad()
def lift(network: nn.Module, gain: Gain) -> bool:
    """Adds f32(4 * gain) to every normalisation bias, so that hardly a ReLU input is near zero. False if there is none,
    or if a ReLU is bounded: that only moves inputs from its lower corner to its upper one."""
    if any(isinstance(module, (nn.ReLU6, nn.Hardtanh)) for module in network.modules()):
        return False
    lifted = False
    for prefix, module in network.named_modules():
        if isinstance(module, NORMALISATIONS) and module.bias is not None:
            module.bias.add_(float(np.float32(4.0 * gain(f"{prefix}.bias"))))
            lifted = True
    return lifted


@dataclass(frozen=True)
class Input:
    """A named input of the step. `stored`: the values go into the file; otherwise `rule` must say how to make them."""

    values: torch.Tensor
    rule: str | None = None
    stored: bool = True


def image(shape: tuple[int, ...], salt: str = "", name: str = "image") -> Input:
    """2 * s, in [-2, 2): about the range of normalised pixels."""
    values = np.float32(2.0) * signed(f"{salt}input.{name}", shape)
    return Input(torch.from_numpy(values), f"image[-2,2) of 'input.{name}'", stored=False)


def labels(shape: int | tuple[int, ...], classes: int, salt: str = "", name: str = "label") -> Input:
    """h mod classes."""
    values = (hashes(f"{salt}input.{name}", int(np.prod(shape))) % np.uint64(classes)).astype(np.int64)
    return Input(torch.from_numpy(values.reshape(shape)), f"h % {classes} of 'input.{name}'")
