"""The folder that the recorders of this package write for `zoo judge`: step.safetensors, and capture.json about it."""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

FORMAT = 1
"""Version of `capture.json`."""


def describe(folder: Path, made_with: Mapping[str, str], device: str, tensors: Mapping[str, dict]) -> None:
    """Writes capture.json: who recorded what, and every tensor as [`described`]."""
    about = {"zoo_capture": FORMAT, "made_with": dict(made_with), "device": device, "tensors": dict(tensors)}
    (folder / "capture.json").write_text(json.dumps(about) + "\n")


def described(shape: Iterable[int], statistics: Mapping[str, float]) -> dict:
    """Shape and statistics (max, min, mean, norm), by which `zoo judge` knows files of different runs; null stands for what is not
    finite."""
    return {"shape": list(shape), **{key: value if math.isfinite(value) else None for key, value in statistics.items()}}
