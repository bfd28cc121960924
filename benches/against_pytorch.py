"""python benches/against_pytorch.py RECIPE... [--batch N] [--image N | --tokens N] [--threads N]: compares steps with PyTorch.

Needs torch and torchvision; for language models and LAMB also transformers and timm. In each round, `zoo bench`, PyTorch
in its default layout and PyTorch in channels_last (for images) do the same work (forward, loss, backward and update in
f32) in fresh processes, so that a busy machine slows all three. Transformers use fused attention, and AdamW is torch's
fused one; llama and qwen3_moe are the modules of golden/export, and those of transformers. Prints the median over the
rounds of the median step time, the largest resident memory, and the ratio of zoo to the faster layout or form.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LAYOUTS = ("contiguous", "channels_last")
FORMS = ("written out", "transformers")
OF_TOKENS = {"bert_base": LAYOUTS[:1], "gpt2": LAYOUTS[:1], "gpt_shakespeare": LAYOUTS[:1], "llama": FORMS, "qwen3_moe": FORMS}
WARM_UP = 2
IMAGE = 224


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("recipes", metavar="RECIPE", nargs="+", help=f"{', '.join(sorted(MAKE))}, or a classifier that golden/export/steps.py lists")
    add("--batch", type=int, default=8)
    add("--image", type=int, help="height and width; the recipe's by default")
    add("--tokens", type=int, default=128, help="length of the sequences of BERT and GPTs")
    add("--classes", type=int, default=1000)
    add("--threads", type=int, default=2)
    add("--steps", type=int, default=10, help="measured steps of a round")
    add("--rounds", type=int, default=3)
    add("--zoo", type=Path, default=ROOT / "target/release/zoo", help="the command")
    add("--layout", choices=LAYOUTS + FORMS, help=argparse.SUPPRESS)
    return parser.parse_args()


class Work(NamedTuple):
    """A training step in PyTorch. `loss` takes outputs, inputs and network, and returns a dict."""

    network: Any
    inputs: dict
    forward: Callable
    loss: Callable
    optimizer: Any
    clip: float | None = None


def classifier(options: argparse.Namespace, torch) -> Work:
    """What steps.py lists, in full size."""
    import steps
    import torch.nn.functional as F
    import torchvision
    from zoo_golden.goldens import parse as conditions_of
    from zoo_golden.networks import load

    recipe = options.recipes[0]
    conditions = conditions_of([*steps.GOLDENS[recipe][1].split(), "--output", ""])
    size = options.image or IMAGE
    inputs = {"image": torch.randn(options.batch, 3, size, size), "label": torch.randint(options.classes, (options.batch,))}

    def loss(outputs, inputs, network):
        total = F.cross_entropy(outputs, inputs["label"], label_smoothing=conditions.label_smoothing)
        if conditions.l2_in_loss:
            total = total + conditions.l2_in_loss * sum(p.square().sum() / 2 for p in network.parameters())
        return {"loss": total}

    if recipe == "vit_b_16":  # the golden's is for smaller images
        network = torchvision.models.vit_b_16(num_classes=options.classes, image_size=size)
    else:
        network = load(conditions.model, options.classes)
    settings = {"lr": 1e-6, "weight_decay": conditions.weight_decay}
    match conditions.optimizer:
        case "sgd":
            optimizer = torch.optim.SGD(network.parameters(), momentum=conditions.momentum, nesterov=conditions.nesterov, **settings)
        case "adamw":
            optimizer = torch.optim.AdamW(network.parameters(), fused=True, **settings)
        case "rmsprop":
            optimizer = torch.optim.RMSprop(network.parameters(), momentum=conditions.momentum, **settings)
        case other:
            sys.exit(f"no optimizer {other} in this comparison")
    return Work(network, inputs, lambda n, i: n(i["image"]), loss, optimizer, conditions.clip_grad_norm)


def detector(options: argparse.Namespace, torch) -> Work:
    """DB with Adam, as db_resnet trains (without its average of the weights)."""
    from zoo_golden import text
    from zoo_golden.conditions import image

    size = options.image or 640
    inputs = {"image": image((options.batch, 3, size, size)), **text.targets(options.batch, size, "")}
    network = text.Db()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4)
    return Work(network, {k: v.values for k, v in inputs.items()}, lambda n, i: n(i["image"]), text.loss, optimizer)


def tracker(options: argparse.Namespace, torch) -> Work:
    """SiamMask, everything trained."""
    from zoo_golden import tracking
    from zoo_golden.conditions import image

    search = options.image or 255
    inputs = {"template": image((options.batch, 3, 127, 127)), "search": image((options.batch, 3, search, search), name="search")}
    inputs |= tracking.targets(options.batch, search, (search - 127) // tracking.STRIDE + 9, "")
    network = tracking.SiamMask()
    trained = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=1e-3, momentum=0.9, weight_decay=1e-4)
    return Work(network, {k: v.values for k, v in inputs.items()}, lambda n, i: n(i), tracking.loss, optimizer, 10.0)


def segmenter(options: argparse.Namespace, torch) -> Work:
    """U-Net with Adam, as unet_medical trains: no padding, so its label maps are smaller."""
    from zoo_golden import segmentation

    size = options.image or 572
    network = segmentation.Unet()
    side = network(torch.zeros(1, 1, size, size)).shape[-1]
    inputs = {"image": torch.randn(options.batch, 1, size, size), "label": torch.randint(2, (options.batch, side, side))}
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-6, weight_decay=5e-4, fused=True)
    return Work(network, inputs, lambda n, i: n(i["image"]), segmentation.loss, optimizer)


def bert(options: argparse.Namespace, torch) -> Work:
    """BERT of transformers with its fused attention, and LAMB of timm."""
    from timm.optim import Lamb
    from zoo_golden import bert
    from zoo_golden.language import decayed

    network = bert.bert(dropout=0.1)
    inputs = bert.conditions(options.batch, options.tokens, network.config.vocab_size)
    optimizer = Lamb(decayed(network, 0.01), lr=1e-6, max_grad_norm=None)
    return Work(network, {k: v.values for k, v in inputs.items()}, bert.forward, bert.loss, optimizer, 1.0)


def gpt2(options: argparse.Namespace, torch) -> Work:
    """GPT-2 of transformers with its fused attention, and AdamW."""
    from transformers import GPT2Config, GPT2LMHeadModel
    from zoo_golden import language

    network = GPT2LMHeadModel(GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False))
    shape = (options.batch, options.tokens)
    inputs = {name: torch.randint(network.config.vocab_size, shape) for name in ("tokens", "label")}
    optimizer = torch.optim.AdamW(language.decayed(network, 0.1), lr=1e-6, betas=(0.9, 0.95), fused=True)
    return Work(network, inputs, lambda n, i: n(i["tokens"]).logits, language.loss, optimizer, 1.0)


def character_gpt(options: argparse.Namespace, torch) -> Work:
    """The small GPT of gpt_shakespeare with AdamW as in benches/real, which is not fused."""
    from zoo_golden import language

    network = language.Gpt(length=options.tokens)
    inputs = {name: torch.randint(65, (options.batch, options.tokens)) for name in ("tokens", "label")}
    optimizer = torch.optim.AdamW(language.decayed(network, 0.1), lr=1e-6, betas=(0.9, 0.99))
    return Work(network, inputs, lambda n, i: n(i["tokens"]), language.loss, optimizer, 1.0)


LLAMA = {"width": 512, "hidden": 1376, "heads": 8, "kv_heads": 4}
LAYERS = 8
LARGER = {
    "llama": [
        f"model.blocks.decoder_layer.args={json.dumps(LLAMA)}",
        f"model.body[0].scope.body[0].embedding.size={LLAMA['width']}",
        f"model.body[0].scope.body[1].scope.body[0].stack.repeat={LAYERS}",
    ]
}
"""Sizes in which recipes are compared, if they are not their own."""


def llama(options: argparse.Namespace, torch) -> Work:
    """A Llama of eight layers of 512."""
    from zoo_golden.language import Llama, llama_of_transformers, loss

    if options.layout == FORMS[0]:
        return decoder(Llama(layers=LAYERS, **LLAMA), loss, options, torch)
    network = llama_of_transformers(layers=LAYERS, **LLAMA)
    return decoder(network, lambda outputs, *rest: loss(outputs.logits, *rest), options, torch)


def qwen3_moe(options: argparse.Namespace, torch) -> Work:
    """The mixture of experts of the recipe."""
    from zoo_golden import language, qwen3

    if options.layout == FORMS[0]:
        return decoder(qwen3.qwen3_moe(), qwen3.balanced_loss, options, torch)

    def loss(outputs, inputs, network):
        return {"loss": language.loss(outputs.logits, inputs, network)["loss"] + 0.001 * outputs.aux_loss}

    return decoder(qwen3.qwen3_moe_of_transformers(), loss, options, torch)


def decoder(network: Any, loss: Callable, options: argparse.Namespace, torch) -> Work:
    """A language model with 512 tokens and fused AdamW."""
    from zoo_golden import language

    inputs = {name: torch.randint(512, (options.batch, options.tokens)) for name in ("tokens", "label")}
    optimizer = torch.optim.AdamW(language.decayed(network, 0.01), lr=1e-6, betas=(0.9, 0.99), fused=True)
    return Work(network, inputs, lambda n, i: n(i["tokens"]), loss, optimizer, 1.0)


def airbench(options: argparse.Namespace, torch) -> Work:
    """airbench94, all of it trained but the whitening filters."""
    import torch.nn.functional as F
    from zoo_golden.airbench import LABEL_SMOOTHING, Airbench94, optimizer

    size = options.image or 32
    network = Airbench94()
    inputs = {"image": torch.randn(options.batch, 3, size, size), "label": torch.randint(10, (options.batch,))}

    def loss(outputs, inputs, network):
        return {"loss": F.cross_entropy(outputs, inputs["label"], label_smoothing=LABEL_SMOOTHING)}

    return Work(network, inputs, lambda n, i: n(i["image"]), loss, optimizer(network, 1e-3))


MAKE = {
    "airbench94": airbench,
    "bert_base": bert,
    "db_resnet": detector,
    "gpt2": gpt2,
    "gpt_shakespeare": character_gpt,
    "llama": llama,
    "qwen3_moe": qwen3_moe,
    "siammask": tracker,
    "unet_medical": segmenter,
}


def torch_step(options: argparse.Namespace) -> dict:
    """The recipe's step in PyTorch."""
    sys.path.insert(0, str(ROOT / "golden/export"))
    import torch

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    work = MAKE.get(options.recipes[0], classifier)(options, torch)
    layout = torch.channels_last if options.layout == "channels_last" else torch.contiguous_format
    network = work.network.to(memory_format=layout).train()
    inputs = {k: v.contiguous(memory_format=layout) if v.dim() == 4 else v for k, v in work.inputs.items()}
    times = []
    for _ in range(WARM_UP + options.steps):
        start = time.perf_counter()
        work.optimizer.zero_grad(set_to_none=True)
        total = work.loss(work.forward(network, inputs), inputs, network)["loss"]
        total.backward()
        if work.clip:
            torch.nn.utils.clip_grad_norm_(network.parameters(), work.clip)
        work.optimizer.step()
        total.item()
        times.append(1e3 * (time.perf_counter() - start))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"step_ms_median": statistics.median(times[WARM_UP:]), "peak_rss_bytes": memory}


