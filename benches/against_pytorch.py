"""python benches/against_pytorch.py RECIPE... [--batch N] [--image N] [--threads N]: compares steps with PyTorch.

Needs torch and torchvision. In each round, `zoo bench`, PyTorch in its default layout and PyTorch in channels_last do
the same work (forward, loss, backward and update in f32) in fresh processes, so that a busy machine slows all three.
Prints the median over the rounds of the median step time, the largest resident memory, and the ratio of zoo to the
faster layout of PyTorch.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYOUTS = ("contiguous", "channels_last")
WARM_UP = 2
IMAGE = 224


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("recipes", metavar="RECIPE", nargs="+", help="db_resnet, siammask, or one that golden/export/steps.py lists")
    add("--batch", type=int, default=8)
    add("--image", type=int, help="height and width; the recipe's by default")
    add("--classes", type=int, default=1000)
    add("--threads", type=int, default=2)
    add("--steps", type=int, default=10, help="measured steps of a round")
    add("--rounds", type=int, default=3)
    add("--zoo", type=Path, default=ROOT / "target/release/zoo", help="the command")
    add("--layout", choices=LAYOUTS, help=argparse.SUPPRESS)
    return parser.parse_args()


def classifier(options: argparse.Namespace, torch):
    """Network, inputs, loss function, optimizer and limit of the gradient norm for a golden that steps.py lists."""
    import steps
    import torch.nn.functional as F
    from zoo_golden.__main__ import parse as conditions_of
    from zoo_golden.networks import load

    conditions = conditions_of([*steps.GOLDENS[options.recipes[0]][1].split(), "--output", ""])
    size = options.image or IMAGE
    inputs = {"image": torch.randn(options.batch, 3, size, size), "label": torch.randint(options.classes, (options.batch,))}
    sgd = {"momentum": conditions.momentum, "nesterov": conditions.nesterov, "weight_decay": conditions.weight_decay}

    def loss(outputs, inputs, network):
        total = F.cross_entropy(outputs, inputs["label"], label_smoothing=conditions.label_smoothing)
        if conditions.l2_in_loss:
            total = total + conditions.l2_in_loss * sum(p.square().sum() / 2 for p in network.parameters())
        return {"loss": total}

    network = load(conditions.model, options.classes)
    return network, inputs, loss, lambda p: torch.optim.SGD(p, lr=1e-3, **sgd), None


def detector(options: argparse.Namespace, torch):
    """DB with Adam, as db_resnet trains (without its average of the weights)."""
    from zoo_golden import text
    from zoo_golden.conditions import image

    size = options.image or 640
    inputs = {"image": image((options.batch, 3, size, size)), **text.targets(options.batch, size, "")}
    return text.Db(), {k: v.values for k, v in inputs.items()}, text.loss, lambda p: torch.optim.Adam(p, lr=1e-4), None


def tracker(options: argparse.Namespace, torch):
    """SiamMask, everything trained."""
    from zoo_golden import tracking
    from zoo_golden.conditions import image

    search = options.image or 255
    inputs = {"template": image((options.batch, 3, 127, 127)), "search": image((options.batch, 3, search, search), name="search")}
    inputs |= tracking.targets(options.batch, search, (search - 127) // tracking.STRIDE + 9, "")
    values = {k: v.values for k, v in inputs.items()}
    return tracking.SiamMask(), values, tracking.loss, lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, weight_decay=1e-4), 10.0


def torch_step(options: argparse.Namespace) -> dict:
    """The recipe's step in PyTorch."""
    sys.path.insert(0, str(ROOT / "golden/export"))
    import torch

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    make = {"db_resnet": detector, "siammask": tracker}.get(options.recipes[0], classifier)
    network, inputs, loss, optimizer, bound = make(options, torch)
    layout = torch.channels_last if options.layout == "channels_last" else torch.contiguous_format
    network = network.to(memory_format=layout).train()
    inputs = {k: v.contiguous(memory_format=layout) if v.dim() == 4 else v for k, v in inputs.items()}
    optimizer = optimizer([p for p in network.parameters() if p.requires_grad])
    images = [v for k, v in inputs.items() if k == "image"]
    times = []
    for _ in range(WARM_UP + options.steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        outputs = network(images[0]) if images else network(inputs)
        total = loss(outputs, inputs, network)["loss"]
        total.backward()
        if bound:
            torch.nn.utils.clip_grad_norm_(network.parameters(), bound)
        optimizer.step()
        total.item()
        times.append(1e3 * (time.perf_counter() - start))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"step_ms_median": statistics.median(times[WARM_UP:]), "peak_rss_bytes": memory}


def answer(command: list[str]) -> dict:
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT).stdout)


def compare(recipe: str, options: argparse.Namespace) -> None:
    size = []
    for name in ("batch", "image", "threads", "steps"):
        if getattr(options, name) is not None:
            size += [f"--{name}", str(getattr(options, name))]
    zoo = [str(options.zoo), "bench", recipe, *size, "--format", "json"]
    if recipe == "siammask":
        zoo += ["--set", "train.parts=[]"]  # the backbone trains too
    if options.classes != 1000:
        zoo += ["--set", f"model.classes={options.classes}"]
    commands = {"zoo": zoo}
    for layout in LAYOUTS:
        commands[layout] = [sys.executable, __file__, recipe, *size, "--classes", str(options.classes), "--layout", layout]
    rounds = [{name: answer(command) for name, command in commands.items()} for _ in range(options.rounds)]

    def median(name: str, figure: str) -> float:
        return statistics.median(r[name][figure] for r in rounds)

    at = f" at {options.image}" if options.image else ""
    print(f"{recipe}, batch {options.batch}{at}, {options.threads} threads, {options.rounds} rounds in turn")
    for name in commands:
        times = ", ".join(f"{r[name]['step_ms_median']:.0f}" for r in rounds)
        memory = median(name, "peak_rss_bytes") / 2**30
        print(f"  {name:14} {median(name, 'step_ms_median'):7.1f} ms ({times})   {memory:.2f} GiB")
    better = min(LAYOUTS, key=lambda layout: median(layout, "step_ms_median"))
    ratios = [r["zoo"]["step_ms_median"] / min(r[layout]["step_ms_median"] for layout in LAYOUTS) for r in rounds]
    memory = median("zoo", "peak_rss_bytes") / median(better, "peak_rss_bytes")
    print(f"  zoo / {better}: time {statistics.median(ratios):.2f}, memory {memory:.2f}\n", flush=True)


def main() -> None:
    options = parse()
    if options.layout:
        print(json.dumps(torch_step(options)))
        return
    for recipe in options.recipes:
        compare(recipe, options)


if __name__ == "__main__":
    main()
