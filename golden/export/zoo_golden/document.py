"""Statistics, samples and noise floors of recorded tensors, and the two files they go into."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save

from .hashes import sample_positions

IN_ORDER = 64
"""Tensors of at most this many elements are stored whole, in order."""
ROOT_SAMPLES = 4096
"""The same for outputs of the whole network, which keep their shape; also their number of samples when larger."""
_DEGENERATE = 1e-10
"""A gradient below this fraction of the median gradient is rounding: its exact value is zero."""
_F64_OF_F32 = 2.0**-29
"""Rounding in f64, relative to that in f32."""
_TELLS = 1e-10
"""A tenth of the tolerance in f64: smaller distances of the moved run decide nothing and are left out."""


class Recording:
    """The tensors of one run (or variant), each from f64 with its distance from the f32 runs."""

    def __init__(self, samples: int = IN_ORDER):
        self.samples = samples
        self.entries: dict[str, dict] = {}
        self.data: dict[str, np.ndarray] = {}

    @torch.no_grad()
    def add(
        self,
        key: str,
        truth: torch.Tensor,
        rounded: list[torch.Tensor],
        moved: Sequence[torch.Tensor] = (),
        start: torch.Tensor | None = None,
        kind: str | None = None,
    ):
        """Records `truth` (f64), its largest distance from `rounded` (f32 runs) and from `moved` (f64 runs moved in their last
        place), and with `start` the change since then."""
        truth = truth.detach()
        norm, largest = truth.norm().item(), truth.abs().max().item()
        error, error_max = 0.0, 0.0
        for values in rounded:
            difference = values.detach().double() - truth
            error = max(error, difference.norm().item())
            error_max = max(error_max, difference.abs().max().item())
        entry = {
            "shape": list(truth.shape),
            "mean": truth.mean().item(),
            "std": truth.std(correction=0).item(),
            "absmax": largest,
            "l2": norm,
        }
        if kind:
            entry["class"] = kind
        entry["stored"], self.data[key] = self._values(key, truth)
        if start is not None:
            delta = truth - start.double()
            entry["delta_l2"] = delta.norm().item()
            entry["delta_absmax"] = delta.abs().max().item()
            entry["delta_mean"] = delta.mean().item()
        entry["f32_rel"] = _ratio(error, norm)
        entry["f32_max"] = _ratio(error_max, largest)
        if start is not None:
            entry["delta_f32_rel"] = _ratio(error, entry["delta_l2"])
        distance = max(((values.detach() - truth).norm().item() for values in moved), default=0.0)
        if norm == 0 and (distance or error):
            entry["rounding_l2"] = max(distance, error * _F64_OF_F32)
        for figure, scale in (("f64_rel", norm), ("delta_f64_rel", entry.get("delta_l2", 0.0))):
            if tells(distance, scale):
                entry[figure] = distance / scale
        self.entries[key] = entry

    def _values(self, key: str, tensor: torch.Tensor) -> tuple[str, np.ndarray]:
        flat = tensor.reshape(-1)
        of_network = key.startswith("out/@root#")
        if of_network and flat.numel() <= ROOT_SAMPLES:
            return "full", flat.numpy().reshape(tensor.shape or (1,)).copy()
        if flat.numel() <= IN_ORDER:
            return "samples", flat.numpy().copy()
        count = ROOT_SAMPLES if of_network else self.samples
        return "samples", flat[torch.from_numpy(sample_positions(key, flat.numel(), count))].numpy()

    def mark_degenerate(self):
        """Flags gradients whose exact value is zero, leaving only rounding."""
        gradients = {key: entry for key, entry in self.entries.items() if key.startswith("grad/")}
        typical = float(np.median([entry["l2"] / math.sqrt(math.prod(entry["shape"])) for entry in gradients.values()]))
        for entry in gradients.values():
            rounding_only = entry["absmax"] <= _DEGENERATE * typical
            if rounding_only and (entry["l2"] > 0 or entry["f32_rel"] > 0):
                entry["degenerate"] = True

    def noise_floor(self) -> dict:
        """Per kind of tensor, how far plain f32 is from f64; degenerate tensors left out."""
        groups: dict[str, dict[str, float]] = {}
        for key, entry in self.entries.items():
            kind, name = key.split("/", 1)
            if not entry.get("degenerate"):
                groups.setdefault(kind, {})[name] = entry["f32_rel"]
                if "delta_f32_rel" in entry:
                    groups.setdefault(kind + "_delta", {})[name] = entry["delta_f32_rel"]
        return {kind: _summary(floors) for kind, floors in groups.items()}


def tells(error: float, scale: float) -> bool:
    """Whether a distance of the moved run is large enough to say that a step is badly conditioned."""
    return abs(error) >= _TELLS * abs(scale) > 0


def _ratio(error: float, scale: float) -> float:
    """error / scale; where the truth is all zero, 0 if the error is zero too and 1 otherwise."""
    if scale:
        return error / scale
    return 1.0 if error else 0.0


def _summary(floors: dict[str, float]) -> dict:
    ascending = sorted(floors, key=floors.get)
    return {
        "count": len(floors),
        "median": float(np.median(list(floors.values()))),
        "max": floors[ascending[-1]],
        "max_at": ascending[-1],
        "over_1e-3": [name for name in ascending if floors[name] > 1e-3],
    }


def compact(values: torch.Tensor) -> np.ndarray:
    """An input as it is stored: i8 or i32 where integral, else as it is."""
    array = values.numpy()
    if array.dtype == np.int64:
        return array.astype(np.int32)
    if array.size and np.all(array == np.rint(array)) and np.abs(array).max() <= 127:
        return array.astype(np.int8)
    return array.copy()


def write(path: Path, document: dict, data: dict[str, np.ndarray]) -> None:
    """`path`.json and `path`.safetensors. NaN and infinity are refused: a golden cannot hold them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    path.with_name(path.name + ".safetensors").write_bytes(save({key: np.ascontiguousarray(v) for key, v in data.items()}))
    path.with_name(path.name + ".json").write_text(text)
