"""The description of the optimizer in the JSON file, derived from the optimizer object."""

import inspect
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

_GROUP = ("params", "lr", "weight_decay")


def optimizer_class(name: str) -> type[torch.optim.Optimizer]:
    """The class of an optimizer of `--optimizer`."""
    if name in ("rmsprop_tf", "lamb"):
        from timm.optim import Lamb, RMSpropTF

        return RMSpropTF if name == "rmsprop_tf" else Lamb
    return {
        "sgd": torch.optim.SGD,
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "rmsprop": torch.optim.RMSprop,
        "adagrad": torch.optim.Adagrad,
    }[name]


def usual(name: str, setting: str) -> Any:
    """The value that an optimizer itself gives to a setting; None if it has no such setting."""
    known = inspect.signature(optimizer_class(name)).parameters
    return known[setting].default if setting in known else None


class _Rule(NamedTuple):
    """How a recipe names an optimizer and its settings."""

    name: str
    formula: str
    settings: tuple[str, ...]
    required: dict
    form: str | None = None


def _named(kind: type) -> str:
    """`torch.AdamW`, `timm.RMSpropTF`."""
    return f"{kind.__module__.partition('.')[0]}.{kind.__name__}"


_RULES = {
    "torch.AdamW": _Rule(
        "AdamW",
        "p *= 1 - lr*wd; m = b1*m + (1-b1)*g; v = b2*v + (1-b2)*g^2; p -= lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps)",
        ("eps",),
        {"amsgrad": False, "maximize": False},
    ),
    "torch.RMSprop": _Rule(
        "RMSprop",
        "g += wd*p; s = alpha*s + (1-alpha)*g^2; v = momentum*v + g / (sqrt(s) + eps); p -= lr*v",
        ("alpha", "eps", "momentum", "centered"),
        {"maximize": False},
        "pytorch",
    ),
    "timm.RMSpropTF": _Rule(
        "RMSprop",
        "g += wd*p; s = alpha*s + (1-alpha)*g^2, from 1; v = momentum*v + lr*g / sqrt(s + eps); p -= v",
        ("alpha", "eps", "momentum", "centered"),
        {"decoupled_decay": False, "corrected_weight_decay": False, "lr_in_momentum": True, "caution": False},
        "tensorflow",
    ),
    "timm.Lamb": _Rule(
        "LAMB",
        "m = b1*m + (1-b1)*g; v = b2*v + (1-b2)*g^2; u = m/(1-b1^t) / (sqrt(v)/sqrt(1-b2^t) + eps) + wd*p; "
        "p -= lr * |p|/|u| * u, without the ratio where wd is 0",
        ("eps",),
        {
            "bias_correction": True,
            "grad_averaging": True,
            "max_grad_norm": None,
            "trust_clip": False,
            "always_adapt": False,
            "caution": False,
            "decoupled_decay": False,
        },
    ),
    "torch.Adagrad": _Rule(
        "Adagrad",
        "g += wd*p; s = s + g^2; p -= lr/(1 + (t-1)*lr_decay) * g / (sqrt(s) + eps)",
        ("lr_decay", "initial_accumulator_value", "eps"),
        {"maximize": False},
    ),
}


