"""python schedules.py: writes <recipe>/schedule.json, learning rates over each recipe's full training.

Every rule is a closed formula, checked against torch's scheduler (run step by step, whose rounding errors add up) to 1e-9.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
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
    ends: int | None = None
    """Number of steps, if the last epoch is not complete."""

    @property
    def steps_per_epoch(self) -> int:
        return self.images // self.batch

    @property
    def steps(self) -> int:
        return self.ends or self.epochs * self.steps_per_epoch


def triangle(step: int) -> float:
    """airbench94's get_lr."""
    if step < 109:
        return 0.2 * (1 - step / 109) + step / 109
    return 1 - (step - 109) / 367 + 0.07 * (step - 109) / 367


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
            lambda step: (step + 1) / warmup if step < warmup else 0.5 + 0.5 * math.cos(math.pi / epochs * (step // STEPS_PER_EPOCH)),
        ),
    )


def stepped(base: float, epochs: int = 90, step_epochs: int = 30, gamma: float = 0.1, batch: int = BATCH) -> Schedule:
    steps_per_epoch = IMAGES // batch
    return Schedule(
        f"{base} * {gamma}^floor(e/{step_epochs}) with e = floor(i/steps_per_epoch)",
        f"torchvision references/classification: StepLR(step_size={step_epochs}, gamma={gamma}) per epoch, {epochs} epochs, "
        f"8 devices x {batch // 8} images; here the last incomplete batch is dropped, there the sampler pads it "
        f"({steps_per_epoch + 1} steps per epoch)",
        base,
        epochs,
        0,
        lambda step: base * gamma ** (step // steps_per_epoch // step_epochs),
        lambda optimizer: lr_scheduler.StepLR(optimizer, step_epochs * steps_per_epoch, gamma),
        batch=batch,
    )


def by_epoch(epochs: int, scheduler: Scheduler) -> list[float]:
    """The factor on the base rate that a scheduler of torch gives in each epoch, stepped once per epoch."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    steps, factors = scheduler(optimizer), []
    for _ in range(epochs + 1):
        factors.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        steps.step()
    return factors


def timm_steps(base: float, epochs: int, gamma: float, step_epochs: float, warmup_epochs: int, start: float, batch: int) -> Schedule:
    """EfficientNet's: the distance of the drops is no whole number of epochs."""
    steps_per_epoch = IMAGES // batch
    every = round(step_epochs * steps_per_epoch)

    def lr(step: int) -> float:
        epoch = step // steps_per_epoch
        if epoch < warmup_epochs:
            return start + (base - start) * epoch / warmup_epochs
        return base * gamma ** (step // every)

    warmup = warmup_epochs * steps_per_epoch
    rise = by_epoch(warmup_epochs, lambda optimizer: lr_scheduler.LinearLR(optimizer, start_factor=start / base, total_iters=warmup_epochs))
    return Schedule(
        f"e = floor(i/steps_per_epoch); e < {warmup_epochs}: {start} + ({base} - {start}) * e/{warmup_epochs}; from there on: "
        f"{base} * {gamma}^floor(i/{every}), {step_epochs} epochs of {steps_per_epoch} steps rounded",
        f"timm's StepLRScheduler(decay_t={step_epochs}, decay_rate={gamma}, warmup_t={warmup_epochs}, warmup_lr_init={start}), "
        "with drops where the paper has them; timm waits for the end of the epoch",
        base,
        epochs,
        warmup,
        lr,
        lambda optimizer: lr_scheduler.LambdaLR(
            optimizer,
            lambda step: rise[step // steps_per_epoch] if step < warmup else gamma ** (step // every),
        ),
        batch=batch,
    )


def torchvision_cosine(theirs: float, batch: int, epochs: int, warmup_epochs: int, warmup_decay: float, least: float = 0.0) -> Schedule:
    """Everything per epoch; their rate for their batch, scaled to ours."""
    rest, base = epochs - warmup_epochs, theirs * BATCH / batch
    least *= BATCH / batch

    def lr(step: int) -> float:
        epoch = step // STEPS_PER_EPOCH
        if epoch < warmup_epochs:
            return base * (warmup_decay + (1 - warmup_decay) * epoch / warmup_epochs)
        return least + (base - least) * (1 + math.cos(math.pi * (epoch - warmup_epochs) / rest)) / 2

    factors = by_epoch(
        epochs,
        lambda optimizer: lr_scheduler.SequentialLR(
            optimizer,
            [
                lr_scheduler.LinearLR(optimizer, start_factor=warmup_decay, total_iters=warmup_epochs),
                lr_scheduler.CosineAnnealingLR(optimizer, T_max=rest, eta_min=least / base),
            ],
            milestones=[warmup_epochs],
        ),
    )
    return Schedule(
        f"e = floor(i/steps_per_epoch); e < {warmup_epochs}: {base} * ({warmup_decay} + (1 - {warmup_decay}) * e/{warmup_epochs}); "
        f"from there on: {f'{least} + ({base} - {least})' if least else base} * (1 + cos(pi * (e-{warmup_epochs})/{rest})) / 2",
        f"torchvision references/classification: LinearLR(start_factor={warmup_decay}, total_iters={warmup_epochs}), then "
        f"CosineAnnealingLR(T_max={rest}{f', eta_min={least}' if least else ''}), per epoch, {theirs} for batches of {batch} images; here {BATCH}, and the rate in "
        "proportion; the last incomplete batch is dropped",
        base,
        epochs,
        warmup_epochs * STEPS_PER_EPOCH,
        lr,
        lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: factors[step // STEPS_PER_EPOCH]),
    )


def language_model(base: float, least: float, warmup: int, epochs: int, windows: int, source: str) -> Schedule:
    """nanoGPT's, for batches of 12."""
    batch = 12
    steps = epochs * (windows // batch)

    def lr(step: int) -> float:
        if step < warmup:
            return base * (step + 1) / (warmup + 1)
        return least + (base - least) * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2

    return Schedule(
        f"step i < {warmup}: {base} * (i+1)/{warmup + 1}; from there on: {least} + ({base} - {least}) * (1 + cos(pi * (i-{warmup})/{steps - warmup})) / 2",
        f"get_lr of nanoGPT's train.py, with {source}: {steps} steps of {batch} windows, here {windows} windows per epoch",
        base,
        epochs,
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
        images=windows,
        batch=batch,
    )


def llama2_c(base: float, warmup: int, epochs: int, windows: int) -> Schedule:
    """llama2.c's, for batches of 128."""
    batch = 128
    steps = epochs * (windows // batch)

    def lr(step: int) -> float:
        if step < warmup:
            return base * step / warmup
        return base * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2

    return Schedule(
        f"step i < {warmup}: {base} * i/{warmup}; from there on: {base} * (1 + cos(pi * (i-{warmup})/{steps - warmup})) / 2",
        f"get_lr of llama2.c's train.py: {steps} steps of {batch} windows, here {windows} windows per epoch",
        base,
        epochs,
        warmup,
        lr,
        lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: lr(step) / base),
        images=windows,
        batch=batch,
    )


def warmed_linear(base: float, warmup: int, epochs: int, windows: int, batch: int, source: str) -> Schedule:
    """transformers' get_linear_schedule_with_warmup."""
    steps = epochs * (windows // batch)

    def lr(step: int) -> float:
        return base * (step / warmup if step < warmup else (steps - step) / (steps - warmup))

    return Schedule(
        f"step i < {warmup}: {base} * i/{warmup}; from there on: {base} * ({steps} - i)/{steps - warmup}",
        source,
        base,
        epochs,
        warmup,
        lr,
        lambda optimizer: lr_scheduler.SequentialLR(
            optimizer,
            [
                lr_scheduler.LambdaLR(optimizer, lambda step: step / warmup),
                lr_scheduler.PolynomialLR(optimizer, total_iters=steps - warmup, power=1.0),
            ],
            milestones=[warmup],
        ),
        images=windows,
        batch=batch,
    )


def polynomial(base: float, power: float, epochs: int, images: int, batch: int, source: str) -> Schedule:
    steps = epochs * (images // batch)
    return Schedule(
        f"{base} * (1 - i/{steps})^{power}",
        source,
        base,
        epochs,
        0,
        lambda step: base * (1 - step / steps) ** power,
        lambda optimizer: lr_scheduler.PolynomialLR(optimizer, total_iters=steps, power=power),
        images=images,
        batch=batch,
    )


SCHEDULES = {
    **dict.fromkeys(
        ("resnet50", "resnet101", "resnet152", "resnext50_32x4d", "wide_resnet50_2", "se_resnet50"),
        cosine_per_step(0.256, epochs=90, warmup_epochs=5),
    ),
    # MobileNetV2 in MindSpore's model zoo, for Ascend.
    "mobilenetv2": cosine_per_step(0.4, epochs=200, warmup_epochs=4),
    "mobilenet_v3_large": stepped(0.064, epochs=600, step_epochs=2, gamma=0.973, batch=1024),
    "efficientnet_b0": timm_steps(0.024, 450, 0.97, 2.4, warmup_epochs=3, start=1e-6, batch=384),
    "vit_b_16": torchvision_cosine(3e-3, 4096, epochs=300, warmup_epochs=30, warmup_decay=0.033),
    "swin_t": torchvision_cosine(1e-3, 1024, epochs=300, warmup_epochs=20, warmup_decay=0.01, least=1e-5),
    "convnext_tiny": torchvision_cosine(1e-3, 1024, epochs=600, warmup_epochs=5, warmup_decay=0.01),
    "gpt_shakespeare": language_model(1e-3, 1e-4, 100, 8, 3000, "the settings of its README for a CPU"),
    "gpt2": language_model(6e-4, 6e-5, 2000, 600, 12000, "config/train_gpt2.py, without its accumulation of gradients"),
    **dict.fromkeys(("llama", "qwen3", "qwen3_moe"), llama2_c(1e-3, 1000, 1000, 12800)),
    "bert_base": warmed_linear(
        4.42e-4, 1563, 1000, 256000, 256, "arXiv 1904.00962, its rule for other batches: a million steps, here 256000 windows per epoch"
    ),
    "unet_medical": Schedule(
        "0.0001",
        "mindspore-ai/models official/cv/Unet, unet_medical_config.yaml: 400 epochs of ISBI's 30 images",
        1e-4,
        400,
        0,
        lambda step: 1e-4,
        lambda optimizer: lr_scheduler.ConstantLR(optimizer, factor=1.0),
        images=30,
        batch=16,
    ),
    "deeplabv3_resnet50": polynomial(
        0.02, 0.9, 30, 92518, 32, "torchvision references/segmentation on the images of COCO 2017 with VOC's classes, 8 devices x 4"
    ),
    "resnet20": Schedule(
        "0.1 * 0.1^m, m of the epochs 100 and 150 have begun; epoch e = floor(i/390)",
        "akamaster/pytorch_resnet_cifar10: MultiStepLR(milestones=[100, 150]), 200 epochs of CIFAR-10; here the last incomplete batch is dropped",
        0.1,
        200,
        0,
        lambda step: 0.1 * 0.1 ** ((step >= 100 * 390) + (step >= 150 * 390)),
        lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [100 * 390, 150 * 390]),
        images=50000,
        batch=128,
    ),
    "airbench94": Schedule(
        "N = 476, W = floor(0.23 * N); 1.5 times the interpolation of 0.2 at step 0, 1 at step W and 0.07 at step N",
        "KellerJordan/cifar10-airbench legacy/airbench94.py: get_lr, 9.9 epochs of 48 steps",
        1.5,
        10,
        109,
        lambda step: 1.5 * np.interp(step, [0, 109, 476], [0.2, 1, 0.07]).item(),
        lambda optimizer: lr_scheduler.LambdaLR(optimizer, triangle),
        images=50000,
        batch=1024,
        ends=476,
    ),
    "resnet8_tiny": Schedule(
        "0.001 * 0.99^e with e = floor(i/1562)",
        "mlcommons/tiny train.py: lr_schedule, 500 epochs of CIFAR-10; here the last incomplete batch is dropped",
        1e-3,
        500,
        0,
        lambda step: 1e-3 * 0.99 ** (step // 1562),
        lambda optimizer: lr_scheduler.StepLR(optimizer, 1562, 0.99),
        images=50000,
        batch=32,
    ),
    "lenet": Schedule(
        "0.01",
        "mindspore-ai/models research/cv/lenet, default_config.yaml: 10 epochs of MNIST",
        0.01,
        10,
        0,
        lambda step: 0.01,
        lambda optimizer: lr_scheduler.ConstantLR(optimizer, factor=1.0),
        images=60000,
        batch=32,
    ),
    "alexnet": cosine_per_epoch(0.06, epochs=150, warmup_epochs=5),
    **dict.fromkeys(("alexnet-torchvision", "squeezenet1_0", "squeezenet1_1", "vgg11_bn", "vgg16", "vgg19"), stepped(0.01)),
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
    worst = max(abs(value - values[step]) / schedule.base for step, value in enumerate(torch_values(schedule)) if step in values)
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
