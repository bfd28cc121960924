"""python -m zoo_golden prove DIR: proves that a program that `zoo emit` wrote is its recipe.

The network is traced, and `zoo import --against` compares the trace with the recipe, operation by operation. Where the recipe has a
golden, training steps in f64 under its conditions must give its outputs, losses, gradients and parameters. With `--run RUN`, the losses of
the first steps from zoo's weights on zoo's batches must be those of a run.
"""

import argparse
import inspect
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from safetensors.numpy import load_file
from torch import nn

from .conditions import Input, image
from .document import IN_ORDER, ROOT_SAMPLES
from .exporter import _Exact, _hooks
from .follow import NotComparable, compare, judge
from .hashes import sample_positions, signed
from .networks import StillFunctions, still
from .port import constant, on_meta
from .program import DIFFERS, MISSING, PASSED, WRONG, Program, ProofError, goldens
from .rounding import LAST_PLACE, Rounding, moves
from .trace import TraceError, batch_sizes, trace

TOLERANCE = 1e-9
"""Largest relative error in f64, as of `zoo check --dtype f64`."""

FINER = 2.0**-29
"""Rounding of f64 relative to that of f32."""

LEAST_LOSS = 2.0**-50 / TOLERANCE
"""Losses below are compared as if they were this: 2^-50 is rounding of numbers near one, such as sums of probabilities."""

ROUNDING_OF_OTHERS = 2.0**-44
"""How large a tensor that is zero may be, relative to the largest of its stage: 2^8 roundings."""

CONDITIONED = 10.0
"""How many times the distance of the golden's moved run an error may be, as of `zoo check`."""

MOVED_RUNS = 8
"""Most runs of a program that differs in which each result is moved by a rounding."""


@dataclass
class Golden:
    """A recorded step: its document and its samples."""

    path: Path
    document: dict
    data: dict[str, np.ndarray]

    @classmethod
    def read(cls, path: Path) -> "Golden":
        try:
            document, data = json.loads(path.read_text()), load_file(path.with_suffix(".safetensors"))
        except (OSError, ValueError) as error:
            raise ProofError(f"{path}: {error}") from error
        if "zoo" in document["made_with"]:
            # A step of zoo's own: its errors in f32 tell how much of f64 is rounding.
            for entry in document["tensors"].values():
                entry |= {"f64_rel": entry["f32_rel"] * FINER, "degenerate": entry["f32_rel"] >= 1.0}
            losses = zip(document["losses_f64"], document["losses_f32"], strict=True)
            document["losses_moved"] = [{name: one + (near[name] - one) * FINER for name, one in truth.items()} for truth, near in losses]
        return cls(path, document, data)

    def bound(self, to: dict) -> "Golden":
        """With the variant of the step, and the names of losses, of a recipe."""
        document, data = dict(self.document), dict(self.data)
        if (facts := document.get("variants", {}).get(to.get("variant"))) is not None:
            prefix = f"variant.{to['variant']}/"
            data |= {key.removeprefix(prefix): values for key, values in data.items() if key.startswith(prefix)}
            kept = {key: entry for key, entry in document["tensors"].items() if key.startswith(("out/", "grad/", "buffer1/"))}
            document |= {"tensors": kept | facts["tensors"], "optimizer": _optimizer(facts["rule"], document["optimizer"])}
            document |= {key: facts.get(key) for key in ("losses_f64", "losses_moved")}
        return Golden(self.path, document, data)

    def inputs(self) -> dict[str, torch.Tensor]:
        """What the step takes, by name."""
        return {name: self._input(name, described).values for name, described in self.document["inputs"].items()}

    def _input(self, name: str, described: dict) -> Input:
        shape = tuple(described["shape"])
        if described["stored"]:
            values = torch.from_numpy(self.data[f"input/{name}"]).reshape(shape)
            # Those of zoo's own steps have no type beside that of their values.
            is_real = described.get("dtype", str(values.dtype).removeprefix("torch.")).startswith("float")
            return Input(values.float() if is_real else values.long())
        if re.fullmatch(r"image\[-2,2\) of 'input\..*'", described["rule"]):
            return image(shape, self.document["salt"], name)
        raise ProofError(f"{self.path}: unknown rule of the input {name}: {described['rule']}")

    @torch.no_grad()
    def fill(self, network: nn.Module) -> None:
        """The initial values of all parameters and running statistics."""
        values = dict(network.named_parameters()) | dict(network.named_buffers())
        for name, rule in self.document["init"].items():
            if (tensor := values.get(name)) is not None:
                tensor.copy_(torch.as_tensor(self._start(name, rule, tuple(tensor.shape))))
        for name, tensor in values.items():
            # Statistics that no rule gives.
            if (stored := self.data.get(f"init/{name}")) is not None:
                tensor.copy_(torch.from_numpy(stored).reshape(tensor.shape))

    def _start(self, name: str, rule: dict, shape: tuple[int, ...]) -> np.ndarray:
        if rule["kind"] == "const":
            return np.full(shape, rule["value"], np.float32)
        drawn = signed(self.document["salt"] + name, shape)
        if rule["kind"] == "one_plus":
            return np.float32(rule["gain"]) * (np.float32(1) + np.float32(rule["bound"]) * drawn)
        return drawn * np.float32(rule["bound"])

    @torch.no_grad()
    def fill_rule(self, network: nn.Module, rule: torch.optim.Optimizer) -> None:
        """What the optimizer keeps, where it starts with another number than zero: rounded to f32, as everything starts."""
        parameters = dict(network.named_parameters())
        for key, start in self.document["init"].items():
            name, _, slot = key.rpartition("/")
            kept = rule.state.get(parameters.get(name), {}).get(slot)
            if kept is not None and start["kind"] == "const" and (kept.float() == np.float32(start["value"])).all():
                kept.fill_(start["value"])

    def loss(self, step: int, name: str) -> float | None:
        """A loss of a step, from 1, if it was recorded."""
        recorded = self.document["losses_f64"]
        return recorded[step - 1].get(name) if step <= len(recorded) else None

    def error_of_loss(self, step: int, name: str, value: float) -> tuple[float, float]:
        """How far a loss is off, and how far it may be: as for tensors, by the distance of the moved run where the golden says it."""
        expected, moved = self.document["losses_f64"][step - 1][name], self.document.get("losses_moved")
        scale = max(abs(expected), LEAST_LOSS)
        by_moving = 0.0 if moved is None else CONDITIONED * abs(moved[step - 1][name] - expected) / scale
        return abs(value - expected) / scale, max(TOLERANCE, by_moving)

    def samples(self, key: str, tensor: torch.Tensor) -> np.ndarray:
        """The elements of a tensor that the golden stores, in its order."""
        stored = self.data[key]
        flat = tensor.detach().reshape(-1)
        whole = flat.numel() <= (ROOT_SAMPLES if key.startswith("out/@root#") else IN_ORDER)
        if not whole:
            flat = flat[torch.from_numpy(sample_positions(key, flat.numel(), stored.size))]
        return flat.double().numpy().reshape(stored.shape)


