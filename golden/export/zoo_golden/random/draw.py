"""Draws a case: a network, and the options of its training step."""

import random
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ..goldens import OPTIMIZERS, SETTINGS
from . import maps, planted, pointwise, rows, shapes, structures, tokens  # noqa: F401
from .program import HEAD, Node, Program, Unfit, Value, Written, extend
from .structures import draw_node
from .vocabulary import WORDS, writers

KINDS = ("image", "image", "image", "tokens")


@dataclass
class Case:
    """A network as a program, and the options of `port`."""

    seed: int
    number: int
    kind: str
    shape: tuple[int, ...]
    classes: int
    program: Program
    options: dict[str, object] = field(default_factory=dict)
    planted: str | None = None

    @property
    def name(self) -> str:
        return f"net_{self.seed}_{self.number}"


class Source:
    """The source of a case's network, and what of the vocabulary it uses."""

    def __init__(self, case: Case):
        self.written, values = started(case)
        told: list[str] = []
        for place, node in enumerate(case.program.nodes):
            begun = len(self.written.lines)
            values.append(extend(self.written, node, values, writers(), None, str(place)))
            if node.word == case.planted:
                told = self.written.lines[begun:]
        self._planted = told
        result = head(self.written, values, case)
        text = self.written.source("Net", result, ", num_classes")
        self.text = "\n\n".join([HEAD, *self.written.classes, text, "def net(num_classes):\n    return Net(num_classes)\n"])
        self.tags = self.written.tags

    def planted_lines(self) -> range:
        """Numbers of the lines of what was planted."""
        lines = self.text.splitlines()
        first = lines.index(f"        {self._planted[0]}") + 1
        return range(first, first + len(self._planted))

    def network(self, classes: int) -> nn.Module:
        """The network itself."""
        known: dict[str, Any] = {"__name__": "drawn"}
        exec(self.text, known)  # noqa: S102
        return known["net"](classes)


def started(case: Case) -> tuple[Written, list[Value]]:
    """The first value: the image, or the embedded tokens."""
    if case.kind == "image":
        written = Written({"x": case.shape}, [])
        return written, [Value("x", case.shape)]
    written = Written({"ids": case.shape}, [], torch.int64)
    written.locals["num_classes"] = case.classes
    padding = f", padding_idx={case.options['padding']}" if "padding" in case.options else ""
    written.tags |= {"embedding.padding"} if padding else set()
    written.init(f"self.embedding = nn.Embedding(num_classes, {case.options['width']}{padding})")
    written.line("x = self.embedding(ids)")
    written.tags |= {"embedding", "embedding.rows", "embedding.size"}
    return written, [written.value("x")]


def head(written: Written, values: list[Value], case: Case) -> str:
    """Joins what nothing else reads, and gives scores of the classes."""
    read = {index for node in case.program.nodes for index in node.inputs}
    open_ends = [value for place, value in enumerate(values) if place not in read] or [values[-1]]
    written.locals["num_classes"] = case.classes
    if case.kind == "tokens":
        return _token_scores(written, open_ends, case)
    parts = [_vector(written, value, place) for place, value in enumerate(open_ends)]
    name = parts[0] if len(parts) == 1 else _line(written, "joined", f"torch.cat([{', '.join(parts)}], 1)")
    width = written.locals[name].shape[-1]
    if width > 4000:
        raise Unfit("head")
    written.init(f"self.head = nn.Linear({width}, num_classes)")
    written.tags |= {"linear", "linear.out"}
    return f"self.head({name})"


def _line(written: Written, name: str, text: str) -> str:
    written.line(f"{name} = {text}")
    return name


def _vector(written: Written, value: Value, place: int) -> str:
    """Features of a sample: the mean over the axes after the first, or all elements."""
    if value.rank == 1:
        return value.name
    count = 1
    for extent in value.shape:
        count *= extent
    forms = {3: f"{value.name}.mean((2, 3))", 2: f"{value.name}.mean(1)"}
    text = f"torch.flatten({value.name}, 1)" if count <= 200 else forms[value.rank]
    return _line(written, f"v{place}", text)


def _token_scores(written: Written, ends: list[Value], case: Case) -> str:
    """Scores for each token of the values that still have tokens; the others are left out."""
    length = case.shape[0]
    kept = [value for value in ends if value.rank == 2 and value.shape[0] == length]
    if len(kept) != len(ends):
        raise Unfit("ends without tokens")
    if case.options.get("tied") and len(kept) == 1 and kept[0].shape[-1] == case.options["width"]:
        bias = case.options["tied"] == "with bias"
        written.init(f"self.head = nn.Linear({case.options['width']}, num_classes, bias={bias})")
        written.init("self.head.weight = self.embedding.weight")
        written.tags |= {"unembed", "unembed.table", *(["unembed.bias"] if bias else [])}
        return f"self.head({kept[0].name})"
    name = kept[0].name if len(kept) == 1 else _line(written, "joined", f"torch.cat([{', '.join(value.name for value in kept)}], -1)")
    written.init(f"self.head = nn.Linear({written.locals[name].shape[-1]}, num_classes)")
    return f"self.head({name})"


