"""python schedules.py: writes <recipe>/schedule.json, learning rates over each recipe's full training.

Every rule is a closed formula, checked against torch's scheduler (run step by step, whose rounding errors add up) to 1e-9.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.optim import lr_scheduler

from zoo_golden.hashes import hashes

GOLDEN = Path(__file__).resolve().parent.parent
IMAGES, BATCH = 1281167, 256
STEPS_PER_EPOCH = IMAGES // BATCH
Scheduler = Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]


@dataclass(frozen=True)
class Schedule:
    """`lr(step)` is used for the update of step 0, 1, ...; `scheduler` is torch's form of the same, stepped per step."""

    rule: str
    source: str
    base: float
    epochs: int
    warmup: int
    """Steps."""
    lr: Callable[[int], float]
    scheduler: Scheduler
    images: int = IMAGES
    batch: int = BATCH

    @property
    def steps_per_epoch(self) -> int:
        return self.images // self.batch

    @property
    def steps(self) -> int:
        return self.epochs * self.steps_per_epoch


def cosine_per_step(base: float, epochs: int, warmup_epochs: int) -> Schedule:
    warmup, total = warmup_epochs * STEPS_PER_EPOCH, epochs * STEPS_PER_EPOCH

    def lr(step: int) -> float:
        if step < warmup:
            return base * (step + 1) / warmup
        return base * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))) / 2

    return Schedule(
        f"W = {warmup_epochs} * steps_per_epoch, N = {epochs} * steps_per_epoch; step i < W: {base} * (i+1)/W; "
        f"from W on: {base} * (1 + cos(pi * (i-W)/(N-W))) / 2",
        "linear warm-up as in MindSpore's model zoo (step i uses i+1), cosine as torch's CosineAnnealingLR over the remaining steps",
        base,
        epochs,
        warmup,
        lr,
        lambda optimizer: lr_scheduler.SequentialLR(
            optimizer,
            [
                lr_scheduler.LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1),
                lr_scheduler.CosineAnnealingLR(optimizer, T_max=total - warmup),
            ],
            milestones=[warmup],
        ),
    )


