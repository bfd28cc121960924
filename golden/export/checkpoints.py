"""python checkpoints.py --seed N --count M [--zoo PATH]: draws files of weights and compares what zoo reads with torch.load.

Each file holds the network of tests/fixtures/recipes/tiny.yaml in a drawn way: element types, strides, shared storages,
expanded numbers, parameters, prefixes, nesting, averages, and beside it what trainings store; written by torch.save in
either format and any protocol, as a whole module, as safetensors, in shards, or as MindSpore writes it. `zoo weights
import` must find the network by itself, and every value must have the bits of torch's, in f32. What fails is written to
the folder --keep.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECIPES = ROOT / "tests/fixtures/recipes"
FLOATS = [torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16]
TYPES = [*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]


class Settings(dict):
    """A dictionary of a class that only the training has."""


class Meter:
    def __init__(self, draw):
        self.history = [draw.random() for _ in range(3)]
        self.last = torch.tensor(draw.random())


def network():
    return nn.Sequential(
        collections.OrderedDict(
            conv1=nn.Conv2d(3, 16, 3, padding=1, bias=False),
            bn1=nn.BatchNorm2d(16),
            relu1=nn.ReLU(),
            pool=nn.MaxPool2d(2),
            conv2=nn.Conv2d(16, 24, 3, stride=2, padding=1),
            relu2=nn.ReLU(),
            mean=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            dropout=nn.Dropout(0.1),
            fc=nn.Linear(24, 10),
        )
    )


def values(draw, shape, dtype):
    """Random values that the type holds."""
    generator = torch.Generator().manual_seed(draw.randrange(1 << 30))
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if not dtype.is_floating_point:
        low = 0 if dtype == torch.uint8 else -100
        return torch.randint(low, 100, shape, generator=generator).to(dtype)
    scale = 10.0 ** draw.choice([-9, -3, 0, 0, 0, 3])
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype)


def laid_out(draw, tensor):
    """The same values as another view of a storage."""
    way = draw.randrange(7)
    if way == 0 and tensor.dim() == 4:
        return tensor.contiguous(memory_format=torch.channels_last)
    if way == 1 and tensor.dim() >= 2:
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    if way == 2:
        padded = torch.zeros(tensor.numel() + 5, dtype=tensor.dtype)
        padded[3 : 3 + tensor.numel()] = tensor.flatten()
        return padded[3 : 3 + tensor.numel()].view(tensor.shape)
    if way == 3:
        every = torch.zeros(2 * tensor.numel(), dtype=tensor.dtype)
        every[::2] = tensor.flatten()
        return every[::2].view(tensor.shape) if tensor.dim() == 1 else tensor.clone()
    if way == 4 and tensor.dim():
        return tensor.flatten()[:1].clone().view([1] * tensor.dim()).expand(tensor.shape)
    return tensor


def state(draw):
    """A state_dict with drawn values."""
    one = draw.choice(TYPES) if draw.random() < 0.5 else None
    tensors = collections.OrderedDict()
    for name, like in network().state_dict().items():
        if name.endswith("num_batches_tracked"):
            if draw.random() < 0.7:
                tensors[name] = torch.tensor(draw.randrange(1000))
            continue
        dtype = one or draw.choice(TYPES)
        tensors[name] = laid_out(draw, values(draw, like.shape, dtype))
    if draw.random() < 0.2:
        # As parameters that lie side by side in one buffer.
        names = [name for name, tensor in tensors.items() if tensor.dtype == torch.float32]
        flat = torch.cat([tensors[name].flatten() for name in names]) if names else torch.zeros(0)
        at = 0
        for name in names:
            size = tensors[name].numel()
            tensors[name] = flat[at : at + size].view(tensors[name].shape)
            at += size
    return tensors


def beside(draw):
    """What trainings store beside the network."""
    momentum = torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=0.1, momentum=0.9)
    momentum.param_groups[0]["params"][0].sum().backward()
    momentum.step()
    things = {
        "epoch": draw.randrange(100),
        "best_acc1": torch.tensor(71.5),
        "loss": torch.tensor([0.25]),
        "none": None,
        "args": argparse.Namespace(lr=0.1, betas=(0.9, 0.999), device=torch.device("cpu"), dtype=torch.float16),
        "best": np.float64(draw.random()),
        "steps": np.int64(7),
        "curve": np.arange(4.0),
        "seen": {1, 2},
        "frozen": frozenset(["a"]),
        "meter": Meter(draw),
        "settings": Settings(a=1, b=[Settings()]),
        "path": pathlib.PurePosixPath("a/b"),
        "rng": torch.get_rng_state()[:8],
        "optimizer": momentum.state_dict(),
        "scaler": {"scale": 65536.0, "growth": torch.tensor(2)},
        "big": 1 << 200,
        "negative": -(1 << 40),
        "counter": collections.Counter("abca"),
        "default": collections.defaultdict(list, a=[1]),
        "c": 1 + 2j,
        "empty": {},
        "none_of": torch.zeros(0, 5),
        "bytes": b"abc",
        "size": torch.Size([1, 2]),
        "text": "größer\n",
        "shape": torch.nn.Parameter(torch.ones(2)),
        "nested": {"a": {"b": [({"c": torch.ones(1)},)]}},
    }
    names = draw.sample(sorted(things), draw.randrange(len(things)))
    return {name: things[name] for name in names}


def nested(draw, inner, prefix):
    """A dictionary of the training with the network in it, and the name of its entry."""
    tensors = {prefix + name: tensor for name, tensor in inner.items()}
    if draw.random() < 0.3:
        tensors = {name: nn.Parameter(t) if t.dtype.is_floating_point else t for name, t in tensors.items()}
    kind = draw.choice([dict, collections.OrderedDict, Settings])
    tensors = kind(tensors)
    if draw.random() < 0.25:
        return tensors, None
    path = draw.choice(
        [
            ["state_dict"],
            ["model"],
            ["model_state_dict"],
            ["net"],
            ["weights"],
            ["params"],
            ["module"],
            ["ema"],
            ["model_ema"],
            ["my own"],
            ["states", "network"],
            ["a", "b", "c"],
            [0],
            ["generator", "state"],
        ]
    )
    found = tensors
    for key in reversed(path):
        around = list({**beside(draw), key: found}.items())
        draw.shuffle(around)
        found = dict(around)
    return found, ".".join(map(str, path))


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def mindspore(tensors):
    """The checkpoint that mindspore.save_checkpoint writes."""
    names = {
        torch.float32: "Float32",
        torch.float64: "Float64",
        torch.float16: "Float16",
        torch.bfloat16: "BFloat16",
        torch.int64: "Int64",
        torch.int32: "Int32",
        torch.int16: "Int16",
        torch.int8: "Int8",
        torch.uint8: "UInt8",
        torch.bool: "Bool",
    }

    def field(number, content):
        return bytes([number << 3 | 2]) + varint(len(content)) + content

    out = b""
    for name, tensor in tensors.items():
        flat = tensor.contiguous().flatten()
        content = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        dims = b"".join(b"\x08" + varint(extent) for extent in (tensor.shape or [0]))
        described = dims + field(2, names[tensor.dtype].encode()) + field(3, content)
        out += field(1, field(1, name.encode()) + field(2, described))
    return out


def in_mindspores_words(name):
    words = {"bn1.weight": "bn1.gamma", "bn1.bias": "bn1.beta", "bn1.running_mean": "bn1.moving_mean", "bn1.running_var": "bn1.moving_variance"}
    return words.get(name, name)


def write(draw, folder):
    """A drawn file, what it should be read as, and the entry that should be found."""
    inner = state(draw)
    prefix = draw.choice(["", "", "module.", "_orig_mod.", "model.", "module._orig_mod.", "backbone.net."])
    way = draw.choice(["torch", "torch", "torch", "older", "module", "safetensors", "shards", "bins", "mindspore"])
    # What the network does not have, and --partial passes over.
    if draw.random() < 0.3:
        extra = {"aux.weight": torch.zeros(0, 5), "scale": torch.tensor(0.5), "aux.mask": torch.ones(4, 4).bool(), "aux.bias": torch.tensor(1.0).expand(3)}
        inner.update({name: extra[name] for name in draw.sample(sorted(extra), draw.randrange(1, 5))})
    prefixed = {prefix + name: tensor for name, tensor in inner.items()}
    entry = None
    if way in ("torch", "older"):
        content, entry = nested(draw, inner, prefix)
        file = folder / draw.choice(["a.pth", "a.pt", "a.pth.tar", "a.bin", "a.ckpt", "a"])
        new = way == "torch"
        torch.save(content, file, _use_new_zipfile_serialization=new, pickle_protocol=draw.randrange(2, 6))
    elif way == "module":
        module = network()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(values(draw, parameter.shape, torch.float32))
        if draw.random() < 0.5:
            module = nn.DataParallel(module)
        inner = network_state = module.state_dict()
        inner = {name.removeprefix("module."): tensor for name, tensor in network_state.items()}
        content, entry = (module, None) if draw.random() < 0.5 else ({"epoch": 3, "model": module}, "model")
        file = folder / "whole.pt"
        torch.save(content, file, _use_new_zipfile_serialization=draw.random() < 0.7)
    elif way == "safetensors":
        file = folder / "model.safetensors"
        save_file({name: tensor.contiguous().clone() for name, tensor in prefixed.items()}, file)
    elif way in ("shards", "bins"):
        parts, place = [{}, {}, {}], {}
        ending, stem = ("safetensors", "model") if way == "shards" else ("bin", "pytorch_model")
        for name, tensor in prefixed.items():
            part = draw.randrange(len(parts))
            parts[part][name] = tensor.contiguous().clone()
            place[name] = f"{stem}-{part + 1:05}-of-{len(parts):05}.{ending}"
        for part, tensors in enumerate(parts):
            if tensors:
                path = folder / f"{stem}-{part + 1:05}-of-{len(parts):05}.{ending}"
                save_file(tensors, path) if way == "shards" else torch.save(tensors, path)
        index = folder / f"{stem}.{ending}.index.json"
        index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": place}))
        file = draw.choice([index, folder])
    else:
        inner = {name: tensor for name, tensor in inner.items() if not name.endswith("num_batches_tracked")}
        file = folder / "step.ckpt"
        file.write_bytes(mindspore({in_mindspores_words(name): tensor for name, tensor in inner.items()}))
    names = [name for name in network().state_dict() if not name.endswith("num_batches_tracked")]
    expected = {name: inner[name].detach().float() for name in names}
    return way, file, expected, entry


def fault(zoo, file, expected, entry, out):
    """What is wrong with the way zoo reads a file; None if nothing is."""
    command = [zoo, "weights", "import", "tiny", file, "--recipes", RECIPES, "--out", out, "--format", "json", "--partial"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"exit {done.returncode}: {done.stdout[-800:]} {done.stderr[-400:]}"
    report = json.loads(done.stdout)
    if report["entry"] != entry:
        return f"entry {report['entry']}, not {entry}"
    read = load_file(out)
    if read.keys() != expected.keys():
        return f"tensors {sorted(read.keys() ^ expected.keys())}"
    for name, tensor in expected.items():
        if read[name].shape != tensor.shape or not torch.equal(read[name].view(torch.int32), tensor.contiguous().view(torch.int32)):
            return f"{name}: {read[name].flatten()[:4].tolist()}, not {tensor.flatten()[:4].tolist()}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--zoo", default=os.environ.get("ZOO", "zoo"))
    parser.add_argument("--keep", type=pathlib.Path)
    options = parser.parse_args()
    ways, faults = collections.Counter(), 0
    for case in range(options.count):
        draw = random.Random(f"{options.seed} {case}")
        torch.manual_seed(draw.randrange(1 << 30))
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch) / "in"
            folder.mkdir()
            way, file, expected, entry = write(draw, folder)
            ways[way] += 1
            found = fault(options.zoo, file, expected, entry, pathlib.Path(scratch) / "out.safetensors")
            if found:
                faults += 1
                print(f"seed {options.seed}, case {case}, {way}: {found}", flush=True)
                if options.keep:
                    shutil.copytree(folder, options.keep / f"{options.seed}-{case}", dirs_exist_ok=True)
    print(f"{options.count} files, {faults} faults: {dict(sorted(ways.items()))}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
