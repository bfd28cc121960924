"""One case from its source to its outcome: trace, import, golden, checks, devices, threads, ONNX."""

import contextlib
import importlib
import io
import json
import math
import os
import subprocess
import sys
import time
import traceback
import warnings
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from .. import port
from ..goldens import golden
from ..networks import build, still
from ..rounding import LAST_PLACE, Rounding, moves
from ..trace import TraceError
from . import conditioning
from .draw import Case, Source, arguments
from .outcome import Failed, Kind, Outcome, Planted, of_refusal
from .vocabulary import WORDS

LIMIT = 60
"""Seconds that a command may take."""
DEVICES = ("ascend910", "gaudi")


class Pipeline:
    """Where cases go, and the command that is tried."""

    def __init__(self, folder: Path, zoo: str):
        self.folder, self.zoo = folder.resolve(), zoo
        self.folder.mkdir(parents=True, exist_ok=True)
        if str(self.folder) not in sys.path:
            sys.path.insert(0, str(self.folder))
        torch.set_num_threads(1)
        warnings.filterwarnings("ignore")

    def run(self, case: Case, everything: bool = True) -> Outcome:
        """What becomes of a case. `everything`: on devices, with two threads, and as ONNX too."""
        seconds: dict[str, float] = {}
        try:
            outcome = self._through(case, everything, seconds)
        except Failed as failed:
            outcome = failed.outcome
        except Exception:  # noqa: BLE001 - whatever PyTorch or this package raises is a finding
            outcome = Outcome(Kind.CRASH, "python", traceback.format_exc(limit=-6))
        finally:
            sys.modules.pop(case.name, None)
        outcome.stages = seconds
        return outcome

    def _through(self, case: Case, everything: bool, seconds: dict[str, float]) -> Outcome:
        planted = None
        with timed(seconds, "source"):
            source = Source(case)
            (self.folder / f"{case.name}.py").write_text(source.text)
            if case.planted:
                planted = Planted(WORDS[case.planted].refused or "", source.planted_lines())
            options = port.parse([*arguments(case), "-o", str(self.folder), "--name", case.name, "--zoo", self.zoo])
            importlib.invalidate_caches()
            torch.manual_seed(0)
            network = build(options.model, options.classes).train()
        recipe, traced = self.folder / f"recipes/{case.name}.yaml", self.folder / f"{case.name}.trace.json"
        with timed(seconds, "trace"):
            try:
                document = port.trace_network(network, options) | {"training": port.training(options, network, f"{case.name}/step.json")}
            except TraceError as error:
                return of_refusal(str(error), planted)
            traced.write_text(json.dumps(document))
        with timed(seconds, "import"):
            code, _, message = self.command("import", traced, "--out", recipe, "--name", case.name, "--force")
        if code == 2 and "cannot import" in message:
            return of_refusal(message, planted)
        if code == 2:
            raise Failed(Kind.INVALID, "import", message)
        if code:
            raise Failed(Kind.CRASH, "import", f"exit {code}: {message}")
        weights = self.folder / f"{case.name}.safetensors"
        port.save_weights(network, weights)
        network = still(network)
        with timed(seconds, "golden"):
            try:
                self.golden(options, network, "step", LAST_PLACE, port.moved_runs(network))
            except ValueError as error:
                if "Out of range float values" in str(error):
                    return Outcome(Kind.ILL, "golden", "PyTorch's own step is not finite")
                raise
        for dtype in ("f64", "f32"):
            with timed(seconds, f"check {dtype}"):
                self.check(recipe, dtype, options, network, planted)
        if planted:
            raise Failed(Kind.WRONG, "import", f"planted `{planted.reason}` was imported")
        if everything:
            for device in DEVICES:
                with timed(seconds, device):
                    self.device(recipe, device)
            with timed(seconds, "threads"):
                self.threads(recipe, case)
            with timed(seconds, "onnx"):
                self.onnx(recipe, weights, options)
        return Outcome(Kind.PASS)

    def golden(self, options: Namespace, network: nn.Module, name: str, last_place: float, moved_runs: int) -> dict:
        with contextlib.redirect_stderr(io.StringIO()):
            path = self.folder / f"golden/{options.name}/{name}"
            return golden(options, network, path, moved_runs=moved_runs, last_place=last_place)

    def check(self, recipe: Path, dtype: str, options: Namespace, network: nn.Module, planted: Planted | None) -> None:
        code, out, message = self.command("check", recipe, "--dtype", dtype, "--format", "json")
        stage = f"check {dtype}"
        if code == 0:
            return
        if code != 1:
            raise Failed(Kind.INVALID if code == 2 else Kind.CRASH, stage, f"exit {code}: {message}")
        report = json.loads(out)
        failed = [found for found in report["stages"] if found["verdict"] == "fail"]
        if planted:
            raise Failed(Kind.WRONG, stage, f"planted `{planted.reason}` was imported: {describe(report, failed)}")
        moved = self.golden(options, network, f"moved_{dtype}", conditioning.LAST_PLACES[dtype], conditioning.MOVED_RUNS)
        kind, why = conditioning.judge(failed, moved)
        raise Failed(kind, stage, f"{describe(report, failed)}; {why}", error=worst(failed))

    def device(self, recipe: Path, device: str) -> None:
        code, out, message = self.command("check", recipe, "--device", device, "--format", "json")
        if code in (0, 1):
            report = json.loads(out)
            kernels = [stage for stage in report.get("stages", []) if stage["stage"] == "kernels" and stage["verdict"] == "fail"]
            if code == 1 and kernels:
                raise Failed(Kind.WRONG, device, describe(report, kernels))
            return
        raise Failed(Kind.INVALID if code == 2 else Kind.CRASH, device, f"exit {code}: {message}")

    def threads(self, recipe: Path, case: Case) -> None:
        hashes = set()
        for count in ("1", "2"):
            folder = self.folder / f"dump/{case.name}-{count}"
            code, _, message = self.command("check", recipe, "--dump", folder, "--format", "json", threads=count)
            if code:
                raise Failed(Kind.CRASH, "threads", f"exit {code}: {message}")
            hashes.add(json.loads((folder / "dump.json").read_text())["hash"])
        if len(hashes) != 1:
            raise Failed(Kind.WRONG, "threads", "other bits with two threads")

    def onnx(self, recipe: Path, weights: Path, options: Namespace) -> None:
        model, sample = weights.with_suffix(".onnx"), weights.with_suffix(".sample")
        code, _, message = self.command("export", recipe, "--checkpoint", weights, "--out", model, "--sample", sample)
        if code == 2 and "cannot be written as ONNX" in message and "-->" in message:
            return
        if code:
            raise Failed(Kind.INVALID if code == 2 else Kind.CRASH, "onnx", f"exit {code}: {message}")
        tensors = load_file(sample)
        inputs = {key.removeprefix("input."): value for key, value in tensors.items() if key.startswith("input.")}
        (found,) = (value for key, value in tensors.items() if key.startswith("output."))
        torch.manual_seed(0)
        network = build(options.model, options.classes).eval()
        with torch.no_grad():
            rounded, exact = (evaluated(network.to(dtype), inputs, dtype) for dtype in (torch.float32, torch.float64))
            with Rounding(moves(0, conditioning.LAST_PLACES["f32"])):
                moved = evaluated(network, inputs, torch.float64)
        scale = exact.norm().item() or 1.0
        noise = max((values.double() - exact).norm().item() for values in (rounded, moved)) / scale
        limit = max(2e-6, 30 * noise)
        for name, values in (("zoo", found), ("onnx", run_onnx(model, inputs))):
            error = (values.double().reshape(exact.shape) - exact).norm().item() / scale
            if not error <= limit:
                raise Failed(Kind.WRONG, "onnx", f"evaluation by {name} differs from PyTorch's by {error:.1e}, PyTorch's f32 by {noise:.1e}", error=error)

    def command(self, *arguments: object, threads: str = "1") -> tuple[int, str, str]:
        environment = {**os.environ, "RAYON_NUM_THREADS": threads, "NO_COLOR": "1"}
        told = [self.zoo, *map(str, arguments), "--quiet"]
        try:
            done = subprocess.run(told, capture_output=True, text=True, timeout=LIMIT, env=environment, check=False)
        except subprocess.TimeoutExpired:
            raise Failed(Kind.HANG, str(arguments[0]), f"more than {LIMIT} s: {' '.join(told)}") from None
        if done.returncode < 0 or done.returncode == 70 or "panicked" in done.stderr:
            raise Failed(Kind.CRASH, str(arguments[0]), f"exit {done.returncode}: {done.stderr}")
        return done.returncode, done.stdout, done.stderr


