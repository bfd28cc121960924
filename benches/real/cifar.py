"""python benches/real/cifar.py resnet8_tiny DIR --epochs 4 [--seeds 0 1 2]: trains resnet8_tiny or resnet20 in PyTorch.

DIR contains CIFAR-10 as image files, train/CLASS/* and val/CLASS/*. Network, initial distributions, augmentation,
normalisation, batches, optimizer and schedule are those of the recipe; with fewer epochs, rates keep their relative
positions. Images are decoded once, before the clock starts; `zoo run` decodes them in every epoch. Prints a line per
seed; --out also appends a record to a file that `zoo report --markdown` and `zoo verdict` read. Needs torch and Pillow.
The corresponding commands of zoo for 4 epochs (0.2847 is 0.99^(500/4)):

    zoo run resnet8_tiny --profile full --data DIR --set train.epochs=4 --set schedule.exponential.gamma=0.2847
    zoo run resnet20 --profile full --data DIR --set train.epochs=4 --set 'schedule.multi_step.milestones=[2 epochs, 3 epochs]'
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F

from records import Record, arguments, settle, write

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "golden/export"))
from zoo_golden.small import ResNet8, ResNet20  # noqa: E402


@dataclass(frozen=True)
class Training:
    """The settings of a recipe."""

    network: Callable[[], nn.Module]
    batch: int
    epochs: int
    pad: int
    """Zero padding around an image before a crop of 32x32 pixels."""
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    rate: Callable[[int, int], float]
    """Learning rate of an epoch, given the number of epochs."""


def adam(network: nn.Module) -> torch.optim.Optimizer:
    """Weight decay applies only to the weights of convolutions."""
    filters = [module.weight for module in network.modules() if isinstance(module, nn.Conv2d)]
    known = set(filters)
    rest = [parameter for parameter in network.parameters() if parameter not in known]
    return torch.optim.Adam([{"params": filters, "weight_decay": 2e-4}, {"params": rest}], eps=1e-7)


TRAININGS = {
    "resnet8_tiny": Training(
        ResNet8,
        32,
        500,
        3,
        1.0,
        (0.0, 0.0, 0.0),
        (1.0, 1.0, 1.0),
        adam,
        lambda epoch, epochs: 1e-3 * 0.99 ** (epoch * 500 / epochs),
    ),
    "resnet20": Training(
        ResNet20,
        128,
        200,
        4,
        255.0,
        (0.485, 0.456, 0.406),
        (0.229, 0.224, 0.225),
        lambda network: torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4),
        lambda epoch, epochs: 0.1 * 0.1 ** ((2 * epoch >= epochs) + (4 * epoch >= 3 * epochs)),
    ),
}


def images(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Images as bytes, `[n, 3, 32, 32]`, and their classes, which are the sorted folders."""
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    files = [(path, label) for label, of_class in enumerate(classes) for path in sorted(of_class.iterdir())]
    pixels = np.stack([np.asarray(Image.open(path).convert("RGB")) for path, _ in files])
    planes = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
    return planes.to(torch.get_default_device()), torch.tensor([label for _, label in files])


def varied(batch: torch.Tensor, pad: int) -> torch.Tensor:
    """A random crop of each padded image; half of them are mirrored."""
    n, size = len(batch), batch.shape[-1]
    padded = F.pad(batch, (pad,) * 4)
    rows, columns = (torch.randint(2 * pad + 1, (n, 1)) + torch.arange(size) for _ in range(2))
    columns = torch.where(torch.rand(n, 1) < 0.5, columns.flip(1), columns)
    image, channel = torch.arange(n)[:, None, None, None], torch.arange(3)[None, :, None, None]
    return padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]


def batches(count: int, size: int) -> Iterator[torch.Tensor]:
    """Full batches in random order."""
    return iter(torch.randperm(count)[: count // size * size].split(size))


def train(seed: int, training: Training, epochs: int, sets: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[float, float]:
    """Top-1 accuracy on the held-out images, and training time in seconds."""
    torch.manual_seed(seed)
    network = training.network()
    optimizer = training.optimizer(network)
    mean, std = (torch.tensor(values)[:, None, None] for values in (training.mean, training.std))

    def numbers(pixels: torch.Tensor) -> torch.Tensor:
        return (pixels.float() / training.scale - mean) / std

    (pixels, labels), (held_out, truth) = sets
    begun = time.perf_counter()
    for epoch in range(epochs):
        for group in optimizer.param_groups:
            group["lr"] = training.rate(epoch, epochs)
        for chosen in batches(len(pixels), training.batch):
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(network(numbers(varied(pixels[chosen], training.pad))), labels[chosen]).backward()
            optimizer.step()
        print(f"  epoch {epoch + 1}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    seconds = time.perf_counter() - begun
    network.eval()
    with torch.no_grad():
        found = torch.cat([network(numbers(part)).argmax(1) for part in held_out.split(250)])
    return (found == truth).double().mean().item(), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", choices=TRAININGS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, help="default: as in the recipe")
    arguments(parser)
    options = parser.parse_args()
    settle(options)
    training = TRAININGS[options.recipe]
    epochs = options.epochs or training.epochs
    sets = [images(options.folder / part) for part in ("train", "val")]
    found = []
    for seed in options.seeds:
        value, seconds = train(seed, training, epochs, sets)
        found.append(value)
        print(f"seed {seed}: top1 {100 * value:.2f} %, {seconds:.0f} s", flush=True)
        steps = epochs * (len(sets[0][0]) // training.batch)
        write(options.out, Record(options.recipe, "top1", value, seconds, seed, steps, len(sets[1][0])))
    if len(found) > 1:
        print(f"mean {100 * statistics.mean(found):.2f} %, sigma {100 * statistics.stdev(found):.2f} %")


if __name__ == "__main__":
    main()
