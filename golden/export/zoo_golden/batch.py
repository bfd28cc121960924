"""The example batch of a step: images with a class each, or rows of tokens with the token to predict in place of each."""

import argparse
import inspect
from dataclasses import dataclass

import torch
from torch import nn

from .conditions import Input, image, labels


@dataclass(frozen=True)
class Batch:
    """inputs: arguments of the network's forward, by name. label: one for each sample, or for each token of it."""

    inputs: dict[str, Input]
    label: Input

    @classmethod
    def of(cls, network: nn.Module, options: argparse.Namespace, samples: int) -> "Batch":
        """As many samples as wanted, of the kind that the options name."""
        salt = options.salt
        if not options.tokens:
            shape = (samples, options.channels, options.image_size, options.image_size)
            return cls({"image": image(shape, salt)}, labels(samples, options.classes, salt))
        shape, first = (samples, options.tokens), next(iter(inspect.signature(network.forward).parameters))
        inputs = {first: options.classes} | dict(options.indices)
        indices = {name: labels(shape, count, salt, name) for name, count in inputs.items()}
        return cls(indices, labels(shape, options.classes, salt))

    def all(self) -> dict[str, Input]:
        """Everything that the step takes."""
        return {**self.inputs, "label": self.label}

    def forward(self, network: nn.Module, inputs: dict[str, torch.Tensor]) -> object:
        """What the network makes of it."""
        if list(self.inputs) == ["image"]:
            return network(inputs["image"])
        return network(**{name: inputs[name] for name in self.inputs})

    def on_meta(self) -> dict[str, torch.Tensor]:
        """The network's inputs without their numbers."""
        return {name: torch.empty_like(given.values, device="meta") for name, given in self.inputs.items()}


def scores(outputs: object) -> torch.Tensor:
    """The scores of all classes `[rows, classes]`, of the samples or of all their tokens: the only tensor that the network gives, or
    its `logits`."""
    found = outputs if isinstance(outputs, torch.Tensor) else outputs["logits"]
    return found.flatten(0, -2)
