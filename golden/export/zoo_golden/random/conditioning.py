"""Whether a failed comparison is a fault: goldens record how much PyTorch's own step moves if inputs, parameters and results are moved in
their last place."""

from argparse import Namespace

import torch
from torch import nn

from .outcome import Kind

SHARE = 0.25
"""Part of the error by which PyTorch's own step must move, to explain it."""


LAST_PLACE = 2.0**-24
"""Rounding in f32."""


def moved_inputs(network: nn.Module) -> nn.Module:
    """The same network, whose innermost modules get operands that are moved in the last place of f32: what an evaluation in f32 may give."""
    chance = torch.Generator().manual_seed(0)

    def moved(module: nn.Module, arguments: tuple) -> tuple:
        return tuple(_moved(value, chance) for value in arguments)

    for module in network.modules():
        if not any(module.children()):
            module.register_forward_pre_hook(moved)
    return network


def _moved(value: object, chance: torch.Generator) -> object:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    up = torch.randint(0, 2, value.shape, generator=chance, dtype=value.dtype)
    return value * (1 + LAST_PLACE * (2 * up - 1))


def judge(failed: list[dict], document: dict, options: Namespace, dtype: str) -> tuple[Kind, str]:
    """The kind of a failure, from the worst tensor of each failed stage."""
    kinds = []
    for stage in failed:
        worst = stage["worst"]
        if worst is None or worst.get("note"):
            return Kind.WRONG, "no measure"
        kinds.append(_of_tensor(stage["stage"], worst, document, dtype))
    for kind in (Kind.WRONG, Kind.FALSE, Kind.ILL):
        for found, why in kinds:
            if found is kind:
                return kind, why
    return Kind.WRONG, "nothing failed"


LOST = 0.5
"""Error in f32 from which on f32 has no digit of a tensor."""
KEYS = {
    "forward": ("out/",),
    "backward": ("grad/",),
    "update": ("param1/", "buffer1/"),
    "trajectory": ("param3/", "buffer3/"),
}


def _of_tensor(stage: str, worst: dict, document: dict, dtype: str) -> tuple[Kind, str]:
    name, error = worst["name"], worst["error"]
    parameter, _, slot = name.rpartition("/")
    keys = [f"{prefix}{name}" for prefix in KEYS.get(stage, ())]
    if slot and stage == "update":
        keys.append(f"{'momentum' if slot == 'momentum_buffer' else slot}1/{parameter}")
    facts = next((document["tensors"][key] for key in keys if key in document["tensors"]), None)
    if facts is None:
        return Kind.WRONG, f"no facts of {name}"
    trained = parameter if slot and parameter else name
    gradient = document["tensors"].get(f"grad/{trained}", {})
    moved = max(facts.get("f64_rel", 0.0), facts.get("delta_f64_rel", 0.0))
    if dtype == "f64" and error is not None and moved >= SHARE * error:
        return Kind.ILL, f"PyTorch's own step moves by {moved:.1e}"
    if facts["l2"] == 0 or gradient.get("f32_rel", 0) >= LOST or max(facts["f32_rel"], facts.get("delta_f32_rel", 0)) >= LOST:
        return Kind.FALSE, f"f32_rel {facts['f32_rel']:.1e}, l2 {facts['l2']:.1e}, of the gradient {gradient.get('f32_rel')}"
    return Kind.WRONG, f"PyTorch's own step moves by {moved:.1e}"
