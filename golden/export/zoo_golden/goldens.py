"""Goldens of classifiers: python -m zoo_golden --model torchvision:resnet18 --lr 0.1 --momentum 0.9 -o ../resnet18/step"""

import argparse
import copy
import sys
import warnings
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import torch
from torch import nn

from . import export, gain_rules, grouped
from .batch import Batch
from .conditions import NORMALISATIONS
from .losses import KINDS, Loss, Term, fitted, natural
from .networks import StillFunctions, load
from .optimizers import optimizer_class, usual
from .trace import named_tensors

OPTIMIZERS = ("sgd", "adam", "adamw", "rmsprop", "rmsprop_tf", "adagrad", "lamb")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="zoo_golden",
        description="Record three training steps of a classifier of images or tokens as a golden. "
        "For other losses, inputs or optimizers call zoo_golden.export.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--model", required=True, help="torchvision:NAME, timm:NAME, transformers:CLASS or MODULE:FACTORY; dropout is set to 0")
    add("--name", help="name of the model in the golden; by default the name of the model")
    add("--lr", type=float, required=True)
    add("-o", "--output", required=True, help="path without extension")
    training_options(parser)
    return checked(parser, parser.parse_args(arguments))


def training_options(parser: argparse.ArgumentParser) -> None:
    """What the step is: batch, loss, optimizer, initial values."""
    add = parser.add_argument
    add("--batch", type=int, default=4)
    add("--classes", type=int, default=1000)
    add("--image-size", "--size", type=int, default=224)
    add("--channels", type=int, default=3, help="number of image channels")
    add(
        "--tokens",
        type=int,
        metavar="N",
        help="samples are N tokens of --classes kinds, and the network gives scores for each token; by default images",
    )
    add(
        "--indices",
        metavar="NAME=N",
        action="append",
        default=[],
        type=_indices,
        help="with --tokens, a further argument of the network: an index below N for each token",
    )
    add(
        "--input",
        metavar="NAME=SHAPE",
        action="append",
        default=[],
        type=_input,
        help="an argument of the network: 3x32x32 for numbers, 16:50 for indices below 50; the first is the image, or the tokens, unless it is given",
    )
    add(
        "--loss",
        metavar="[OUTPUT=]KIND",
        action="append",
        default=[],
        type=_loss,
        help=f"{', '.join(KINDS)}, of an output of the network by its key; several are summed; by default cross_entropy of scores of --classes classes (of `logits` alone, if they are some), and mse of each other output and random numbers",
    )
    add("--target", metavar="NAME", help="what numbers are compared with, if not with an input of its own: an argument of the network")
    add("--ignore", type=int, metavar="LABEL", help="a label that cross entropy leaves out; one more than --classes has it")
    add("--salt", default="", help="prefix of every hashed name, except those of samples")
    add(
        "--gain",
        metavar="PATTERN=VALUE",
        action="append",
        default=[],
        type=_gain,
        help="scale of initial parameters by shell pattern; the last match wins",
    )
    add("--optimizer", choices=OPTIMIZERS, default="sgd", help="optimizer of torch; rmsprop_tf (TensorFlow's form) and lamb are those of timm")
    add("--momentum", type=float, default=0.0, help="momentum of SGD and RMSprop; 0.9 if port is not told")
    add("--nesterov", action="store_true", help="use Nesterov momentum (SGD)")
    add("--alpha", type=float, help="alpha of RMSprop; by default that of the optimizer")
    add("--centered", action="store_true", help="divide by the deviation of the gradient (RMSprop)")
    add("--beta1", type=float, help="by default that of the optimizer (Adam, AdamW, LAMB)")
    add("--beta2", type=float, help="the same")
    add("--lr-decay", type=float, help="decay of the learning rate in Adagrad")
    add("--initial-accumulator-value", type=float, help="start of the sum of squares in Adagrad")
    add("--eps", type=float, help="eps of all optimizers except SGD; by default that of the optimizer")
    add("--weight-decay", type=float, help="by default that of the optimizer")
    add(
        "--no-decay",
        default="",
        help="parameters without weight decay, comma-separated: bn (normalisations), bias (whose names end with bias, normalisations too), dense (dense layers), positions (tables of relative positions)",
    )
    add("--l2-in-loss", type=float, default=0.0, help="coefficient of half the squared norm of all parameters in the loss")
    add("--label-smoothing", type=float, default=0.0)
    add("--clip-grad-norm", type=float)
    add("--samples", type=int, default=64, help="number of stored values per tensor with more than 64 elements")
    add("--no-lifted", action="store_true", help="omit the variant `lifted`, for networks in which its gradients vanish")
    add("--threads", type=int, default=2)