def _optimizer(rule: str, main: dict) -> dict:
    """The optimizer of a variant: `Adam lr 1e-3, ..., no weight decay`."""
    said = {key: float(value) for key, value in re.findall(r"(lr|weight decay) ([0-9.e-]+)", rule)}
    if "lr" not in said:
        raise ProofError(f"the rule of a variant names no learning rate: {rule}")
    group = {"lr": said["lr"], "weight_decay": said.get("weight decay", 0.0)}
    return main | {"groups": [one | group for one in main["groups"]]}


@dataclass
class Comparison:
    """Errors of the tensors that were compared, relative to what is allowed."""

    errors: dict[str, tuple[float, float]] = field(default_factory=dict)
    lacking: list[str] = field(default_factory=list)
    found: dict[str, tuple[np.ndarray, float]] = field(default_factory=dict)
    """What was compared, and the size to which its error is relative."""

    def failed(self) -> list[str]:
        return [key for key, (error, allowed) in self.errors.items() if not error <= allowed]

    def worst(self) -> tuple[float, str]:
        """The error that is largest beside what is allowed."""
        key = max(self.errors, key=lambda key: self.errors[key][0] / self.errors[key][1])
        return self.errors[key][0], key

    def loosen(self, moved: "Comparison") -> None:
        """Allows what differs as far as rounding moves it: Lion steps by the sign of a gradient, whose size may be rounding."""
        for key in self.failed():
            if key in self.found and key in moved.found:
                (own, scale), (error, allowed) = self.found[key], self.errors[key]
                distance = _ratio(float(np.linalg.norm(moved.found[key][0] - own)), scale)
                self.errors[key] = (error, max(allowed, CONDITIONED * distance))

    def add_loss(self, golden: Golden, step: int, name: str, value: float) -> None:
        key = f"loss/{name} of step {step}"
        self.errors[key] = golden.error_of_loss(step, name, value)
        self.found[key] = np.array(value), max(abs(golden.loss(step, name) or 0.0), LEAST_LOSS)

    def add(self, golden: Golden, key: str, tensor: torch.Tensor) -> None:
        entry = golden.document["tensors"][key]
        # Rows of positions are the same for all samples: there may be an axis of one sample before them.
        if entry["shape"] not in (list(tensor.shape), [1, *tensor.shape]):
            self.lacking.append(f"{key} ({list(tensor.shape)} for {entry['shape']})")
            return
        stage, name = key.split("/", 1)
        gradient = golden.document["tensors"].get(f"grad/{name}", {})
        # Zero there and not here: LARS takes the plain rate for zeros alone.
        is_rounding = gradient.get("l2") == 0.0 and self.errors.get(f"grad/{name}", (0.0,))[0] > 0.0
        if entry.get("degenerate") or gradient.get("degenerate") or is_rounding:
            # A gradient that is rounding alone, and what an optimizer makes of it.
            return
        stored, found = golden.data[key].astype(np.float64), golden.samples(key, tensor)
        if entry["l2"] == 0.0:
            # It may be rounding of the others of its stage.
            others = max(one["l2"] for other, one in golden.document["tensors"].items() if other.startswith(f"{stage}/"))
            self.errors[key] = (_ratio(tensor.detach().double().norm().item(), others), ROUNDING_OF_OTHERS)
            self.found[key] = found, others
            return
        norm = entry["l2"]
        scale = max(float(np.linalg.norm(stored)), norm * math.sqrt(stored.size / max(math.prod(entry["shape"]), 1)))
        self.found[key] = found, scale
        longer = abs(tensor.detach().double().norm().item() - entry["l2"])
        error = float(np.linalg.norm(found - stored))
        allowed = max(TOLERANCE, CONDITIONED * entry.get("f64_rel", 0.0))
        self.errors[key] = (max(_ratio(error, scale), _ratio(longer, norm)), allowed)


