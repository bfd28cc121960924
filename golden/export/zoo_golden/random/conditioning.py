"""Whether a failed comparison is a fault: goldens record how much PyTorch's own step moves if inputs, parameters and results are moved in
their last place."""

import re

from ..rounding import LAST_PLACE
from .outcome import Kind

ALLOWED = 10.0
"""Times the largest movement of PyTorch's own step that an error may be, to be explained by it.

A right step is one more run whose roundings differ, with sums in another order: the factor is that of the check in f64 (golden/README.md). What
exceeds it there exceeds ten times the largest of the three runs of a golden, so that only more runs can explain it."""
MOVED_RUNS = 32
"""Runs by which a failed comparison is judged.

The heaviest movements are those of a quotient by a number near zero: they exceed t with a probability in proportion to 1/t. A run like the
others then exceeds ten times the largest of n with probability 1 / (10 (n + 1)): 2.5 % for 3 runs, 0.3 % for 32. Movements without such tails
do not come near it, so that 32 runs excuse hardly more than 3: a fault has no part in how far roundings reach."""
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
    if error is not None and error <= ALLOWED * moved:
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