def describe(optimizer: torch.optim.Optimizer, network: nn.Module, clip_grad_norm: float | None) -> dict:
    """The JSON's `optimizer`. Raises ValueError for a form the format has no rule for."""
    shared = _shared_settings(optimizer)
    if type(optimizer) is torch.optim.SGD:
        _require(shared, dampening=0, maximize=False)
        update = "(g + wd*p + momentum*v)" if shared["nesterov"] else "v"
        form: dict[str, Any] = {"kind": f"SGD: v = momentum*v + (g + wd*p); p -= lr*{update}; v starts as the first (g + wd*p)"}
        if shared["nesterov"]:
            form["nesterov"] = True
        form["momentum"] = shared["momentum"]
    elif type(optimizer) is torch.optim.Adam:
        _require(shared, amsgrad=False, maximize=False, decoupled_weight_decay=False)
        form = {
            "kind": "Adam: g += wd*p; m = b1*m + (1-b1)*g; v = b2*v + (1-b2)*g^2; p -= lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps)",
            "betas": list(shared["betas"]),
            "eps": shared["eps"],
        }
    elif rule := _RULES.get(_named(type(optimizer))):
        _require(shared, **rule.required)
        settings = dict(zip(("beta1", "beta2"), shared.get("betas", ()))) | {key: shared[key] for key in rule.settings}
        settings |= {"form": rule.form} if rule.form else {}
        form = {"kind": f"{rule.name}: {rule.formula}", "settings": settings}
    else:
        known = ", ".join(sorted(("torch.SGD", "torch.Adam", *_RULES)))
        raise ValueError(f"goldens support the optimizers {known}, not {_named(type(optimizer))}")
    names = {parameter: name for name, parameter in network.named_parameters()}
    form["clip_grad_norm"] = clip_grad_norm
    rates = [group["lr"] for group in optimizer.param_groups]
    if (base := optimizer.defaults["lr"]) in rates and base < max(rates):
        form["lr"] = base
    form["groups"] = [
        {
            "lr": group["lr"],
            "weight_decay": group["weight_decay"],
            "params": [names[parameter] for parameter in group["params"]],
        }
        for group in optimizer.param_groups
    ]
    return form


def section(optimizer: torch.optim.Optimizer, network: nn.Module) -> dict:
    """For the trace: the optimizer as recipes name it, with every setting, and the parameters without decay if others have some."""
    form = describe(optimizer, network, None)
    settings = {key: form[key] for key in ("momentum", "nesterov", "eps") if key in form}
    settings |= dict(zip(("beta1", "beta2"), form.get("betas", ()))) | form.get("settings", {})
    decay = max(group["weight_decay"] for group in form["groups"])
    kept = [group["params"] for group in form["groups"] if group["weight_decay"] != decay]
    name = form["kind"].partition(":")[0].lower()
    return {"optimizer": {name: settings | {"weight_decay": decay}}, "undecayed": [key for keys in kept for key in keys]}


def starts(optimizer: torch.optim.Optimizer, network: nn.Module) -> dict:
    """The JSON's `init` of what the optimizer keeps beside each parameter, where that does not start at zero."""
    settings = _shared_settings(optimizer)
    slots = {
        "timm.RMSpropTF": {"square_avg": 1.0},
        "torch.Adagrad": {"sum": float(np.float32(settings.get("initial_accumulator_value", 0.0)))},
    }.get(_named(type(optimizer)), {})
    return {f"{name}/{slot}": {"kind": "const", "value": value} for name, _ in network.named_parameters() for slot, value in slots.items() if value}


def _shared_settings(optimizer: torch.optim.Optimizer) -> dict:
    """The settings that must be one for all groups."""
    first, *others = ({k: v for k, v in group.items() if k not in _GROUP} for group in optimizer.param_groups)
    if any(other != first for other in others):
        raise ValueError("parameter groups of a golden can only differ in learning rate and weight decay")
    return first


def _require(settings: dict, **expected) -> None:
    for key, value in expected.items():
        if settings.get(key, value) != value:
            raise ValueError(f"a golden has no rule for {key}={settings[key]!r}")


def grouped(network: nn.Module, lr: float, weight_decay: float, decays) -> list[dict]:
    """Parameter groups with decay and without; `decays(module, parameter name)` chooses."""
    chosen: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    seen = set()
    for module in network.modules():
        for local, parameter in module.named_parameters(recurse=False):
            if parameter not in seen:  # one that modules share belongs to the first
                seen.add(parameter)
                (chosen if decays(module, local) else rest).append(parameter)
    groups = [(chosen, weight_decay), (rest, 0.0)]
    return [{"params": params, "lr": lr, "weight_decay": decay} for params, decay in groups if params]
