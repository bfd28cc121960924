"""python benches/real/gpt_shakespeare.py input.txt [--seeds 0 1 2]: trains recipes/gpt_shakespeare.yaml in PyTorch.

Network, windows, optimizer and schedule are those of the recipe; the loss is the mean over all held-out windows, as in
`zoo run`. Prints a line per seed (held-out cross entropy, training time in seconds), then mean and standard deviation.
Needs torch. The corresponding command is `zoo run gpt_shakespeare --profile full --data input.txt --set train.seed=N`.
"""

import argparse
import math
import statistics
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional as F

from records import Record, arguments, settle, write

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "golden/export"))
from zoo_golden.language import Gpt, decayed  # noqa: E402

STEPS, WARM_UP, BATCH, LENGTH = 2000, 100, 12, 64
LARGEST, LEAST = 1e-3, 1e-4


def rate(step: int) -> float:
    """Learning rate: linear warm-up, then cosine decay."""
    if step < WARM_UP:
        return LARGEST * (step + 1) / (WARM_UP + 1)
    return LEAST + (LARGEST - LEAST) * 0.5 * (1 + math.cos(math.pi * (step - WARM_UP) / (STEPS - WARM_UP)))


def held_out(network: Gpt, text: torch.Tensor) -> float:
    """Mean loss over consecutive windows."""
    count = (len(text) - 1) // LENGTH
    tokens, following = (text[shift : shift + count * LENGTH].view(count, LENGTH) for shift in (0, 1))
    with torch.no_grad():
        losses = [
            F.cross_entropy(network(x).flatten(0, 1), y.flatten(), reduction="sum").item()
            for x, y in zip(tokens.split(256), following.split(256))
        ]
    return sum(losses) / following.numel()


def train(seed: int, text: torch.Tensor, vocabulary: int) -> tuple[float, float]:
    """Held-out cross entropy, and training time in seconds."""
    torch.manual_seed(seed)
    network = Gpt(vocabulary, LENGTH)
    optimizer = torch.optim.AdamW(decayed(network, 0.1), lr=LARGEST, betas=(0.9, 0.99))
    split = int(len(text) * 0.9)
    begun = time.perf_counter()
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        windows = [text[start : start + LENGTH + 1] for start in torch.randint(split - LENGTH, (BATCH,))]
        tokens = torch.stack(windows)
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(network(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    seconds = time.perf_counter() - begun
    return held_out(network, text[split:]), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path)
    arguments(parser)
    options = parser.parse_args()
    settle(options)
    content = options.text.read_text(encoding="utf8")
    place = {character: n for n, character in enumerate(sorted(set(content)))}
    text = torch.tensor([place[character] for character in content])
    losses = []
    for seed in options.seeds:
        loss, seconds = train(seed, text, len(place))
        losses.append(loss)
        print(f"seed {seed}: {loss:.4f}, {seconds:.0f} s", flush=True)
        held_out = (len(text) - int(len(text) * 0.9) - 1) // LENGTH
        write(options.out, Record("gpt_shakespeare", "cross_entropy", loss, seconds, seed, STEPS, held_out))
    if len(losses) > 1:
        print(f"mean {statistics.mean(losses):.4f}, sigma {statistics.stdev(losses):.4f}")


if __name__ == "__main__":
    main()
