"""The folder that the recorders of this package write for `zoo judge`: step.safetensors, and capture.json about it."""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

FORMAT = 1
"""Version of `capture.json`."""


def of_step(folder: str | Path, step: int | None) -> Path:
    """The folder of a step: `step0`, `step1` and so on in the given one, or the given one itself if only one step is recorded."""
    return Path(folder) if step is None else Path(folder) / f"step{step}"


def describe(folder: Path, made_with: Mapping[str, str], device: str, loss_scale: float, tensors: Mapping[str, dict], ranks: dict | None = None) -> None:
    """Writes capture.json: who recorded what, the factor on the gradients, the rank among several, and every tensor as
    [`described`]."""
    about = {"zoo_capture": FORMAT, "made_with": dict(made_with), "device": device, "loss_scale": loss_scale}
    about |= {} if ranks is None else {"ranks": ranks}
    about["tensors"] = dict(tensors)
    (folder / "capture.json").write_text(json.dumps(about) + "\n")


def described(shape: Iterable[int], statistics: Mapping[str, float]) -> dict:
    """Shape and statistics (max, min, mean, norm), by which `zoo judge` knows files of different runs; null stands for what is not
    finite."""
    return {"shape": list(shape), **{key: value if math.isfinite(value) else None for key, value in statistics.items()}}
