"""python benches/real/airbench94.py DIR [--seeds 0 1 2]: trains airbench94 in PyTorch, in f32.

DIR contains CIFAR-10 as image files, train/CLASS/* and val/CLASS/*. Network, optimizer, schedule, augmentation,
Lookahead and test-time augmentation are those of KellerJordan/cifar10-airbench legacy/airbench94.py, as in the recipe.
Images are decoded once, before the clock starts; `zoo run` decodes them in every epoch. Prints a line per seed; --out
also appends a record to a file that `zoo report --markdown` reads. Needs torch and Pillow. The command of zoo:

    zoo run airbench94 --profile full --data DIR --set train.seed=N
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from cifar import ROOT, batches, images
from records import Record, arguments, settle, write

sys.path.insert(0, str(ROOT / "golden/export"))
from zoo_golden.airbench import BATCH, LABEL_SMOOTHING, Airbench94, optimizer, whiten  # noqa: E402

EPOCHS, STEPS = 10, 476
BIAS_EPOCHS = 3
"""Epochs in which the bias of the whitening convolution is trained."""
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def numbers(pixels: torch.Tensor) -> torch.Tensor:
    mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
    return (pixels.float() / 255 - mean) / std


def shifted(padded: torch.Tensor, size: int) -> torch.Tensor:
    """A random crop of each padded image."""
    n, room = len(padded), padded.shape[-1] - size + 1
    rows, columns = (torch.randint(room, (n, 1)) + torch.arange(size) for _ in range(2))
    image, channel = torch.arange(n)[:, None, None, None], torch.arange(3)[None, :, None, None]
    return padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]


def rate(step: int) -> float:
    """Share of the highest learning rate."""
    warm = int(STEPS * 0.23)
    if step < warm:
        return 0.2 * (1 - step / warm) + step / warm
    done = (step - warm) / (STEPS - warm)
    return 1 - done + 0.07 * done


class Lookahead:
    """Slow weights and running statistics."""

    def __init__(self, network: nn.Module):
        self.slow = {name: tensor.clone() for name, tensor in network.state_dict().items()}

    def update(self, network: nn.Module, decay: float) -> None:
        for name, tensor in network.state_dict().items():
            if tensor.is_floating_point():
                self.slow[name].lerp_(tensor, 1 - decay)
                tensor.copy_(self.slow[name])


def scores(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The mean over six views of each image, unmoved ones with twice the weight."""

    def mirrored(x: torch.Tensor) -> torch.Tensor:
        return 0.5 * network(x) + 0.5 * network(x.flip(-1))

    padded = F.pad(x, (1,) * 4, "reflect")
    moved = [mirrored(padded[:, :, at : at + 32, at : at + 32]) for at in (0, 2)]
    return 0.5 * mirrored(x) + 0.25 * moved[0] + 0.25 * moved[1]


def train(seed: int, sets: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[float, float]:
    """Top-1 accuracy on the held-out images, and training time in seconds."""
    torch.manual_seed(seed)
    (pixels, labels), (held_out, truth) = sets
    begun = time.perf_counter()
    network = Airbench94().to(memory_format=torch.channels_last)
    whiten(network[0], numbers(pixels[:5000]))
    sgd = optimizer(network)
    schedule = torch.optim.lr_scheduler.LambdaLR(sgd, rate)
    lookahead = Lookahead(network)
    x = numbers(pixels)
    x = torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, x.flip(-1), x)
    padded, step = F.pad(x, (2,) * 4, "reflect"), 0
    for epoch in range(EPOCHS):
        network[0].bias.requires_grad = epoch < BIAS_EPOCHS
        for chosen in batches(len(pixels), BATCH):
            batch = shifted(padded[chosen], 32)
            batch = (batch.flip(-1) if epoch % 2 else batch).contiguous(memory_format=torch.channels_last)
            sgd.zero_grad(set_to_none=True)
            F.cross_entropy(network(batch), labels[chosen], label_smoothing=LABEL_SMOOTHING).backward()
            sgd.step()
            schedule.step()
            step += 1
            if step % 5 == 0:
                lookahead.update(network, 0.95**5 * (step / STEPS) ** 3)
            if step == STEPS:
                lookahead.update(network, 1.0)
                break
        print(f"  epoch {epoch + 1}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    seconds = time.perf_counter() - begun
    network.eval()
    with torch.no_grad():
        found = torch.cat([scores(network, numbers(part)).argmax(1) for part in held_out.split(1000)])
    return (found == truth).double().mean().item(), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    arguments(parser)
    options = parser.parse_args()
    settle(options)
    sets = [images(options.folder / part) for part in ("train", "val")]
    found = []
    for seed in options.seeds:
        value, seconds = train(seed, sets)
        found.append(value)
        print(f"seed {seed}: top1 {100 * value:.2f} %, {seconds:.0f} s", flush=True)
        write(options.out, Record("airbench94", "top1", value, seconds, seed, STEPS, len(sets[1][0])))
    if len(found) > 1:
        print(f"mean {100 * statistics.mean(found):.2f} %, sigma {100 * statistics.stdev(found):.2f} %")


if __name__ == "__main__":
    main()
