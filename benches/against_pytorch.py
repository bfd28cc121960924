"""python benches/against_pytorch.py RECIPE... [--batch N] [--image N] [--threads N]: a training step of zoo beside PyTorch's.

Needs torch and torchvision. The same work (forward, loss, backward, update in f32) is done in turn by `zoo bench`, by
PyTorch in its default layout and by PyTorch in channels_last, in fresh processes, round after round, so that a busy
machine slows all three. Prints the median of each round's median step time, the largest resident memory, and zoo's share
of the better layout's.
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


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("recipes", metavar="RECIPE", nargs="+", help="one that golden/export/steps.py lists")
    add("--batch", type=int, default=8)
    add("--image", type=int, default=224)
    add("--classes", type=int, default=1000)
    add("--threads", type=int, default=2)
    add("--steps", type=int, default=10, help="measured steps of a round")
    add("--rounds", type=int, default=3)
    add("--zoo", type=Path, default=ROOT / "target/release/zoo", help="the command")
    add("--layout", choices=LAYOUTS, help=argparse.SUPPRESS)
    return parser.parse_args()


def torch_step(options: argparse.Namespace) -> dict:
    """The step of the recipe's golden in PyTorch."""
    sys.path.insert(0, str(ROOT / "golden/export"))
    import steps
    import torch
    import torch.nn.functional as F
    from zoo_golden.__main__ import parse as conditions_of
    from zoo_golden.networks import load

    conditions = conditions_of([*steps.GOLDENS[options.recipes[0]][1].split(), "--output", ""])
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    layout = torch.channels_last if options.layout == "channels_last" else torch.contiguous_format
    network = load(conditions.model, options.classes).to(memory_format=layout).train()
    images = torch.randn(options.batch, 3, options.image, options.image).contiguous(memory_format=layout)
    labels = torch.randint(options.classes, (options.batch,))
    sgd = {"momentum": conditions.momentum, "nesterov": conditions.nesterov, "weight_decay": conditions.weight_decay}
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, **sgd)
    times = []
    for _ in range(WARM_UP + options.steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(network(images), labels, label_smoothing=conditions.label_smoothing)
        if conditions.l2_in_loss:
            loss = loss + conditions.l2_in_loss * sum(p.square().sum() / 2 for p in network.parameters())
        loss.backward()
        optimizer.step()
        loss.item()
        times.append(1e3 * (time.perf_counter() - start))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"step_ms_median": statistics.median(times[WARM_UP:]), "peak_rss_bytes": memory}


def answer(command: list[str]) -> dict:
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT).stdout)


def compare(recipe: str, options: argparse.Namespace) -> None:
    size = []
    for name in ("batch", "image", "threads", "steps"):
        size += [f"--{name}", str(getattr(options, name))]
    zoo = [str(options.zoo), "bench", recipe, *size, "--format", "json"]
    if options.classes != 1000:
        zoo += ["--set", f"model.classes={options.classes}"]
    commands = {"zoo": zoo}
    for layout in LAYOUTS:
        commands[layout] = [sys.executable, __file__, recipe, *size, "--classes", str(options.classes), "--layout", layout]
    rounds = [{name: answer(command) for name, command in commands.items()} for _ in range(options.rounds)]

    def median(name: str, figure: str) -> float:
        return statistics.median(r[name][figure] for r in rounds)

    print(f"{recipe}, batch {options.batch} at {options.image}, {options.threads} threads, {options.rounds} rounds in turn")
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