def checked(parser: argparse.ArgumentParser, options: argparse.Namespace) -> argparse.Namespace:
    """Options that go together."""
    options.no_decay = set(filter(None, options.no_decay.split(",")))
    if options.no_decay - {"bn", "bias", "dense", "positions"}:
        parser.error("--no-decay takes bn, bias, dense and positions")
    if options.indices and not options.tokens:
        parser.error("--indices is for --tokens")
    for setting, takers in SETTINGS.items():
        if getattr(options, setting) and options.optimizer not in takers:
            parser.error(f"--{_flag(setting)} is for {' and '.join(takers)}")
    if options.weight_decay is None:
        options.weight_decay = usual(options.optimizer, "weight_decay")
    for setting in ("eps", "clip_grad_norm"):
        if (value := getattr(options, setting)) is not None and value <= 0:
            parser.error(f"--{_flag(setting)} must be above 0")
    for setting in ("momentum", "alpha", "beta1", "beta2", "label_smoothing"):
        if not 0 <= (getattr(options, setting) or 0) < 1:
            parser.error(f"--{_flag(setting)} must be at least 0 and below 1")
    for setting in ("weight_decay", "lr_decay", "initial_accumulator_value"):
        if (getattr(options, setting) or 0) < 0:
            parser.error(f"--{_flag(setting)} must not be negative")
    return options


def _flag(setting: str) -> str:
    return setting.replace("_", "-")


def optimizer(options: argparse.Namespace, network: nn.Module) -> torch.optim.Optimizer:
    """The optimizer that the options describe: the only source of its settings, for golden and recipe."""

    def decays(module: nn.Module, local: str) -> bool:
        if isinstance(module, NORMALISATIONS) and "bn" in options.no_decay:
            return False
        if isinstance(module, nn.Linear) and "dense" in options.no_decay:
            return False
        if local == "relative_position_bias_table":
            return "positions" not in options.no_decay
        return not (local.endswith("bias") and "bias" in options.no_decay)

    groups = grouped(network, options.lr, options.weight_decay, decays)
    given = {name: getattr(options, name) for name, takers in SETTINGS.items() if options.optimizer in takers}
    settings = {name: value for name, value in given.items() if value is not None}
    own = usual(options.optimizer, "betas")
    betas = tuple(settings.pop(name, default) for name, default in zip(("beta1", "beta2"), own or ()))
    settings |= {"betas": betas} if own else {}
    settings |= {"max_grad_norm": None} if options.optimizer == "lamb" else {}
    return optimizer_class(options.optimizer)(groups, **settings)


SETTINGS = {
    "momentum": ("sgd", "rmsprop", "rmsprop_tf"),
    "nesterov": ("sgd",),
    "alpha": ("rmsprop", "rmsprop_tf"),
    "centered": ("rmsprop", "rmsprop_tf"),
    "beta1": ("adam", "adamw", "lamb"),
    "beta2": ("adam", "adamw", "lamb"),
    "lr_decay": ("adagrad",),
    "initial_accumulator_value": ("adagrad",),
    "eps": ("adam", "adamw", "rmsprop", "rmsprop_tf", "adagrad", "lamb"),
}
"""Which optimizers have a setting, beside learning rate and decay."""


