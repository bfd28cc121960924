"""Networks as programs: nodes with recorded choices, which are written as Python source and can be written again for other shapes.

A node names a word of the vocabulary, the values that it takes, and what was chosen for it. Everything that follows from shapes
(channels of an input, groups that divide them) is computed when the source is written, so that a node can be taken out of a program
and the rest still fits, or is seen not to.
"""

import copy
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn import functional as F

T = TypeVar("T")

BATCH = 2
"""Samples with which shapes are computed."""
LARGEST = 6000
"""Most elements of a value for one sample."""


class Unfit(Exception):
    """A word cannot take these values, or a recorded choice does not exist for them."""


@dataclass(frozen=True)
class Value:
    """A value of the source: its name, and its shape without the batch."""

    name: str
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass
class Node:
    """One use of a word. `inputs` count values: 0 is the input of the program, k + 1 the result of node k."""

    word: str
    inputs: list[int]
    given: dict[str, Any] = field(default_factory=dict)
    body: "Program | None" = None


@dataclass
class Program:
    """Nodes in order; the last one gives the result."""

    nodes: list[Node] = field(default_factory=list)

    def copy(self) -> "Program":
        return copy.deepcopy(self)

    def walk(self) -> list[Node]:
        """All nodes, those of bodies included."""
        return [inner for node in self.nodes for inner in (node, *(node.body.walk() if node.body else ()))]


