"""The network of cifar10-airbench's airbench94 (legacy, commit 1b8f794), its optimizer, and its golden.

The whitening filters of the golden are those of the hash; a training computes them from images: `whiten`.
"""

from pathlib import Path

import torch
from torch import nn

from .conditions import gain_rules, image, labels
from .exporter import export
from .losses import cross_entropy

WIDTHS = 64, 256, 256
BATCH = 1024
MOMENTUM = 0.85
LR = 11.5
"""For the mean over a batch, and decoupled from the momentum: SGD is given this divided by 1 + 1/(1 - MOMENTUM)."""
WEIGHT_DECAY = 0.0153
"""For a step of 1024 samples, decoupled from learning rate and momentum."""
BIAS_SCALER = 64.0
LABEL_SMOOTHING = 0.2


def norm(width: int) -> nn.BatchNorm2d:
    """Its scale is 1 and not trained."""
    module = nn.BatchNorm2d(width, eps=1e-12, momentum=0.4)
    module.weight.requires_grad = False
    return module


def conv(channels: int, width: int) -> nn.Conv2d:
    """The first filters copy the channels."""
    module = nn.Conv2d(channels, width, 3, padding="same", bias=False)
    nn.init.dirac_(module.weight.data[:channels])
    return module


class ConvGroup(nn.Module):
    def __init__(self, channels: int, width: int):
        super().__init__()
        self.conv1 = conv(channels, width)
        self.pool = nn.MaxPool2d(2)
        self.norm1 = norm(width)
        self.conv2 = conv(width, width)
        self.norm2 = norm(width)
        self.activ = nn.GELU()

    def forward(self, x):
        x = self.activ(self.norm1(self.pool(self.conv1(x))))
        return self.activ(self.norm2(self.conv2(x)))


class Mul(nn.Module):
    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


class Airbench94(nn.Sequential):
    def __init__(self, num_classes: int = 10):
        first = nn.Conv2d(3, 24, 2)
        nn.init.zeros_(first.bias)
        first.weight.requires_grad = False
        groups = [ConvGroup(channels, width) for channels, width in zip((24, *WIDTHS), WIDTHS)]
        last = nn.Linear(WIDTHS[-1], num_classes, bias=False)
        super().__init__(first, nn.GELU(), *groups, nn.MaxPool2d(3), nn.Flatten(), last, Mul(1 / 9))


def optimizer(network: nn.Module, share: float = 1.0) -> torch.optim.SGD:
    """SGD with this share of the highest learning rate of the training, for the mean over a batch."""
    lr = share * LR / (1 + 1 / (1 - MOMENTUM))
    trained = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
    rates = {False: lr, True: lr * BIAS_SCALER}
    # The decay of a step, lr * weight_decay, is the same for all.
    groups = [
        {
            "params": [p for name, p in trained if ("norm" in name) == of_norm],
            "lr": rate,
            "weight_decay": WEIGHT_DECAY / LR * (lr / rate),
        }
        for of_norm, rate in rates.items()
    ]
    return torch.optim.SGD(groups, lr=lr, momentum=MOMENTUM, nesterov=True)


def whiten(first: nn.Conv2d, images: torch.Tensor, eps: float = 5e-4) -> None:
    """Sets the filters to the eigenvectors of the patches of normalised images, each divided by sqrt(eigenvalue + eps),
    and to their opposites."""
    _, channels, height, width = first.weight.shape
    patches = images.unfold(2, height, 1).unfold(3, width, 1).transpose(1, 3).reshape(-1, channels * height * width).float()
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    scaled = (vectors.T / torch.sqrt(values + eps)[:, None]).flip(0).reshape(-1, channels, height, width)
    first.weight.data[:] = torch.cat((scaled, -scaled))


def step(path: Path, *, batch: int, salt: str = "") -> None:
    """A golden of the first step, whose learning rate is the lowest of the warm-up."""
    export(
        path,
        Airbench94(),
        cross_entropy(LABEL_SMOOTHING),
        lambda network: optimizer(network, 0.2),
        {"image": image((batch, 3, 32, 32), salt), "label": labels(batch, 10, salt)},
        name="airbench94",
        salt=salt,
        gain=gain_rules([]),
        hyper={"label_smoothing": LABEL_SMOOTHING, "weight_decay": WEIGHT_DECAY / LR},
        lifted_variant=False,
    )