def _input(text: str) -> tuple[str, tuple[tuple[int, ...], int | None]]:
    name, _, written = text.partition("=")
    extents, _, count = written.partition(":")
    return name, (tuple(map(int, extents.split("x"))), int(count) if count else None)


def _loss(text: str) -> tuple[str | None, str]:
    key, _, kind = text.rpartition("=")
    if kind not in KINDS:
        raise argparse.ArgumentTypeError(f"{kind!r} is none of {', '.join(KINDS)}")
    return key or None, kind


def _indices(text: str) -> tuple[str, int]:
    name, _, count = text.partition("=")
    return name, int(count)


def _gain(text: str) -> tuple[str, float]:
    pattern, _, value = text.rpartition("=")
    return pattern, float(value)


def main(arguments: list[str] | None = None) -> dict:
    options = parse(arguments)
    return golden(options, load(options.model, options.classes), options.output)


def terms(options: argparse.Namespace, given: dict[str, tuple[int, ...]], inputs: dict[str, tuple[int, ...]]) -> tuple[Term, ...]:
    """The terms of the loss that the options name, for outputs and inputs of these shapes."""
    return fitted(options.loss or natural(given, options.classes), given, options.classes, inputs, options.target)


def _judged(options: argparse.Namespace, network: nn.Module, batch: Batch) -> tuple[Term, ...]:
    """The terms for what a network gives."""
    with torch.no_grad():
        given = batch.forward(copy.deepcopy(network), {key: given.values for key, given in batch.inputs.items()})
    return terms(options, {key: tuple(tensor.shape[1:]) for key, tensor in named_tensors(given) if tensor.is_floating_point()}, batch.shapes())


def _samples_first(forward: Callable, turned: Collection[str], network: nn.Module, inputs: dict[str, torch.Tensor]) -> object:
    """What a network gives, where its second axis are the samples as in all other outputs."""
    given = forward(network, inputs)
    if not any(key.startswith("@root#0") for key in turned):
        return given
    named = ((key, tensor, "@root#0" + (f".{key}" if key else "")) for key, tensor in named_tensors(given))
    return {key: tensor.transpose(0, 1) if name in turned else tensor for key, tensor, name in named}


def golden(options: argparse.Namespace, network: nn.Module, path: str | Path, judged: tuple[Term, ...] | None = None, **moves) -> dict:
    """Writes the golden of a network that leaves nothing to chance. judged: the terms of the loss, if they are known. moves: `moved_runs`,
    `last_place` and `turned` of `export`."""
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", message="TF32 acceleration on top of oneDNN")  # from switching oneDNN off and on
    has_dropout = any(isinstance(module, nn.modules.dropout._DropoutNd) for module in network.modules())

    hyper = {"label_smoothing": options.label_smoothing, "dropout": 0.0 if has_dropout else None}
    hyper |= {"l2_in_loss": options.l2_in_loss} if options.l2_in_loss else {"weight_decay": options.weight_decay}
    batch = Batch.of(network, options, options.batch)
    loss = Loss(judged or _judged(options, network, batch), options.label_smoothing, options.l2_in_loss, options.ignore)
    with StillFunctions():
        document = export(
            path,
            network,
            loss,
            partial(optimizer, options),
            loss.targets(options.batch, options.classes, options.salt) | batch.inputs,
            forward=partial(_samples_first, batch.forward, moves.get("turned", ())),
            name=options.name or options.model.rpartition(":")[2],
            salt=options.salt,
            gain=gain_rules(options.gain),
            clip_grad_norm=options.clip_grad_norm,
            hyper=hyper,
            samples=options.samples,
            lifted_variant=not options.no_lifted,
            **moves,
        )
    losses = ", ".join(f"{step['loss']:.6f}" for step in document["losses_f64"])
    print(f"{path}: losses {losses}", file=sys.stderr)
    for kind, floor in document["noise_floor"].items():
        print(f"  {kind:14} f32 floor: median {floor['median']:.1e}, max {floor['max']:.1e} at {floor['max_at']}", file=sys.stderr)
    return document
