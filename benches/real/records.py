"""Where a training in PyTorch runs, and its result as a line of JSON for `zoo report --markdown --against`."""

import argparse
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


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of all trainings."""
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda; in f32 without TF32")
    parser.add_argument("--out", type=Path, help="append a record of each training to this file")


def settle(options: argparse.Namespace) -> None:
    """New tensors lie on the device; its sums are in f32, as on a CPU."""
    torch.set_num_threads(options.threads)
    torch.set_default_device(options.device)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False


def write(path: Path | None, record: Record) -> None:
    """Appends the record to the file, if a path is given."""
    if path:
        where = torch.get_default_device()
        name = f" on {torch.cuda.get_device_name(where)}" if where.type == "cuda" else ""
        line = asdict(record) | {"by": f"PyTorch {torch.__version__.split('+')[0]}{name}"}
        with path.open("a", encoding="utf8") as file:
            file.write(json.dumps(line) + "\n")
