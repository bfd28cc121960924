"""python measured_faults.py DIR [--zoo ZOO] [--pairs N] [FAULT...]: plants causes of lost time in the program of resnet20, records it on a
CPU with and without each, and prints as a table what `zoo profile --measured` says of them. Needs the command.

What a fault costs is known without the profile: what is added to the recorded steps is timed there; of what computes in another type, the
shortest times of the processor in the recorded steps with and without it are compared, which other programs change little. It is held
against the share of the recorded steps that the causes have which name it.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset

from zoo_golden.profile import Profile

RECIPE = Path(__file__).parents[2] / "recipes" / "resnet20.yaml"
BATCH = 32
PERMUTES = 48
STEPS = 6


class Samples(IterableDataset):
    """The same batch, again and again."""

    def __init__(self, prepare: Callable[[], None]) -> None:
        super().__init__()
        self.batch, self.prepare = (torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))), prepare

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            self.prepare()
            yield self.batch


class Training:
    """Steps of the program's network."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network.train()
        self.batches = iter(DataLoader(Samples(self.wait), batch_size=None))
        self.pause = self.added = 0.0
        self.optimizer = torch.optim.SGD(network.parameters(), lr=0.02, momentum=0.9)

    @contextmanager
    def adding(self) -> Iterator[None]:
        """Times what a fault adds."""
        start = time.perf_counter()
        yield
        self.added += time.perf_counter() - start

    def wait(self) -> None:
        """Waits for a batch."""
        with self.adding():
            time.sleep(self.pause)

    def step(self) -> float:
        """Trains one step; returns the seconds that it computed."""
        start = time.thread_time()
        image, label = next(self.batches)
        loss = functional.cross_entropy(self.network(image), label)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return time.thread_time() - start

    def record(self, folder: Path) -> tuple[float, float]:
        """Records some steps; returns the share of their time that a fault added, and the seconds that one computes."""
        with Profile(folder, self.network, skip=1, steps=STEPS) as profile:
            self.step()
            profile.step()
            start, self.added, seconds = time.perf_counter(), 0.0, []
            for _ in range(STEPS):
                seconds.append(self.step())
                end = time.perf_counter()
                profile.step()
        return self.added / (end - start), min(seconds)


def permute(training: Training, _: float) -> None:
    """Feature maps of a block go to channels last and back."""
    block = training.network.layer1[1]
    forward = block.forward

    def permuted(x: Tensor) -> Tensor:
        with training.adding():
            for _ in range(PERMUTES):
                x = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2).contiguous()
        return forward(x)

    block.forward = permuted


def double(training: Training, _: float) -> None:
    """Convolutions of two blocks compute in float64."""

    class Double(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            return functional.conv2d(x.double(), self.weight.double(), None, self.stride, self.padding).float()

    for block in training.network.layer1[:2]:
        block.conv1.__class__ = block.conv2.__class__ = Double


def slow(training: Training, step: float) -> None:
    """Each batch takes as long as a step."""
    training.pause = step


@dataclass
class Fault:
    """A cause of lost time."""

    about: str
    plant: Callable[[Training, float], None]
    adds: bool
    """Whether it only adds work."""
    reasons: set[str]
    lines: list[str]
    """Texts of the lines that are to be named."""


FAULTS = {
    "permute": Fault("a needless permute", permute, True, {"layout"}, ["- residual:"]),
    "float64": Fault("float64 in between", double, False, {"float64", "type"}, ["name: conv1, out: $width", "name: conv2, out: $width"]),
    "loader": Fault("a slow loader", slow, True, {"input"}, ["source: {cifar10"]),
}


def measured(zoo: str, folder: Path) -> dict:
    """What the command says of a recording."""
    command = [zoo, "profile", str(RECIPE), "--batch", str(BATCH), "--measured", str(folder), "--format", "json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["measured"]


def pair(zoo: str, make: Callable[[], nn.Module], fault: Fault, folder: Path) -> tuple[float, float, set[str], float]:
    """The share of the step that a fault costs, the share that is named, with its lines, and what is named without the fault."""
    plain, planted = Training(make()), Training(make())
    fault.plant(planted, min(plain.step() for _ in range(3)))
    planted.step()
    added, with_fault = planted.record(folder / "planted")
    _, without = plain.record(folder / "plain")
    costs = added if fault.adds else 1 - without / with_fault
    found, clean = (measured(zoo, folder / name) for name in ("planted", "plain"))
    causes = [cause for cause in found["causes"] if cause["reason"] in fault.reasons]
    named = sum(cause["share"] for cause in causes)
    false = sum(cause["share"] for cause in clean["causes"] if cause["reason"] in fault.reasons)
    return costs, named, {cause["line"] for cause in causes}, false


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a new folder")
    parser.add_argument("faults", nargs="*", choices=[[], *FAULTS], default=[])
    parser.add_argument("--zoo", default="zoo")
    parser.add_argument("--pairs", type=int, default=10)
    args = parser.parse_args()
    torch.set_num_threads(1)
    program = args.folder / "program"
    subprocess.run([args.zoo, "emit", str(RECIPE), "--to", "pytorch", "-o", str(program)], check=True, capture_output=True)
    sys.path.insert(0, str(program))
    make = __import__("model").Resnet20
    print("| planted | costs | named | error | lines |\n| --- | --- | --- | --- | --- |")
    for name in args.faults or FAULTS:
        fault = FAULTS[name]
        lines = {f"{RECIPE.name}:{number}" for number, line in enumerate(RECIPE.read_text().splitlines(), 1) for text in fault.lines if text in line}
        rows = []
        for number in range(args.pairs):
            costs, named, found, false = pair(args.zoo, make, fault, args.folder / name / str(number))
            print(f"{name} {number}: costs {costs:.1%}, named {named:.1%} at {sorted(map(str, found))}, without it {false:.1%}", file=sys.stderr)
            rows.append((costs, named, named / costs - 1, lines <= found, false))
        costs, names, errors, right, _ = zip(*rows, strict=True)
        span = [f"{100 * min(column):.0f} to {100 * max(column):.0f} %" for column in (costs, names)]
        worst = max(errors, key=abs)
        print(
            f"| {fault.about} | {span[0]} | {span[1]} | median {statistics.median(map(abs, errors)):.0%}, worst {worst:+.0%} | {sum(right)} of {len(right)} |"
        )


if __name__ == "__main__":
    main()
