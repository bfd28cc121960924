"""The result of a training in PyTorch as a line of JSON, for `zoo report --markdown --against`."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Record:
    recipe: str
    metric: str
    """Its name in recipes."""
    value: float
    """Percentages as fractions of 1."""
    seconds: float
    """Training time without evaluation."""
    seed: int
    steps: int
    held_out: int
    """Number of samples in the evaluation."""


def write(path: Path | None, record: Record) -> None:
    """Appends the record to the file, if a path is given."""
    if path:
        line = asdict(record) | {"by": f"PyTorch {torch.__version__.split('+')[0]}"}
        with path.open("a", encoding="utf8") as file:
            file.write(json.dumps(line) + "\n")
