"""python -m zoo_golden prove DIR --run RUN: the first losses of an emitted program against those that `zoo run` logged.

The program starts from zoo's weights and takes zoo's batches (`zoo data make`), once in f64 and once in f32. zoo trains in
f32: its losses may be as far from those in f64 as rounding brings the program's own, times a factor.
"""

import inspect
import json
import math
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

CONDITIONED = 10.0
"""How many times the largest error of the program's own losses in f32 so far an error may be, as of `zoo check`."""

ROUNDING = 8 * 2.0**-24
"""An error that is always allowed, relative to a loss: a few roundings of its sum."""

Losses = dict[str, float]


class NotComparable(Exception):
    """Why a run and a program cannot be compared."""


@dataclass
class Step:
    """A step: where it is in the training, what zoo logged, and what the program computed in f64 and f32."""

    number: int
    zoo: Losses
    exact: Losses
    rounded: Losses

    def errors(self, of: Losses) -> float:
        """The largest error of losses, relative to those in f64; one that is missing or no number has an infinite one."""
        return max(_error(of.get(name, math.nan), exact) for name, exact in self.exact.items())


def _error(value: float, exact: float) -> float:
    error = abs(value - exact) / abs(exact) if exact else abs(value)
    return math.inf if math.isnan(error) else error


def logged(run: Path, steps: int) -> list[Losses]:
    """The losses of the first steps of a run."""
    path = run / "events.jsonl"
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise NotComparable(f"{run} is no run of zoo: {error}") from error
    events = [json.loads(line) for line in lines if line.startswith('{"event":"step"')]
    losses = [{"loss": event["loss"], **dict(event.get("components", []))} for event in events[:steps]]
    if [event["step"] for event in events[:steps]] != list(range(1, steps + 1)):
        raise NotComparable(f"{path} has {len(losses)} steps from the first on: {steps} are needed")
    return losses


@dataclass
class Data:
    """What `zoo data make` wrote."""

    folder: Path
    about: dict

    @classmethod
    def make(cls, recipe: Path, zoo: str, steps: int, folder: Path) -> "Data":
        command = [zoo, "data", "make", recipe, "--steps", str(steps), "-o", folder, "--quiet"]
        if subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode:
            raise NotComparable(f"zoo cannot prepare the data of {recipe}")
        return cls(folder, json.loads((folder / "data.json").read_text()))

    def batch(self, step: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        """What a step takes, from 0."""
        size = self.about["batch"]
        arrays = {path.stem: np.load(path, mmap_mode="r") for path in sorted((self.folder / "train").glob("*.npy"))}
        batch = {name: torch.from_numpy(array[step * size : (step + 1) * size].copy()) for name, array in arrays.items()}
        return {name: value.to(dtype) if value.is_floating_point() else value for name, value in batch.items()}


def losses(program, data: Data, steps: int, dtype: torch.dtype) -> Iterator[Losses]:
    """Trains the program on the data."""
    network = program.network()
    module = program.module("train")
    module.load(network, data.folder / "weights.pth")
    training = module.Training(network.to(dtype), torch.device("cpu"), "fp32", 1)
    per_epoch, length = data.about["steps_per_epoch"], data.about["steps"]
    more = {"steps": length} if "steps" in inspect.signature(training.step).parameters else {}
    for step in range(steps):
        if step % per_epoch == 0:
            training.enter(step // per_epoch)
        terms = training.step(data.batch(step, dtype), module.rate(step, per_epoch, length), **more)
        yield {name: term.item() for name, term in terms.items()}


def compare(program, run: Path, zoo: str, steps: int) -> list[Step]:
    """The steps of both."""
    there = logged(run, steps)
    with tempfile.TemporaryDirectory() as folder:
        data = Data.make(program.folder / "recipe.yaml", zoo, steps, Path(folder) / "data")
        exact = losses(program, data, steps, torch.float64)
        rounded = losses(program, data, steps, torch.float32)
        return [Step(number, *found) for number, *found in zip(range(1, steps + 1), there, exact, rounded, strict=True)]


def judge(steps: list[Step], shown: int) -> bool:
    """Whether all losses are equal up to rounding; prints the verdict."""
    own, worst, apart, failed = 0.0, (0.0, 0), 0.0, []
    for step in steps:
        own = max(own, step.errors(step.rounded))
        apart = max(apart, *(_error(step.zoo.get(name, math.nan), value) for name, value in step.rounded.items()))
        error, allowed = step.errors(step.zoo), max(ROUNDING, CONDITIONED * own)
        worst = max(worst, (error, step.number))
        if not error <= allowed:
            failed.append(f"  step {step.number}: {error:.1e} (allowed {allowed:.1e})")
    for line in failed[:shown]:
        print(line)
    verdict = f"the losses of {len(failed)} of {len(steps)} steps differ" if failed else f"the losses of {len(steps)} steps are equal"
    print(f"training: {verdict}, the largest error of zoo in f32 {worst[0]:.1e} at step {worst[1]}, of the program in f32 {own:.1e}, between both {apart:.1e}")
    return not failed