def answer(command: list[str]) -> dict:
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT).stdout)


def compare(recipe: str, options: argparse.Namespace) -> None:
    size = []
    of_tokens = recipe in OF_TOKENS
    layouts = OF_TOKENS.get(recipe, LAYOUTS)
    for name in ("batch", "tokens" if of_tokens else "image", "threads", "steps"):
        if getattr(options, name) is not None:
            size += [f"--{name}", str(getattr(options, name))]
    zoo = [str(options.zoo), "bench", recipe, *size, "--format", "json"]
    if recipe == "siammask":
        zoo += ["--set", "train.parts=[]"]  # the backbone trains too
    if options.classes != 1000:
        zoo += ["--set", f"model.classes={options.classes}"]
    zoo += [word for larger in LARGER.get(recipe, []) for word in ("--set", larger)]
    commands = {"zoo": zoo}
    for layout in layouts:
        commands[layout] = [sys.executable, __file__, recipe, *size, "--classes", str(options.classes), "--layout", layout]
    rounds = [{name: answer(command) for name, command in commands.items()} for _ in range(options.rounds)]

    def median(name: str, figure: str) -> float:
        return statistics.median(r[name][figure] for r in rounds)

    at = f" at {options.tokens} tokens" if of_tokens else f" at {options.image}" if options.image else ""
    print(f"{recipe}, batch {options.batch}{at}, {options.threads} threads, {options.rounds} rounds in turn")
    for name in commands:
        times = ", ".join(f"{r[name]['step_ms_median']:.0f}" for r in rounds)
        memory = median(name, "peak_rss_bytes") / 2**30
        print(f"  {name:14} {median(name, 'step_ms_median'):7.1f} ms ({times})   {memory:.2f} GiB")
    better = min(layouts, key=lambda layout: median(layout, "step_ms_median"))
    ratios = [r["zoo"]["step_ms_median"] / min(r[layout]["step_ms_median"] for layout in layouts) for r in rounds]
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
