"""python mindspore_faults.py RECIPE DIR [FAULT...]: plants faults in MindCV's resnet18, records a step of each in MindSpore on a CPU with
zoo_golden.capture_mindspore, and prints what `zoo judge` says of them. Needs mindspore, mindcv and safetensors, no PyTorch.

RECIPE is a recipe of torchvision's resnet18 with a golden, such as the built-in one.
"""

import argparse
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import mindcv
import mindspore
import numpy as np
from mindspore import nn, ops
from safetensors.numpy import load_file

from zoo_golden.capture_mindspore import Capture

MODULES = {"max_pool": "maxpool", "classifier": "fc"} | {f"layer{n}.0.down_sample": f"layer{n}.0.downsample" for n in (2, 3, 4)}
"""MindCV's names of modules, and torchvision's."""
PARAMETERS = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}


class Step:
    """One training step of a network, of which a fault changes something."""

    def __init__(self, begin: Path):
        self.given = json.loads((begin / "step.json").read_text())
        inputs = load_file(begin / "inputs.safetensors")
        self.image = mindspore.Tensor(inputs["image"].astype(np.float32))
        self.label = mindspore.Tensor(inputs["label"].astype(np.int32))
        weights = load_file(begin / "weights.safetensors")
        self.network = mindcv.create_model("resnet18", num_classes=len(weights["fc.bias"])).set_train()
        # MindCV pads on the right and at the bottom only.
        self.network.max_pool = nn.MaxPool2d(3, 2, pad_mode="pad", padding=1)
        for parameter in self.network.get_parameters():
            parameter.set_data(mindspore.Tensor(weights[theirs(parameter.name)]))
        self.smoothing = self.given["loss"]["softmax_cross_entropy"]["label_smoothing"]
        self.criterion = nn.CrossEntropyLoss(label_smoothing=self.smoothing)
        self.rate, self.nesterov, self.halved, self.decays_vectors = 1.0, False, "", True

    def record(self, folder: Path) -> None:
        trained = self.network.trainable_params()
        given, groups = self.given["optimizer"], []
        for group in given["groups"]:
            own = [parameter for parameter in trained if theirs(parameter.name) in group["params"]]
            for vectors in (False, True):
                params = [parameter for parameter in own if (parameter.ndim == 1) == vectors]
                decay = 0.0 if vectors and not self.decays_vectors else group["weight_decay"]
                groups += [{"params": params, "weight_decay": decay}] if params else []
        lr = self.rate * given["groups"][0]["lr"]
        # On a CPU, nn.Momentum of MindSpore 2.10 ignores use_nesterov.
        if self.nesterov:
            optimizer = nn.SGD(groups, lr, given["momentum"], nesterov=True)
        else:
            optimizer = nn.Momentum(groups, lr, given["momentum"])
        step = mindspore.value_and_grad(lambda image, label: self.criterion(self.network(image), label), None, optimizer.parameters)
        with Capture(folder, self.network, optimizer) as capture:
            loss, gradients = step(self.image, self.label)
            gradients = [g / 2 if p.name == self.halved else g for p, g in zip(optimizer.parameters, gradients)]
            capture.loss(loss)
            capture.gradients(gradients)
            optimizer(tuple(gradients))


def theirs(name: str) -> str:
    """torchvision's name of a parameter of MindCV."""
    module, _, own = name.rpartition(".")
    module = next((ours + module[len(mine) :] for mine, ours in MODULES.items() if module.startswith(mine)), module)
    normalises = own in PARAMETERS
    return f"{module}.{PARAMETERS[own] if normalises else own}"


def cell(step: Step, path: str) -> nn.Cell:
    return dict(step.network.cells_and_names())[path]


def padded_on_the_right(step: Step) -> None:
    conv = cell(step, "layer3.0.conv1")
    conv.pad_mode, conv.padding = "same", 0
    conv.conv2d = ops.Conv2D(conv.out_channels, conv.kernel_size, pad_mode="same", stride=conv.stride)