def evaluated(network: nn.Module, inputs: dict[str, torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    (given,) = inputs.values()
    return network(given.to(dtype, copy=True) if given.is_floating_point() else given.long())


def run_onnx(model: Path, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """By onnxruntime where it is installed, otherwise by ONNX's reference."""
    given: dict[str, Any] = {name: value.numpy() for name, value in inputs.items()}
    try:
        import onnxruntime
    except ModuleNotFoundError:
        from onnx.reference import ReferenceEvaluator

        (values, *_) = ReferenceEvaluator(str(model)).run(None, given)
        return torch.as_tensor(values)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), settings, providers=["CPUExecutionProvider"])
    types = {value.name: value.type for value in session.get_inputs()}
    given = {name: value.astype("int64") if types[name] == "tensor(int64)" else value for name, value in given.items()}
    return torch.from_numpy(session.run(None, given)[0])


def describe(report: dict, failed: list[dict]) -> str:
    worst = failed[0]["worst"] or {}
    note = worst.get("note") or ""
    first = report.get("first_divergence") or {}
    return f"{failed[0]['stage']}: {worst.get('name')} error {worst.get('error')} floor {worst.get('floor')} {note} at {first.get('line')}".strip()


def worst(failed: list[dict]) -> float:
    errors = [stage["worst"].get("error") for stage in failed if stage["worst"]]
    return max((math.inf if error is None else error for error in errors), default=0.0)


@contextlib.contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    begun = time.perf_counter()
    try:
        yield
    finally:
        seconds[name] = round(time.perf_counter() - begun, 3)
