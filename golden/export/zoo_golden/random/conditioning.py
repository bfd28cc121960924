"""Whether a failed comparison is a fault: goldens record how much PyTorch's own step moves if inputs, parameters and results are moved in
their last place."""

import re

from ..rounding import LAST_PLACE
from .outcome import Kind

SHARE = 0.25
"""Part of the error by which PyTorch's own step must move, to explain it."""
LAST_PLACES = {"f64": LAST_PLACE, "f32": 2.0**-24}
"""Relative size of a rounding."""


def judge(failed: list[dict], golden: dict) -> tuple[Kind, str]:
    """The kind of a failure, from the worst tensor of each failed stage and a golden whose moved runs round as the failed one does."""
    kinds = []
    for stage in failed:
        worst = stage["worst"]
        if worst is None or worst.get("note"):
            return Kind.WRONG, "no measure"
        kinds.append(_of_tensor(stage["stage"], worst["name"], worst["error"], golden))
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
_LOSS = re.compile(r"(\w+)(?: of step (\d+))?")


def _of_tensor(stage: str, name: str, error: float | None, golden: dict) -> tuple[Kind, str]:
    parameter, _, slot = name.rpartition("/")
    keys = [f"{prefix}{name}" for prefix in KEYS.get(stage, ())]
    if slot and stage == "update":
        keys.append(f"{'momentum' if slot == 'momentum_buffer' else slot}1/{parameter}")
    facts = next((golden["tensors"][key] for key in keys if key in golden["tensors"]), None) or _of_loss(name, golden)
    if facts is None:
        return Kind.WRONG, f"no facts of {name}"
    moved = max(facts.get("f64_rel", 0.0), facts.get("delta_f64_rel", 0.0))
    if error is not None and moved >= SHARE * error:
        return Kind.ILL, f"PyTorch's own step moves by {moved:.1e}"
    trained = parameter if slot and parameter else name
    gradient = golden["tensors"].get(f"grad/{trained}", {}).get("f32_rel", 0)
    rounded = max(facts.get("f32_rel", 0.0), facts.get("delta_f32_rel", 0.0))
    if facts.get("l2") == 0 or gradient >= LOST or rounded >= LOST:
        return Kind.FALSE, f"f32_rel {rounded:.1e}, l2 {facts.get('l2')}, of the gradient {gradient:.1e}"
    return Kind.WRONG, f"PyTorch's own step moves by {moved:.1e}"


def _of_loss(name: str, golden: dict) -> dict | None:
    """Facts of a loss or of the norm of the gradients."""
    found = _LOSS.fullmatch(name)
    step = int(found[2] or 1) - 1 if found else 0
    if not found or found[1] not in golden["losses_f64"][step]:
        return None
    moved = golden.get("losses_moved", golden["losses_f64"])
    truth, moved = golden["losses_f64"][step][found[1]], moved[step][found[1]]
    return {"f64_rel": abs(moved - truth) / (abs(truth) or 1.0)}