class Draw:
    """What a word may ask for while it is written: choices, modules, lines. Choices are recorded in the node, and given again."""

    def __init__(self, chance: random.Random | None, node: Node, written: "Written", label: str):
        self.chance, self.node, self.written, self.label = chance, node, written, label
        self.tags: set[str] = set()
        self.made = 0

    def pick(self, key: str, choices: Sequence[T]) -> T:
        """One of the choices, the first of which is the plainest."""
        if not choices:
            raise Unfit(key)
        given = self.node.given
        known = list(range(len(choices))) if isinstance(choices[0], str) else list(choices)  # texts change with shapes
        if key not in given:
            given[key] = known[0] if self.chance is None else self.chance.choice(known)
        if given[key] not in known:
            raise Unfit(key)
        return choices[given[key]] if isinstance(choices[0], str) else given[key]

    def between(self, key: str, least: int, most: int) -> int:
        return self.pick(key, range(least, most + 1))

    def usually(self, key: str, usual: T, others: Sequence[T]) -> T:
        """The usual choice in half of all cases."""
        return self.pick(key, [usual, *[usual] * (len(others) - 1), *others])

    def need(self, fits: object) -> None:
        if not fits:
            raise Unfit(self.node.word)

    def tag(self, *tags: str) -> None:
        """Notes settings of recipes that this use has."""
        self.tags.update(tags)

    def name(self, kind: str) -> str:
        self.made += 1
        return f"{kind}{self.label}" + (f"_{self.made}" if self.made > 1 else "")

    def module(self, text: str, kind: str | None = None) -> str:
        """An attribute of the network, made by this expression."""
        local = self.name(kind or self.node.word)
        self.written.init(f"self.{local} = {text}")
        return f"self.{local}"

    def line(self, text: str, kind: str = "t") -> str:
        """A local variable of `forward`."""
        local = self.name(kind)
        self.written.line(f"{local} = {text}")
        return local

    def do(self, text: str) -> None:
        """A statement of `forward`."""
        self.written.line(text)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a local variable, without the batch."""
        return tuple(self.written.locals[name].shape[1:])


Word = Callable[..., str]


class Written:
    """Source of one class in the making: lines of `__init__` and `forward`, which are executed as they come."""

    def __init__(self, inputs: dict[str, tuple[int, ...]], classes: list[str], dtype: torch.dtype = torch.float32):
        self.inits: list[str] = []
        self.lines: list[str] = []
        self.classes = classes
        """Sources of the classes that this one uses."""
        self.tags: set[str] = set()
        self.globals: dict[str, Any] = {"torch": torch, "nn": nn, "F": F, "__name__": "drawn"}
        exec(HEAD, self.globals)  # noqa: S102
        for source in classes:
            exec(source, self.globals)  # noqa: S102
        self.holder = nn.Module()
        self.locals: dict[str, Any] = {"self": self.holder, "num_classes": 7}
        self.inputs = list(inputs)
        for name, shape in inputs.items():
            self.locals[name] = torch.zeros(BATCH, *shape, dtype=dtype)

    def init(self, text: str) -> None:
        self._run(text)
        self.inits.append(text)

    def line(self, text: str) -> None:
        self._run(text)
        self.lines.append(text)

    def _run(self, text: str) -> None:
        with torch.no_grad():  # values are computed too: functions of tensors without values are slower
            try:
                exec(text, self.globals, self.locals)  # noqa: S102
            except (RuntimeError, ValueError, IndexError, TypeError, AssertionError, NotImplementedError) as error:
                raise Unfit(f"{text}: {error}") from error

    def add_class(self, source: str) -> None:
        self.classes.append(source)
        exec(source, self.globals)  # noqa: S102

    def value(self, name: str) -> Value:
        found = self.locals[name]
        if not isinstance(found, torch.Tensor) or found.shape[:1] != (BATCH,):
            raise Unfit(name)
        shape = tuple(found.shape[1:])
        if found[0].numel() > LARGEST or not found.dtype.is_floating_point or 0 in shape:
            raise Unfit(name)
        return Value(name, shape)

    def source(self, name: str, result: str, arguments: str = "", base: str = "nn.Module") -> str:
        inits = [f"        {line}" for line in self.inits]
        lines = [f"        {line}" for line in self.lines]
        return "\n".join(
            [
                f"class {name}({base}):",
                f"    def __init__(self{arguments}):",
                "        super().__init__()",
                *inits,
                "",
                f"    def forward(self, {', '.join(self.inputs)}):",
                *lines,
                f"        return {result}",
                "",
            ]
        )


HEAD = (
    "import math\n\nimport torch\nimport torchvision\nfrom torch import nn\nfrom torch.nn import functional as F\n"
    "from torchvision.models import swin_transformer as swin\n"
)


def extend(written: Written, node: Node, values: list[Value], words: dict[str, Word], chance: random.Random | None, label: str) -> Value:
    """Writes a node; raises Unfit, and leaves what is written as it was, where it does not fit."""
    before = (len(written.inits), len(written.lines), len(written.classes), dict(written.locals), set(written.tags))
    draw = Draw(chance, node, written, label)
    try:
        taken = [values[index] for index in node.inputs]
        expression = words[node.word](draw, *taken)
        name = draw.name("y")
        written.line(f"{name} = {expression}")
        value = written.value(name)
        written.tags |= draw.tags
        return value
    except Unfit:
        inits, lines, classes, known, tags = before
        del written.inits[inits:], written.lines[lines:], written.classes[classes:]
        written.locals, written.tags = known, tags
        raise


_NUMBER = re.compile(r"(?<![\w.\]])-?\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])")


def generalised(texts: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Lines that several texts share, with `n[0]`, `n[1]`, ... for numbers in which they differ, and these numbers for each text."""
    if len({len(text) for text in texts}) != 1:
        raise Unfit("texts of several lengths")
    lines: list[str] = []
    numbers: list[list[str]] = [[] for _ in texts]
    for versions in zip(*texts):
        if len({_NUMBER.sub("#", version) for version in versions}) != 1:
            raise Unfit("texts that differ in more than numbers")
        found = [_NUMBER.findall(version) for version in versions]
        parts = _NUMBER.split(versions[0])
        line = parts[0]
        for place, part in enumerate(parts[1:]):
            options = [given[place] for given in found]
            if len(set(options)) == 1:
                line += options[0]
            else:
                line += f"n[{len(numbers[0])}]"
                for kept, option in zip(numbers, options):
                    kept.append(option)
            line += part
        lines.append(line)
    return lines, numbers
