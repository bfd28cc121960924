"""python -m zoo_golden prove DIR: proves that a program in MindSpore that `zoo emit` wrote is its recipe.

The program takes training steps in f32 on this machine, from the weights and inputs of the golden. They are recorded, and `zoo judge`
judges the outputs of all modules, the losses, the gradients and the parameters. Its exit code is the verdict.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import mindspore
import numpy as np
from mindspore import nn
from safetensors.numpy import load_file

from .capture_mindspore import Capture
from .program import MISSING, Program, ProofError, goldens


def prove(options: argparse.Namespace) -> int:
    program = Program.read(Path(options.folder))
    golden = next((path for path in goldens(program, options.golden) if path.exists()), None)
    if golden is None:
        raise ProofError(f"not compared: {program.without_golden()}")
    recipe = program.folder / "recipe.yaml"
    with tempfile.TemporaryDirectory() as folder:
        begin, recorded = Path(folder) / "begin", Path(options.record or Path(folder) / "recorded")
        command = [options.zoo, "golden", "inputs", recipe, "--golden", golden, "-o", begin, "--quiet"]
        if subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode:
            raise ProofError("the golden's step cannot be started")
        # In a process of its own, so that the judge has the memory.
        recorder = multiprocessing.get_context("spawn").Process(target=fit_and_record, args=(program, begin, recorded, options.zoo, options.steps))
        recorder.start()
        recorder.join()
        if recorder.exitcode:
            raise ProofError("the program fails")
        judge = [options.zoo, "judge", recipe, recorded, "--golden", golden]
        print(f"MindSpore {mindspore.__version__} on {mindspore.get_context('device_target')}", flush=True)
        return subprocess.run(judge, check=False).returncode


def fit_and_record(program: Program, begin: Path, recorded: Path, zoo: str, steps: int) -> None:
    """Records a program for the sizes of the golden."""
    try:
        record(fitting(program, begin, zoo, begin.parent), begin, recorded, steps)
    except ProofError as error:
        sys.exit(str(error))


def fitting(program: Program, begin: Path, zoo: str, folder: Path) -> Program:
    """The program for the conditions of the golden."""
    shapes = {name: list(array.shape) for name, array in load_file(begin / "weights.safetensors").items()}
    own = {name: list(parameter.shape) for name, parameter in program.module("weights").state(program.network()).items()}
    inputs = {name: list(array.shape[1:]) for name, array in load_file(begin / "inputs.safetensors").items()}
    return program.fitting(shapes, own, inputs, zoo, folder)


def record(program: Program, begin: Path, recorded: Path, steps: int) -> None:
    """Records steps of the program that begin with the golden's weights, each on its inputs."""
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    network = program.network().set_train()
    still(network)
    program.module("weights").load(network, begin / "weights.safetensors")
    batch = inputs(begin / "inputs.safetensors")
    conditions = json.loads((begin / "step.json").read_text())
    rules = program.module("train" if (program.folder / "train.py").exists() else "rules")
    rule = rules.optimizer(network)
    rules.set_rate(rule, rate(rules, rule, program.module("weights").parameters(network), conditions))
    average = rules.Average(network) if hasattr(rules, "Average") else None
    given = [batch[name] for name in program.inputs]
    further = [network] if "network" in rules.loss.__code__.co_varnames[: rules.loss.__code__.co_argcount] else []
    names: list[str] = []

    def forward():
        terms = rules.loss(network(*given), batch, *further)
        names[:] = terms
        return terms["loss"], *terms.values()

    step = mindspore.value_and_grad(forward, None, rule.parameters, has_aux=True)
    for number in range(steps):
        with Capture(recorded, network, rule, step=number if steps > 1 else None) as capture:
            (_, *terms), gradients = step()
            for name, term in zip(names, terms, strict=True):
                capture.loss(term, name)
            capture.gradients(gradients)
            rule(rules.clipped(gradients) if hasattr(rules, "clipped") else gradients)
            if average is not None:
                average.follow(rule.done)
                for kept, own in zip(average.kept, average.own, strict=True):
                    kept.name = own.name
                capture.average(average.kept)


def still(network: nn.Cell) -> None:
    """Switches off what leaves results to chance."""
    for _, cell in network.cells_and_names():
        if isinstance(cell, nn.Dropout):
            cell.p = 0
        elif isinstance(cell, nn.MultiheadAttention):
            cell.dropout = 0.0
    mindspore.ops.dropout = lambda x, *_, **__: x


def inputs(path: Path) -> dict[str, mindspore.Tensor]:
    """The inputs of the step; whole numbers as MindSpore wants them."""
    arrays = load_file(path)
    kinds = {name: np.float32 if np.issubdtype(array.dtype, np.floating) else np.int32 for name, array in arrays.items()}
    batch = {name: mindspore.Tensor(array.astype(kinds[name])) for name, array in arrays.items()}
    if "label" in batch and "mixed_label" not in batch:
        # A golden whose samples are not mixed: each label counts whole.
        batch |= {"mixed_label": batch["label"], "label_share": mindspore.ops.ones(len(batch["label"]))}
    return batch


def rate(rules, rule, parameters: dict[str, mindspore.Parameter], conditions: dict) -> float:
    """The learning rate of the golden's steps, before the factors of groups."""
    rules.set_rate(rule, 1.0)
    names = {id(parameter): name for name, parameter in parameters.items()}
    own = {names[id(parameter)]: group["lr"] for group in rule.param_groups for parameter in group["params"]}
    theirs = {name: group["lr"] for group in conditions["optimizer"]["groups"] for name in group["params"]}
    first = next(name for name in theirs if name in own)
    return theirs[first] / own[first]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="zoo_golden prove", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("folder", metavar="DIR", help="the program that `zoo emit` wrote")
    add("--golden", metavar="FILE", help="manifest of the golden; by default the one that the recipe names, in `golden` of a folder above")
    add("--steps", type=int, default=1, help="training steps (1)")
    add("--record", metavar="DIR", help="keep the recording")
    add("--zoo", default=os.environ.get("ZOO", "zoo"), help="path of the command zoo; by default from the environment variable ZOO, or the PATH")
    options = parser.parse_args(arguments)
    try:
        return prove(options)
    except ProofError as error:
        print(error, file=sys.stderr)
        return MISSING
    except FileNotFoundError as error:
        print(f"{options.zoo} is not there: install zoo, or say where it is with --zoo or ZOO ({error})", file=sys.stderr)
        return MISSING