def cosine_per_epoch(base: float, epochs: int, warmup_epochs: int) -> Schedule:
    warmup = warmup_epochs * STEPS_PER_EPOCH

    def lr(step: int) -> float:
        if step < warmup:
            return base / warmup * (step + 1)
        return base * (1 + math.cos(math.pi * (step // STEPS_PER_EPOCH) / epochs)) / 2

    return Schedule(
        f"W = {warmup_epochs} * steps_per_epoch; step i < W: {base} * (i+1)/W; from W on: "
        f"{base} * (1 + cos(pi * e/{epochs})) / 2 with e = floor(i/steps_per_epoch), counted from the start of training",
        "warmup_cosine_annealing_lr of the NPU model zoo: T_max is all epochs (warm-up included), eta_min 0",
        base,
        epochs,
        warmup,
        lr,
        lambda optimizer: lr_scheduler.LambdaLR(
            optimizer,
            lambda step: (
                (step + 1) / warmup if step < warmup else 0.5 + 0.5 * math.cos(math.pi / epochs * (step // STEPS_PER_EPOCH))
            ),
        ),
    )


def stepped(base: float, epochs: int = 90, step_epochs: int = 30, gamma: float = 0.1) -> Schedule:
    return Schedule(
        f"{base} * {gamma}^floor(e/{step_epochs}) with e = floor(i/steps_per_epoch)",
        "torchvision references/classification: StepLR(step_size=30, gamma=0.1) per epoch, 90 epochs, 8 devices x 32 images; "
        "here the last incomplete batch is dropped, there the sampler pads it (5005 steps per epoch)",
        base,
        epochs,
        0,
        lambda step: base * gamma ** (step // STEPS_PER_EPOCH // step_epochs),
        lambda optimizer: lr_scheduler.StepLR(optimizer, step_epochs * STEPS_PER_EPOCH, gamma),
    )


def language_model() -> Schedule:
    base, least, warmup, steps = 1e-3, 1e-4, 100, 2000

    def lr(step: int) -> float:
        if step < warmup:
            return base * (step + 1) / (warmup + 1)
        return least + (base - least) * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2

    return Schedule(
        f"step i < {warmup}: {base} * (i+1)/{warmup + 1}; from there on: "
        f"{least} + ({base} - {least}) * (1 + cos(pi * (i-{warmup})/{steps - warmup})) / 2",
        "get_lr of nanoGPT's train.py, with the settings of its README for a CPU: 2000 steps of 12 windows, here 3000 windows per epoch",
        base,
        8,
        warmup,
        lr,
        lambda optimizer: lr_scheduler.SequentialLR(
            optimizer,
            [
                lr_scheduler.LinearLR(optimizer, start_factor=1 / (warmup + 1), total_iters=warmup),
                lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps - warmup, eta_min=least),
            ],
            milestones=[warmup],
        ),
        images=3000,
        batch=12,
    )


SCHEDULES = {
    **dict.fromkeys(
        ("resnet50", "resnet101", "resnet152", "resnext50_32x4d", "wide_resnet50_2"),
        cosine_per_step(0.256, epochs=90, warmup_epochs=5),
    ),
    # MobileNetV2 in MindSpore's model zoo, for Ascend.
    "mobilenetv2": cosine_per_step(0.4, epochs=200, warmup_epochs=4),
    "vit_b_16": cosine_per_step(0.1, epochs=300, warmup_epochs=30),
    "gpt_shakespeare": language_model(),
    "alexnet": cosine_per_epoch(0.06, epochs=150, warmup_epochs=5),
    **dict.fromkeys(
        ("alexnet-torchvision", "squeezenet1_0", "squeezenet1_1", "vgg11_bn", "vgg16", "vgg19"), stepped(0.01)
    ),
    **dict.fromkeys(("resnet18", "resnet34", "densenet121", "googlenet", "inception_v3"), stepped(0.1)),
}


def chosen_steps(name: str, schedule: Schedule) -> list[int]:
    """About 200 steps: both ends, the end of warm-up, epoch borders, multiples of 30 epochs, and a hashed rest."""
    epochs = {*range(1, schedule.epochs, max(1, schedule.epochs // 15)), *range(0, schedule.epochs + 1, 30)}
    borders = {schedule.warmup, *(epoch * schedule.steps_per_epoch for epoch in epochs)}
    steps = {border + offset for border in borders for offset in (-2, -1, 0, 1)} | {1, 2, 10, 100, 1000}
    steps |= {int(h % schedule.steps) for h in hashes(f"schedule:{name}", 60).tolist()}
    warmup = schedule.warmup
    steps |= {int(h % warmup) for h in hashes(f"warmup:{name}", 40).tolist()} if warmup else set()
    return sorted(step for step in steps if 0 <= step < schedule.steps)


def torch_values(schedule: Schedule) -> Iterator[float]:
    """What torch's scheduler gives, step by step."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=schedule.base)
    scheduler = schedule.scheduler(optimizer)
    for _ in range(schedule.steps):
        yield optimizer.param_groups[0]["lr"]
        optimizer.step()
        scheduler.step()


def write(name: str) -> None:
    schedule = SCHEDULES[name]
    values = {step: schedule.lr(step) for step in chosen_steps(name, schedule)}
    worst = max(
        abs(value - values[step]) / schedule.base for step, value in enumerate(torch_values(schedule)) if step in values
    )
    if worst > 1e-9:
        raise ArithmeticError(f"{name}: the formula leaves torch's scheduler by {worst}")
    document = {
        "recipe": name,
        "rule": schedule.rule,
        "source": schedule.source,
        "made_with": {"torch": torch.__version__.split("+")[0]},
        "images": schedule.images,
        "batch": schedule.batch,
        "steps_per_epoch": schedule.steps_per_epoch,
        "epochs": schedule.epochs,
        "base_lr": schedule.base,
        "lr": {str(step): value for step, value in values.items()},
    }
    path = GOLDEN / name / "schedule.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{path}: {len(values)} of {schedule.steps} steps, {worst:.1e} from torch's scheduler")


if __name__ == "__main__":
    for recipe in SCHEDULES:
        write(recipe)
