"""What a training in PyTorch came to, as a line of JSON: what `zoo report --markdown --against` reads."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Record:
    recipe: str
    metric: str
    """As recipes name it."""
    value: float
    """In the metric's range: shares as fractions."""
    seconds: float
    """Of training, without evaluation."""
    seed: int
    steps: int
    held_out: int
    """Samples that the value is of."""


def write(path: Path | None, record: Record) -> None:
    """Appends to a file, if there is one."""
    if path:
        line = asdict(record) | {"by": f"PyTorch {torch.__version__.split('+')[0]}"}
        with path.open("a", encoding="utf8") as file:
            file.write(json.dumps(line) + "\n")
