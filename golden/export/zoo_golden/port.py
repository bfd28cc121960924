"""python -m zoo_golden port torchvision:resnet18 -o my_nets: makes trace, recipe, weights, golden and check of a network."""

import argparse
import ast
import copy
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from .__main__ import SETTINGS, checked, golden, optimizer, training_options
from .batch import Batch
from .networks import build, still
from .optimizers import section
from .trace import TraceError, trace

TRACED_BATCH = 61
"""Samples of the traced batch: a prime that is no other extent, so that the batch is told apart from them."""

_LARGE = 5_000_000
"""Parameters of a large network."""

USUAL_MOMENTUM = 0.9
"""Momentum of the optimizers that have one, unless it is given."""


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="zoo_golden port",
        description="Write the recipe of a classifier of images or tokens, its weights, and the golden of three training steps, and compare recipe and "
        "golden against each other. DIR gets recipes/NAME.yaml, NAME.safetensors, golden/NAME/step.* and NAME.trace.json; the command "
        "`zoo` does the part after the trace.",
        epilog="Examples: python -m zoo_golden port torchvision:efficientnet_b0 --classes 10 --image-size 96 --batch 2 -o my_nets; "
        "python -m zoo_golden port transformers:GPT2LMHeadModel --classes 50257 --tokens 64 --no-lifted -o my_nets",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("model", help="torchvision:NAME, timm:NAME, transformers:CLASS or MODULE:FACTORY, called with num_classes")
    add("-o", "--output", required=True, metavar="DIR")
    add("--name", help="name of the recipe; by default the name of the model")
    add("--arg", action="append", default=[], metavar="KEY=VALUE", type=_keyword, help="additional argument of the factory, or of the configuration (transformers)")
    add("--trace-only", action="store_true", help="stop after NAME.trace.json")
    add("--no-golden", action="store_true", help="stop after the recipe")
    add("--no-check", action="store_true", help="stop after the golden")
    add("--zoo", default=os.environ.get("ZOO", "zoo"), help="path of the command zoo; by default from the environment variable ZOO, or the PATH")
    add("--lr", type=float)
    training_options(parser)
    parser.set_defaults(batch=2, classes=1000, lr=1e-2, momentum=None)
    options = checked(parser, parser.parse_args(arguments))
    if options.l2_in_loss:
        parser.error("--l2-in-loss is not written to the recipe; --weight-decay is")
    if options.momentum is None:
        options.momentum = USUAL_MOMENTUM if options.optimizer in SETTINGS["momentum"] else 0.0
    return options


def _keyword(text: str) -> tuple[str, object]:
    key, _, value = text.partition("=")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, value


def port(options: argparse.Namespace) -> int:
    """Returns the exit code of the last command."""
    name = options.name or options.model.rpartition(":")[2].rpartition(".")[2].lower()
    folder = Path(options.output)
    recipe, manifest, traced = folder / f"recipes/{name}.yaml", f"{name}/step.json", folder / f"{name}.trace.json"
    network = build(options.model, options.classes, **dict(options.arg)).train()
    document = trace_network(network, options) | {"training": training(options, network, manifest)}
    folder.mkdir(parents=True, exist_ok=True)
    traced.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{traced}: {count(document['root'])} calls", file=sys.stderr)
    if options.trace_only:
        return 0
    command = shutil.which(options.zoo)
    if command is None:
        print(f"{options.zoo} is not there: install zoo, or say where it is with --zoo or ZOO", file=sys.stderr)
        return 3
    code = subprocess.run([command, "import", traced, "--out", recipe, "--name", name, "--force"]).returncode
    if code:
        return code
    save_weights(network, folder / f"{name}.safetensors")
    if options.no_golden:
        return 0
    still(network)
    golden(options, network, folder / f"golden/{name}/step", moved_runs(network))
    if options.no_check:
        return 0
    return subprocess.run([command, "check", recipe, "--dtype", "f64"]).returncode


def moved_runs(network: nn.Module) -> int:
    """Three perturbed runs tell more of the conditioning of a step than one; large networks have no memory for them."""
    return 3 if sum(parameter.numel() for parameter in network.parameters()) < _LARGE else 1


def trace_network(network: nn.Module, options: argparse.Namespace) -> dict:
    """The trace of a network for the batch that the options describe; the network itself stays where it is."""
    starts = {key: start for key, tensor in network.named_parameters() if (start := constant(tensor)) is not None}
    tensors = [*network.parameters(), *network.buffers()]
    without_numbers = copy.deepcopy(network, {id(tensor): _on_meta(tensor) for tensor in tensors})
    batch = Batch.of(network, options, TRACED_BATCH)
    return trace(
        without_numbers,
        batch.on_meta(),
        batch.forward,
        name=options.model,
        classes=options.classes,
        starts=starts,
        buffers=dict(network.named_buffers()),
    )


def _on_meta(tensor: torch.Tensor) -> torch.Tensor:
    moved = tensor.detach().to("meta")
    return nn.Parameter(moved, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else moved


def constant(tensor: torch.Tensor) -> float | None:
    """The value of all elements, if there is only one."""
    flat = tensor.detach().flatten()
    return flat[0].item() if flat.numel() and flat[0] == flat[-1] and bool((flat == flat[0]).all()) else None


def save_weights(network: nn.Module, path: Path) -> None:
    """All that the state_dict holds, a tensor with several names under the first."""
    named = {id(tensor): key for key, tensor in reversed(network.state_dict(keep_vars=True).items())}
    state = network.state_dict()
    save_file({key: state[key].contiguous() for key in reversed(named.values())}, path)


def training(options: argparse.Namespace, network: nn.Module, manifest: str) -> dict:
    """What the recipe says of loss and optimizer."""
    return {
        "batch": options.batch,
        "lr": options.lr,
        "label_smoothing": options.label_smoothing,
        **section(optimizer(options, network), network),
        "clip_grad_norm": options.clip_grad_norm,
        "golden": manifest,
    }


def count(call: dict) -> int:
    return 1 + sum(count(inner) for inner in call.get("body", ()))


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    try:
        return port(options)
    except TraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