def draw_case(seed: int, number: int) -> Case:
    """Case `number` of a seed: the same on every machine."""
    chance = random.Random(f"{seed} {number}")
    for _ in range(1000):
        case = _attempt(chance, seed, number)
        if case is not None:
            return case
    raise AssertionError("no network could be drawn")


def _attempt(chance: random.Random, seed: int, number: int) -> Case | None:
    kind = chance.choice(KINDS)
    classes = chance.choice((2, 3, 5, 7, 10, 13, 17))
    shape: tuple[int, ...]
    if kind == "image":
        size = chance.choice((8, 7, 9, 11, 12, 13, 16, 17))
        shape = (chance.choice((3, 3, 1, 2, 4)), size, size)
    else:
        shape = (chance.choice((5, 8, 12, 9)),)
    case = Case(seed, number, kind, shape, classes, Program(), draw_options(chance, kind))
    written, values = started(case)
    count = chance.randint(3, 15)
    refused = [name for name, entry in WORDS.items() if entry.refused]
    plant = chance.randrange(count) if refused and chance.random() < 0.12 else None
    for place in range(count):
        if place == plant:
            node = _plant(chance, written, values, refused, str(len(case.program.nodes)))
            case.planted = node.word if node else None
        else:
            node = draw_node(chance, written, values, str(len(case.program.nodes)))
        if node is not None:
            case.program.nodes.append(node)
    try:
        source = Source(case)
    except Unfit:
        return None
    return case if len(case.program.nodes) >= 2 and is_sound(source, case) else None


def is_sound(source: Source, case: Case) -> bool:
    """Whether PyTorch itself can differentiate the network, and its numbers are finite. It cannot if an operation in place overwrites
    what a gradient needs."""
    chance = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = source.network(case.classes)
        if case.kind == "image":
            inputs = torch.randn(2, *case.shape, generator=chance)
        else:
            inputs = torch.randint(0, case.classes, (2, *case.shape), generator=chance)
        try:
            loss = network(inputs).square().mean()
            loss.backward()
        except RuntimeError:
            return False
    reached = [parameter.grad for parameter in network.parameters()]
    return bool(loss.isfinite()) and all(gradient is not None and bool(gradient.isfinite().all()) for gradient in reached)


def _plant(chance: random.Random, written: Written, values: list[Value], refused: list[str], label: str) -> Node | None:
    fitting = [name for name in refused if values[-1].rank in WORDS[name].ranks and WORDS[name].arity == 1]
    for name in chance.sample(fitting, len(fitting)):
        node = Node(name, [len(values) - 1])
        try:
            values.append(extend(written, node, values, writers(), chance, label))
        except Unfit:
            continue
        return node
    return None


_OF_NETWORK = ("width", "tied", "padding")
"""Options that shape the network of tokens, and are none of `port`."""

VALUES: dict[str, tuple[object, ...]] = {
    "momentum": (0.9, 0.5, 0.0, 0.875),
    "nesterov": (True,),
    "alpha": (0.9, 0.95, 0.5),
    "centered": (True,),
    "beta1": (0.8, 0.95, 0.5),
    "beta2": (0.99, 0.95, 0.9),
    "lr-decay": (0.1, 0.01),
    "initial-accumulator-value": (0.1, 1.0),
    "eps": (1e-8, 1e-6, 1e-3, 1e-7),
    "weight-decay": (1e-4, 0.01, 0.05, 0.3, 0.0),
    "no-decay": ("bn", "bias", "bn,bias", "dense", "positions", "bias,dense"),
    "label-smoothing": (0.1, 0.2, 0.05),
    "clip-grad-norm": (1.0, 0.1, 5.0, 0.5),
}
"""Options of the step, each drawn for a third of the cases that it is for."""


def draw_options(chance: random.Random, kind: str) -> dict[str, object]:
    """Options of `port` beside the network, under their names."""
    options: dict[str, object] = {}
    if kind == "tokens":
        options["width"] = chance.choice((8, 12, 6, 16))
        if chance.random() < 0.4:
            options["tied"] = chance.choice(("plain", "with bias"))
        if chance.random() < 0.3:
            options["padding"] = chance.choice((0, 1))
    options["batch"] = chance.choice((2, 3, 4, 5))
    optimizer = chance.choice(OPTIMIZERS)
    options["optimizer"] = optimizer
    options["lr"] = chance.choice((0.01, 0.003, 0.001, 0.02))
    for name, values in VALUES.items():
        takers = SETTINGS.get(name.replace("-", "_"), OPTIMIZERS)
        if optimizer in takers and chance.random() < 1 / 3 and not (name == "nesterov" and options.get("momentum") == 0.0):
            options[name] = chance.choice(values)
    return options


def arguments(case: Case) -> list[str]:
    """The case as arguments of `port`, without those that say where it goes."""
    given = {name: value for name, value in case.options.items() if name not in _OF_NETWORK}
    told = [f"{case.name}:net", "--classes", str(case.classes)]
    if case.kind == "tokens":
        told += ["--tokens", str(case.shape[0])]
    else:
        told += ["--size", str(case.shape[1]), "--channels", str(case.shape[0])]
    for name, value in given.items():
        told += [f"--{name}"] + ([] if value is True else [str(value)])
    return [*told, "--no-lifted", "--threads", "1"]