def _ratio(error: float, scale: float) -> float:
    if scale:
        return error / scale
    return 0.0 if error == 0 else math.inf


def structure(program: Program, zoo: str) -> int:
    """The exit code of `zoo import --against` with a trace of the network."""
    network = program.network().train()
    inputs = program.inputs
    extents = {extent for given in inputs.values() for extent in given["shape"]}
    samples = next(batch_sizes(network, extents))
    given = {name: torch.empty((samples, *one["shape"]), dtype=getattr(torch, one["dtype"]), device="meta") for name, one in inputs.items()}
    starts = {key: start for key, tensor in network.named_parameters() if (start := constant(tensor)) is not None}
    buffers = dict(network.named_buffers())
    document = trace(
        on_meta(network),
        given,
        lambda network, inputs: network(*inputs.values()),
        name=f"model:{program.about['class']}",
        classes=program.about["classes"],
        starts=starts,
        buffers=buffers,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{program.about['class']}.trace.json"
        path.write_text(json.dumps(document, separators=(",", ":")))
        command = [zoo, "import", path, "--against", program.folder / "recipe.yaml"]
        return subprocess.run(command, check=False).returncode


def judged(program: Program, golden: Golden, steps: int) -> tuple[Comparison, list[str]]:
    """The comparison of `values`, and the tensors that are as near as rounding lets them be."""
    comparison = values(program, golden, steps)
    differing = comparison.failed()
    for seed in range(MOVED_RUNS):
        if not comparison.failed():
            break
        comparison.loosen(values(program, golden, steps, Rounding(moves(seed, LAST_PLACE))))
    failed = set(comparison.failed())
    return comparison, [key for key in differing if key not in failed]


def values(program: Program, golden: Golden, steps: int, rounding: Rounding | None = None) -> Comparison:
    """Outputs, losses, gradients and parameters of steps in f64 under the golden's conditions."""
    network = still(program.network()).double().train()
    if hasattr(sys.modules["model"], "stochastic_depth"):
        # A function of torchvision, not of torch.
        sys.modules["model"].stochastic_depth = lambda x, *_, **__: x
    golden.fill(network)
    inputs = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in golden.inputs().items()}
    comparison = Comparison()
    outputs: dict = {}
    hooks = _hooks(network, outputs)
    gradients: dict[str, torch.Tensor] = {}

    def keep(name: str):
        return lambda parameter: gradients.__setitem__(name, parameter.grad.detach().clone())

    kept = [parameter.register_post_accumulate_grad_hook(keep(name)) for name, parameter in network.named_parameters()]
    step = Step.of(program, golden, network, inputs, comparison)
    golden.fill_rule(network, step.rule)
    for number in range(1, steps + 1):
        with StillFunctions(), _Exact(torch.float64), rounding or nullcontext():
            losses = step.run()
        for name, value in losses.items():
            if golden.loss(number, name) is not None:
                comparison.add_loss(golden, number, name, value)
        if number == 1:
            for hook in [*hooks, *kept]:
                hook.remove()
            recorded = {key: tensor for key, (tensor, _) in outputs.items()}
            recorded |= {f"grad/{name}": gradient for name, gradient in gradients.items()}
            _compare(comparison, golden, recorded, ("out/", "grad/"))
            _compare(comparison, golden, _slots(network, step.rule), ())
        if number in (1, 3):
            state = {f"param{number}/{name}": parameter for name, parameter in network.named_parameters()}
            state |= {f"buffer{number}/{name}": buffer for name, buffer in network.named_buffers()}
            _compare(comparison, golden, state, (f"param{number}/", f"buffer{number}/"))
    return comparison


