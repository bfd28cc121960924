"""The example batch of a step: what a network is given. Images or rows of tokens, and further arguments."""

import argparse
import inspect
from dataclasses import dataclass

import torch
from torch import nn

from .conditions import Input, image, labels


@dataclass(frozen=True)
class Batch:
    """inputs: arguments of the network's forward, by name; the first may have a name of its own."""

    inputs: dict[str, Input]

    @classmethod
    def of(cls, network: nn.Module, options: argparse.Namespace, samples: int) -> "Batch":
        """As many samples as wanted, of the kind that the options name."""
        salt, parameters = options.salt, inspect.signature(network.forward).parameters
        first = next(iter(parameters), "image")
        given = dict(options.input)
        shapes: dict[str, tuple[tuple[int, ...], int | None]] = {}
        if first not in given and options.tokens:
            shapes[first] = ((options.tokens,), options.classes)
        elif first not in given:
            shapes[first if "image" in parameters else "image"] = ((options.channels, options.image_size, options.image_size), None)
        shapes |= {name: ((options.tokens,), count) for name, count in options.indices} | given
        made = {
            name: image((samples, *shape), salt, name) if count is None else labels((samples, *shape), count, salt, name)
            for name, (shape, count) in shapes.items()
        }
        needed = [p.name for p in parameters.values() if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        for name in needed[1:]:
            if name not in made:
                raise ValueError(f"the network needs `{name}` too: `--input {name}=3x32x32` gives numbers, `--input {name}=16:50` indices below 50")
        return cls(made)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of a sample."""
        return {name: tuple(given.values.shape[1:]) for name, given in self.inputs.items()}

    def forward(self, network: nn.Module, inputs: dict[str, torch.Tensor]) -> object:
        """What the network makes of it."""
        parameters = inspect.signature(network.forward).parameters
        named = {name: inputs[name] for name in self.inputs if name in parameters}
        return network(*(inputs[name] for name in self.inputs if name not in named), **named)

    def on_meta(self) -> dict[str, torch.Tensor]:
        """The network's inputs without their numbers."""
        return {name: torch.empty_like(given.values, device="meta") for name, given in self.inputs.items()}
