"""python -m zoo_golden port torchvision:resnet18 -o my_nets: makes trace, recipe, weights, golden and check of a network."""

import argparse
import ast
import copy
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from .batch import Batch
from .goldens import SETTINGS, checked, golden, optimizer, terms, training_options
from .losses import KINDS, Term, Unfit
from .networks import build, exact_buffers, still
from .optimizers import section
from .trace import TraceError, batch_sizes, trace

LARGEST_TRACE = 64 << 20
"""Bytes of the largest trace that `zoo import` reads."""

_LARGE = 5_000_000
"""Parameters of a large network."""

USUAL_MOMENTUM = 0.9
"""Momentum of the optimizers that have one, unless it is given."""


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="zoo_golden port",
        description="Write the recipe of a network, its weights, and the golden of three training steps, and compare recipe and golden against each "
        "other. DIR gets recipes/NAME.yaml, NAME.safetensors, golden/NAME/step.* and NAME.trace.json; the command "
        "`zoo` does the part after the trace.",
        epilog="Examples: python -m zoo_golden port torchvision:efficientnet_b0 --classes 10 --image-size 96 --batch 2 -o my_nets; "
        "python -m zoo_golden port transformers:GPT2LMHeadModel --classes 50257 --tokens 64 --no-lifted -o my_nets",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("model", help="torchvision:NAME, timm:NAME, transformers:CLASS or MODULE:FACTORY, called with num_classes")
    add("-o", "--output", required=True, metavar="DIR")
    add("--name", help="name of the recipe; by default the name of the model")
    add(
        "--arg",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        type=_keyword,
        help="additional argument of the factory, or of the configuration (transformers)",
    )
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
    network = built(options).train()
    exact = exact_buffers(network, lambda: built(options))
    document = trace_network(network, options, exact)
    judged = fitted(document, options)
    document |= {"training": training(options, network, manifest, judged)}
    text = json.dumps(document, separators=(",", ":"))
    if len(text) > LARGEST_TRACE:
        raise TraceError(_too_large(document, len(text)))
    folder.mkdir(parents=True, exist_ok=True)
    traced.write_text(text + "\n")
    print(f"{traced}: {count(document['root'])} calls", file=sys.stderr)
    if not options.loss and not isinstance(judged, str):
        print(f"loss: {', '.join(map(told, judged))}", file=sys.stderr)
    if options.trace_only:
        return 0
    # A wheel installs the command beside this interpreter, whose environment need not be active.
    command = shutil.which(options.zoo) or shutil.which(options.zoo, path=os.path.dirname(sys.executable))
    if command is None:
        print(f"{options.zoo} is not there: install zoo, or say where it is with --zoo or ZOO", file=sys.stderr)
        return 3
    code = subprocess.run([command, "import", traced, "--out", recipe, "--name", name, "--force"], check=False).returncode
    if code:
        return code
    imported = subprocess.run([command, "import", traced, "--name", name, "--format", "json"], check=True, capture_output=True)
    save_weights(network, folder / f"{name}.safetensors")
    if options.no_golden:
        return 0
    if isinstance(judged, str):
        raise TraceError(f"{recipe} is written, but no golden: {judged}; --no-golden stops after the recipe")
    still(network)
    network.constant_modules = constant_modules(document["root"])
    network.shown = frozenset(json.loads(imported.stdout).get("outputs", ()))
    try:
        golden(options, network, folder / f"golden/{name}/step", judged=judged, moved_runs=moved_runs(network), exact=exact, turned=turned(document))
    except (RuntimeError, TypeError, ValueError, IndexError, KeyError) as error:
        raise TraceError(f"{recipe} is written, but no golden: the network fails in f64 or f32 on real numbers: {type(error).__name__}: {error}") from error
    if options.no_check:
        return 0
    return subprocess.run([command, "check", recipe, "--dtype", "f64"], check=False).returncode


def moved_runs(network: nn.Module) -> int:
    """Three perturbed runs tell more of the conditioning of a step than one; large networks have no memory for them."""
    return 3 if sum(parameter.numel() for parameter in network.parameters()) < _LARGE else 1


def built(options: argparse.Namespace) -> nn.Module:
    try:
        return build(options.model, options.classes, **dict(options.arg))
    except Exception as error:
        raise TraceError(f"{options.model}: the factory fails with num_classes={options.classes}: {type(error).__name__}: {error}") from error


def trace_network(network: nn.Module, options: argparse.Namespace, exact: Mapping[str, torch.Tensor] | None = None) -> dict:
    """The trace of a network for the batch that the options describe; the network itself stays where it is. exact: values of constant buffers
    in f64."""
    starts = {key: start for key, tensor in network.named_parameters() if (start := constant(tensor)) is not None}
    without_numbers = on_meta(network)
    given = {options.classes, options.channels, options.image_size, options.tokens or 0, *dict(options.indices).values()}
    given |= {number for shape, count in dict(options.input).values() for number in (*shape, count or 0)}
    try:
        batch = Batch.of(network, options, next(batch_sizes(network, given)))
    except ValueError as error:
        raise TraceError(f"{options.model}: {error}") from error
    return trace(
        without_numbers,
        batch.on_meta(),
        batch.forward,
        name=options.model,
        classes=options.classes,
        starts=starts,
        spreads=spreads(network),
        buffers=dict(network.named_buffers()) | dict(exact or {}),
    )