def _compare(comparison: Comparison, golden: Golden, tensors: dict[str, torch.Tensor], stages: tuple[str, ...]) -> None:
    """All tensors of these stages that the golden has."""
    for key in golden.document["tensors"]:
        if key in tensors:
            comparison.add(golden, key, tensors[key])
        elif key.startswith(stages):
            comparison.lacking.append(key)


def _slots(network: nn.Module, rule: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """What the optimizer keeps of each parameter, by the golden's names."""
    kept = {}
    for name, parameter in network.named_parameters():
        for slot, tensor in rule.state.get(parameter, {}).items():
            if slot != "step" and isinstance(tensor, torch.Tensor):
                kept[f"{'momentum' if slot == 'momentum_buffer' else slot}1/{name}"] = tensor
    return kept


@dataclass
class Step:
    """A training step of a program: of `train.py`, or of a loop around `rules.py`."""

    rule: torch.optim.Optimizer
    run: Callable[[], dict[str, float]]

    @classmethod
    def of(cls, program: Program, golden: Golden, network: nn.Module, inputs: dict[str, torch.Tensor], comparison: Comparison) -> "Step":
        batch = dict(inputs)
        if "label" in batch and "mixed_label" not in batch:
            # A golden whose samples are not mixed: each label counts whole.
            batch |= {"mixed_label": batch["label"], "label_share": torch.ones(len(batch["label"]), dtype=torch.float64)}
        if (program.folder / "train.py").exists():
            module = program.module("train")
            training = module.Training(network, torch.device("cpu"), "fp32", 1)
            training.enter(0)
            if hasattr(module, "pull"):
                # Goldens end with the optimizer: slow weights follow it.
                module.pull = lambda *_: None
            rate = _rate(module, training.rule, network, golden, comparison)
            further = {"steps": 10**6} if "steps" in inspect.signature(training.step).parameters else {}
            return cls(training.rule, lambda: {name: term.item() for name, term in training.step(batch, rate, **further).items()})
        module = program.module("rules")
        rule = module.optimizer(network)
        if hasattr(module, "freeze"):
            module.freeze(network, rule, 0)
        if hasattr(module, "keep_statistics"):
            module.keep_statistics(network)
        rate = _rate(module, rule, network, golden, comparison)
        given = [inputs[name] for name in program.inputs]
        norm = golden.document["optimizer"].get("clip_grad_norm")
        clips = golden.document["optimizer"].get("clip") or ([] if norm is None else [{"norm": norm}])
        further = [network] if "network" in inspect.signature(module.loss).parameters else []

        def run() -> dict[str, float]:
            module.set_rate(rule, rate)
            rule.zero_grad()
            terms = module.loss(network(*given), batch, *further)
            terms["loss"].backward()
            for clip in clips:
                bound = torch.nn.utils.clip_grad_norm_ if "norm" in clip else torch.nn.utils.clip_grad_value_
                bound(network.parameters(), *clip.values())
            rule.step()
            return {name: term.item() for name, term in terms.items()}

        return cls(rule, run)


def _rate(module: ModuleType, rule: torch.optim.Optimizer, network: nn.Module, golden: Golden, comparison: Comparison) -> float:
    """The learning rate of the golden's steps, before the factors of groups. Compares rates and decays of all parameters."""
    module.set_rate(rule, 1.0)
    names = {parameter: name for name, parameter in network.named_parameters()}
    own = {names[parameter]: (group["lr"], group["weight_decay"]) for group in rule.param_groups for parameter in group["params"]}
    theirs = {name: (group["lr"], group["weight_decay"]) for group in golden.document["optimizer"]["groups"] for name in group["params"]}
    first = next((name for name in theirs if own.get(name, (0.0,))[0]), None)
    if first is None:
        raise ProofError("the program trains none of the golden's parameters")
    rate = theirs[first][0] / own[first][0]
    for name, (lr, decay) in theirs.items():
        factor, other = own.get(name, (math.nan, math.nan))
        error = max(_ratio(abs(factor * rate - lr), lr), _ratio(abs(other - decay), decay))
        comparison.errors[f"group/{name}"] = (error, TOLERANCE)
    return rate


def fitting(program: Program, golden: Golden, zoo: str, folder: Path) -> Program:
    """The program for the conditions of the golden."""
    own = {key: list(tensor.shape) for key, tensor in program.network().state_dict().items()}
    inputs = {name: described["shape"][1:] for name, described in golden.document["inputs"].items()}
    return program.fitting(golden.document["shapes"], own, inputs, zoo, folder)


def prove(program: Program, options: argparse.Namespace) -> int:
    if options.run:
        return PASSED if judge(compare(program, Path(options.run), options.zoo, options.steps or 20), options.show) else DIFFERS
    code = PASSED
    if not options.values_only:
        try:
            code = structure(program, options.zoo)
        except TraceError as error:
            print(f"structure: the network cannot be traced: {error}", flush=True)
            code = WRONG
    found = next((path for path in goldens(program, options.golden) if path.exists()), None)
    if found is None:
        print(f"values: not compared: {program.without_golden()}")
        return code
    golden = Golden.read(found).bound(program.golden)
    with tempfile.TemporaryDirectory() as folder:
        comparison, close = judged(fitting(program, golden, options.zoo, Path(folder)), golden, options.steps or 3)
    failed = comparison.failed()
    for key in failed[: options.show]:
        error, allowed = comparison.errors[key]
        print(f"  {key}: {error:.1e} (allowed {allowed:.1e})")
    error, where = comparison.worst()
    verdict = f"{len(failed)} of {len(comparison.errors)} tensors differ" if failed else f"{len(comparison.errors)} tensors equal"
    print(f"values: {verdict} in f64, the largest error {error:.1e} at {where}")
    if close:
        print(f"  {len(close)} of them only as near as rounding lets them be ({', '.join(close[:3])})")
    if comparison.lacking:
        print(f"  {len(comparison.lacking)} tensors of the golden are not in the program: {', '.join(comparison.lacking[:3])}")
    # Outputs may be those of functions here; what is trained has to be there.
    trained = [key for key in comparison.lacking if not key.startswith("out/")]
    return max(DIFFERS, code) if failed or trained else code


def all_of(options: argparse.Namespace) -> int:
    """Proves several programs in one process; returns the largest exit code."""
    codes = []
    for folder in options.folders:
        print(f"{folder}:", flush=True)
        try:
            codes.append(prove(Program.read(Path(folder)), options))
        except (ProofError, NotComparable, TraceError) as error:
            print(f"  {error}")
            codes.append(MISSING)
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, NameError) as error:
            print(f"  the program fails: {type(error).__name__}: {error}")
            codes.append(DIFFERS)
    apart = sum(code != PASSED for code in codes)
    print(f"{len(codes) - apart} of {len(codes)} programs are their recipes")
    return max(codes)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="zoo_golden prove", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("folders", metavar="DIR", nargs="+", help="the program that `zoo emit` wrote, or several")
    add("--golden", metavar="FILE", help="manifest of the golden; by default the one that the recipe names, in `golden` of a folder above")
    add("--run", metavar="RUN", help="compare the losses with those of the first steps of this run of zoo instead; switch dropout off in both")
    add("--steps", type=int, help="training steps (3, or 20 of a run)")
    add("--values-only", action="store_true", help="do not compare the structure")
    add("--show", type=int, default=5, help="differing tensors that are listed (5)")
    add("--zoo", default=os.environ.get("ZOO", "zoo"), help="path of the command zoo; by default from the environment variable ZOO, or the PATH")
    options = parser.parse_args(arguments)
    try:
        return all_of(options) if len(options.folders) > 1 else prove(Program.read(Path(options.folders[0])), options)
    except (ProofError, NotComparable) as error:
        print(error, file=sys.stderr)
        return MISSING
    except FileNotFoundError as error:
        print(f"{options.zoo} is not there: install zoo, or say where it is with --zoo or ZOO ({error})", file=sys.stderr)
        return MISSING
