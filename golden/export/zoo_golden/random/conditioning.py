"""Whether a failed check is a fault: PyTorch's own step is repeated with inputs, parameters and results moved in their last place."""

from argparse import Namespace

from .outcome import Kind

DRAWS = 4
"""Steps that are moved, each by other signs."""
SHARE = 0.25
"""Part of the error by which PyTorch's own step must move, to explain it."""


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
    if facts["l2"] == 0 or facts["f32_rel"] >= 0.5 or gradient.get("f32_rel", 0) >= 0.5 or facts.get("delta_f32_rel", 0) >= 0.5:
        return Kind.FALSE, f"f32_rel {facts['f32_rel']:.1e}, l2 {facts['l2']:.1e}, of the gradient {gradient.get('f32_rel')}"
    moved = max(facts.get("f64_rel", 0.0), facts.get("delta_f64_rel", 0.0))
    if dtype == "f64" and error is not None and moved >= SHARE * error:
        return Kind.ILL, f"PyTorch's own step moves by {moved:.1e}"
    return Kind.WRONG, f"PyTorch's own step moves by {moved:.1e}"
