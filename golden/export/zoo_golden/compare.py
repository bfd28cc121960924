"""python -m zoo_golden.compare A B: the distance between two goldens of the same conditions (paths without extension)."""

import argparse
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

CONDITIONS = (
    "salt", "optimizer", "hyper", "parameter_count", "bn", "hash_vectors", "inputs", "shapes", "init",
    "running_stats_start", "parameters_without_gradient", "output_order",
)  # fmt: skip
STATISTICS = ("mean", "std", "absmax", "l2", "delta_l2", "delta_absmax", "delta_mean")
FLOORS = ("f32_rel", "delta_f32_rel")
CONDITIONING = ("f64_rel", "delta_f64_rel", "losses_moved")
"""Written where they are large; goldens from before have none."""


@dataclass
class Difference:
    """Worst values over all tensors, and everything that should be equal and is not."""

    unequal: list[str] = field(default_factory=list)
    samples: tuple[float, str] = (0.0, "")
    statistics: tuple[float, str] = (0.0, "")
    losses: tuple[float, str] = (0.0, "")
    degenerate: tuple[float, str] = (0.0, "")
    floor_ratios: list[float] = field(default_factory=list)
    tensors: int = 0

    def worst(self, what: str, error: float, where: str) -> None:
        if not error <= getattr(self, what)[0]:
            setattr(self, what, (error, where))

    def __str__(self) -> str:
        lines = [f"{self.tensors} tensors"]
        for what in ("samples", "statistics", "losses", "degenerate"):
            error, where = getattr(self, what)
            lines.append(f"  {what:10} {error:.2e}  {where}")
        low, median, high = np.percentile(self.floor_ratios, (0, 50, 100))
        lines.append(f"  f32 floors of A over those of B: {low:.2f} to {high:.2f}, median {median:.2f}")
        return "\n".join(lines + [f"  UNEQUAL {name}" for name in self.unequal])


def compare(a: str | Path, b: str | Path) -> Difference:
    """Differences relative to `b`: samples and statistics in L2, degenerate tensors by the magnitude of both."""
    first, second = _load(a), _load(b)
    result = Difference()
    (left, left_data), (right, right_data) = first, second
    _equal(result, "keys", _keys(left), _keys(right))
    for key in CONDITIONS:
        _equal(result, key, left[key], right[key])
    _equal(result, "stored keys", sorted(left_data), sorted(right_data))
    _equal(result, "variants", list(left["variants"]), list(right["variants"]))
    _run(result, "", left, right, left_data, right_data)
    for name in left["variants"].keys() & right["variants"].keys():
        variants = left["variants"][name], right["variants"][name]
        _equal(result, f"{name}: keys", *map(_keys, variants))
        _run(result, f"variant.{name}/", *variants, left_data, right_data)
    for key in left_data.keys() & right_data.keys():
        if key.startswith(("input", "init")):
            same = left_data[key].dtype == right_data[key].dtype and np.array_equal(left_data[key], right_data[key])
            _equal(result, key, same, True)
    return result


def _load(path: str | Path) -> tuple[dict, dict[str, np.ndarray]]:
    return json.loads(Path(f"{path}.json").read_text()), load_file(f"{path}.safetensors")


def _keys(entry: dict) -> list[str]:
    return [key for key in entry if key not in CONDITIONING]


def _equal(result: Difference, name: str, left, right) -> None:
    if json.loads(json.dumps(left)) != right:
        result.unequal.append(name)


def _run(result: Difference, prefix: str, left: dict, right: dict, left_data: dict, right_data: dict) -> None:
    for step, (ours, theirs) in enumerate(zip(left["losses_f64"], right["losses_f64"], strict=True), 1):
        _equal(result, f"{prefix}losses {step}", sorted(ours), sorted(theirs))
        for key in ours.keys() & theirs.keys():
            result.worst("losses", abs(ours[key] / theirs[key] - 1), f"{prefix}{key} of step {step}")
    _equal(result, f"{prefix}tensors", list(left["tensors"]), list(right["tensors"]))
    for key in left["tensors"].keys() & right["tensors"].keys():
        ours, theirs = left["tensors"][key], right["tensors"][key]
        where = prefix + key
        result.tensors += 1
        _equal(result, f"{where}: keys", _keys(ours), _keys(theirs))
        _equal(result, f"{where}: conditions", *([e[k] for k in ("shape", "stored")] + [e.get("class")] for e in (ours, theirs)))
        stored = left_data[where], right_data[where]
        if ours.get("degenerate"):
            result.worst("degenerate", max(ours["absmax"], theirs["absmax"]), where)
            continue
        for name in STATISTICS:
            if name in ours and name in theirs:
                scale = max(abs(theirs[name]), theirs["delta_absmax" if name.startswith("delta") else "absmax"])
                result.worst("statistics", _relative(ours[name] - theirs[name], scale), f"{name} of {where}")
        _equal(result, f"{where}: stored shape", stored[0].shape, list(stored[1].shape))
        if stored[0].shape == stored[1].shape:
            result.worst("samples", _relative(np.linalg.norm(stored[0] - stored[1]), _sample_norm(theirs, stored[1])), where)
        result.floor_ratios += [ours[f] / theirs[f] for f in FLOORS if ours.get(f) and theirs.get(f)]


def _sample_norm(entry: dict, samples: np.ndarray) -> float:
    """The yardstick of a sample error: as large as the whole tensor makes it, since all samples may lie where it is zero."""
    return max(np.linalg.norm(samples), entry["l2"] * math.sqrt(samples.size / math.prod(entry["shape"])))


def _relative(error: float, scale: float) -> float:
    return abs(error) / scale if scale else float(error != 0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="zoo_golden.compare", description=__doc__)
    parser.add_argument("a")
    parser.add_argument("b")
    options = parser.parse_args()
    print(compare(options.a, options.b))


if __name__ == "__main__":
    main()