def fitted(document: dict, options: argparse.Namespace) -> tuple[Term, ...] | str:
    """The terms of the loss for what a traced network gives, or why it has none."""
    made = {made["value"]: made["shape"] for made in _made(document["root"]) if "float" in made["dtype"]}
    shapes = {key: made.get(output.get("value"), []) for key, output in document["outputs"].items()}
    samples = [document["batch"]]
    given = {key: tuple(shape[1:]) for key, shape in shapes.items() if shape[:1] == samples}
    given |= {key: (shape[0], *shape[2:]) for key, shape in shapes.items() if shape[1:2] == samples != shape[:1]}
    if not given:
        return "the network gives nothing for each sample: a loss inside a network is written beside it"
    inputs = {key: tuple(given["shape"][1:]) for key, given in document["inputs"].items()}
    try:
        return terms(options, given, inputs)
    except Unfit as error:
        return str(error)


def constant_modules(root: dict) -> frozenset[str]:
    """The modules that give constants alone, as tables of a fixed time: no layer of a recipe gives what they give."""

    def walk(call: dict) -> Iterator[dict]:
        yield call
        for inner in call.get("body", ()):
            yield from walk(inner)

    modules = [call for call in walk(root) if call.get("module") and call["outputs"]]
    gives_more = {call["module"] for call in modules if not all("constant" in given for given in call["outputs"].values())}
    return frozenset(call["module"] for call in modules) - gives_more


def turned(document: dict) -> frozenset[str]:
    """The outputs of modules whose second axis are the samples."""
    shapes = {made["value"]: made["shape"] for made in _made(document["root"])}

    def of(call: dict) -> Iterator[str]:
        for inner in call.get("body", ()):
            yield from of(inner)
        for key, output in call["outputs"].items() if "module" in call else ():
            shape = shapes.get(output.get("value"), [])
            if shape[1:2] == [document["batch"]] != shape[:1]:
                yield f"{call['module'] or '@root'}#{call['call']}" + (f".{key}" if key else "")

    return frozenset(of(document["root"]))


def told(term: Term) -> str:
    """A term for people."""
    of = "".join(f" of `{key}`" for key in term.outputs if key)
    return f"{term.kind}{of} {list(term.shape)}" + ("" if term.target is None else f" and `{term.target}`")


def _made(call: dict) -> Iterator[dict]:
    """The tensors that functions make."""
    for inner in call.get("body", ()):
        yield from _made(inner)
    if "function" in call:
        yield from call["outputs"].values()


def _too_large(document: dict, size: int) -> str:
    constants = sum(len(one["values"]) for part in (document, document["evaluation"]) for one in part["constants"])
    return (
        f"the trace would have {size >> 20} MiB, and `zoo import` reads at most {LARGEST_TRACE >> 20}: {count(document['root'])} calls, and "
        f"{constants >> 20} MiB of constant tensors; a smaller --image-size or fewer --tokens make constants smaller, fewer iterations the calls"
    )


def on_meta(network: nn.Module) -> nn.Module:
    """A copy of a network without its numbers."""
    computed = (value for module in network.modules() for value in vars(module).values() if isinstance(value, torch.Tensor))
    return copy.deepcopy(network, {id(tensor): _on_meta(tensor) for tensor in (*network.parameters(), *network.buffers(), *computed)})


def _on_meta(tensor: torch.Tensor) -> torch.Tensor:
    moved = tensor.detach().to("meta")
    return nn.Parameter(moved, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else moved


def constant(tensor: torch.Tensor) -> float | None:
    """The value of all elements, if there is only one."""
    flat = tensor.detach().flatten()
    if not flat.numel() or flat[0] != flat[-1] or not bool((flat == flat[0]).all()):
        return None
    # 1e-6, as it was typed, and not the f32 next to it.
    return float(str(flat[0].numpy())) if flat.dtype is torch.float32 else flat[0].item()


def spreads(network: nn.Module) -> dict[str, float]:
    """Standard deviations of the initial values of parameters that several modules share, by their first names."""
    names = Counter(id(tensor) for _, tensor in network.named_parameters(remove_duplicate=False))
    shared = ((key, tensor) for key, tensor in network.named_parameters() if names[id(tensor)] > 1 and tensor.numel() > 1)
    return {key: spread for key, tensor in shared if (spread := float(f"{tensor.detach().std().item():.2g}")) > 0}


def save_weights(network: nn.Module, path: Path) -> None:
    """All that the state_dict holds, a tensor with several names under the first."""
    named = {id(tensor): key for key, tensor in reversed(network.state_dict(keep_vars=True).items())}
    state = network.state_dict()
    save_file({key: state[key].contiguous() for key in reversed(named.values())}, path)


def training(options: argparse.Namespace, network: nn.Module, manifest: str, judged: tuple[Term, ...] | str = "") -> dict:
    """What the recipe says of loss and optimizer."""
    losses = [
        {"kind": term.kind, "outputs": list(term.outputs), "target": term.target, "name": None if term.name in KINDS else term.name}
        for term in ([] if isinstance(judged, str) else judged)
    ]
    return {
        "losses": losses,
        "batch": options.batch,
        "lr": options.lr,
        "label_smoothing": options.label_smoothing,
        "ignore": options.ignore,
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