def summed_in_half(step: Step) -> None:
    cell(step, "layer4.0.conv2").to_float(mindspore.float16)


def normalised(path: str, eps: float = 1e-5, momentum: float = 0.1) -> Callable[[Step], None]:
    """A batch normalisation with other settings, momentum being the share of the new statistics."""

    def plant(step: Step) -> None:
        cell(step, path).bn_train = ops.BatchNorm(is_training=True, epsilon=eps, momentum=momentum)

    return plant


def swapped(step: Step) -> None:
    weight = cell(step, "layer1.0.conv1").weight
    weight.set_data(mindspore.Tensor(np.ascontiguousarray(weight.asnumpy().swapaxes(0, 1))))


def with_setting(**settings) -> Callable[[Step], object]:
    return lambda step: vars(step).update(settings)


FAULTS: dict[str, tuple[str, Callable[[Step], object]]] = {
    "none": ("no fault", lambda step: None),
    "pool": ("MindCV's own pooling, padded on the right and at the bottom", with_setting()),
    "epsilon": ("epsilon 1e-3 in layer2.0.bn1", normalised("layer2.0.bn1", eps=1e-3)),
    "statistics": ("momentum of layer2.0.bn1's statistics inverted", normalised("layer2.0.bn1", momentum=0.9)),
    "padding": ("padding on the right and at the bottom in layer3.0.conv1", padded_on_the_right),
    "half": ("layer4.0.conv2 in f16", summed_in_half),
    "stored": ("layer3.1.bn2 in evaluation mode", lambda step: cell(step, "layer3.1.bn2").set_train(False)),
    "swapped": ("weights of layer1.0.conv1 transposed", swapped),
    "smoothing": ("label smoothing 0.1", with_setting(criterion=nn.CrossEntropyLoss(label_smoothing=0.1))),
    "sum": ("loss summed instead of averaged", with_setting(criterion=nn.CrossEntropyLoss(reduction="sum"))),
    "gradient": ("half the gradient of layer4.1.bn2.beta", with_setting(halved="layer4.1.bn2.beta")),
    "decay": ("vectors without weight decay", with_setting(decays_vectors=False)),
    "nesterov": ("Nesterov's momentum", with_setting(nesterov=True)),
    "rate": ("half the learning rate", with_setting(rate=0.5)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("folder", type=Path)
    parser.add_argument("faults", nargs="*", choices=[*FAULTS, []])
    parser.add_argument("--zoo", default=os.environ.get("ZOO", "zoo"))
    given = parser.parse_args()
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    begin = given.folder / "begin"
    subprocess.run([given.zoo, "golden", "inputs", given.recipe, "-o", begin], check=True, capture_output=True)
    print("| fault | stages that fail | first divergence | ratio |\n| --- | --- | --- | --- |")
    for fault in given.faults or FAULTS:
        step = Step(begin)
        if fault == "pool":
            step.network.max_pool = nn.MaxPool2d(3, 2, pad_mode="same")
        FAULTS[fault][1](step)
        folder = given.folder / fault
        step.record(folder)
        # MindCV's last pooling drops the axes of height and width.
        names = "modules: " + json.dumps(MODULES) + "\nignore: ['out/pool#0']\n"
        (folder / "names.yaml").write_text(names)
        command = [given.zoo, "judge", given.recipe, folder, "--allow-missing", "--format", "json"]
        report = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
        print(row(FAULTS[fault][0], report), flush=True)


def row(fault: str, report: dict) -> str:
    failed = [stage for stage in report["stages"] if stage["verdict"] == "fail"]
    names = ", ".join(stage["stage"] for stage in failed) or "none"
    first = (report["first_divergence"] or {}).get("tensor", "")
    ratio = next((one["ratio"] for stage in failed for one in stage["failed"] if one["name"] == first), None)
    return f"| {fault} | {names} | {first} | {'' if ratio is None else f'{ratio:.1e}'} |"


if __name__ == "__main__":
    main()
