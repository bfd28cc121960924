"""Semantic segmentation networks, their loss, and their goldens."""

from collections.abc import Callable, Iterable
from pathlib import Path

import torch
import torchvision
from torch import nn
from torch.nn import functional as F

from .conditions import Input, gain_rules, image, labels
from .exporter import export

IGNORED = 255
"""Label of pixels that do not count."""


class DoubleConv(nn.Module):
    def __init__(self, channels: int, width: int):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(channels, width, 3),
            nn.ReLU(),
            nn.Conv2d(width, width, 3),
            nn.ReLU(),
        )

    def forward(self, x):
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, channels: int, width: int):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2, 2), DoubleConv(channels, width))

    def forward(self, x):
        return self.maxpool_conv(x)


class Up(nn.Module):
    """Twice the size, and beside it the middle of what comes across."""

    def __init__(self, channels: int):
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, channels // 2, 2, 2, bias=False)
        self.relu = nn.ReLU()
        self.conv = DoubleConv(channels, channels // 2)

    def forward(self, x, across):
        x = self.relu(self.up(x))
        margin = (across.shape[-1] - x.shape[-1]) // 2
        return self.conv(torch.cat((x, across[..., margin:-margin, margin:-margin]), 1))


class OutConv(nn.Module):
    def __init__(self, channels: int, classes: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, classes, 1)

    def forward(self, x):
        return self.conv(x)


class Unet(nn.Module):
    """U-Net (arXiv 1505.04597) of MindSpore's model zoo (official/cv/Unet, unet_medical), which has a ReLU after each upward
    convolution; drawn as it draws."""

    def __init__(self, channels: int = 1, classes: int = 2, width: int = 64):
        super().__init__()
        self.inc = DoubleConv(channels, width)
        for level in range(4):
            setattr(self, f"down{level + 1}", Down(width << level, width << (level + 1)))
        for level in range(4):
            setattr(self, f"up{level + 1}", Up(width << (4 - level)))
        self.outc = OutConv(width, classes)
        for module in self.modules():
            if isinstance(module, nn.ConvTranspose2d):
                nn.init.normal_(module.weight, std=0.01)
            elif isinstance(module, nn.Conv2d):
                nn.init.trunc_normal_(module.weight, std=0.06, a=-0.12, b=0.12)
                nn.init.zeros_(module.bias)

    def forward(self, x):
        maps = [self.inc(x)]
        for level in range(1, 5):
            maps.append(getattr(self, f"down{level}")(maps[-1]))
        x = maps.pop()
        for level in range(1, 5):
            x = getattr(self, f"up{level}")(x, maps.pop())
        return self.outc(x)


def deeplabv3_resnet50(classes: int = 21) -> nn.Module:
    """torchvision's, without the auxiliary classifier and without dropout."""
    network = torchvision.models.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=classes)
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return network


def loss(outputs, inputs, network):
    """Cross entropy, mean over the pixels that count."""
    logits = outputs["out"] if isinstance(outputs, dict) else outputs
    return {"loss": F.cross_entropy(logits, inputs["label"], ignore_index=IGNORED)}


def label_maps(shape: tuple[int, int, int], classes: int, salt: str) -> Input:
    """One class more than there are; the pixels of that one do not count."""
    drawn = labels(shape, classes + 1, salt)
    values = drawn.values.masked_fill(drawn.values == classes, IGNORED)
    return Input(values, f"{drawn.rule}, {classes} is {IGNORED}")


def step(
    path: Path,
    network: Callable[[], nn.Module],
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
    *,
    batch: int,
    channels: int,
    size: int,
    predicted: int,
    classes: int,
    weight_decay: float,
    gains: list,
    name: str,
    lifted: bool,
    salt: str = "",
) -> None:
    """A golden of the network under these conditions; its label maps have a side of `predicted` pixels."""
    export(
        path,
        network(),
        loss,
        lambda network: optimizer(network.parameters()),
        {
            "image": image((batch, channels, size, size), salt),
            "label": label_maps((batch, predicted, predicted), classes, salt),
        },
        name=name,
        salt=salt,
        gain=gain_rules(gains),
        hyper={"label_smoothing": 0.0, "weight_decay": weight_decay},
        lifted_variant=lifted,
    )
