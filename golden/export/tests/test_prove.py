"""Emitted programs against goldens: an honest one passes, and what was changed in it is found."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from zoo_golden.prove import MISSING, Comparison, Golden, Program, ProofError, judged, main, values

LENET = Path(__file__).parents[3] / "golden/lenet/step.json"

MODEL = """
from torch import Tensor, nn


class Lenet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, kernel_size=5, bias=False)
        self.relu1 = nn.ReLU()
        self.pool1 = nn.MaxPool2d(2)
        self.conv2 = nn.Conv2d(6, 16, kernel_size=5, bias=False)
        self.relu2 = nn.ReLU()
        self.pool2 = nn.MaxPool2d(2)
        self.flatten = nn.Flatten()
        self.fc1 = nn.Linear(400, 120)
        self.relu3 = nn.ReLU()
        self.fc2 = nn.Linear(120, 84)
        self.relu4 = nn.ReLU()
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool2(self.relu2(self.conv2(self.pool1(self.relu1(self.conv1(x))))))
        return self.fc3(self.relu4(self.fc2(self.relu3(self.fc1(self.flatten(x))))))
"""

RULES = """
import torch
from torch.nn import functional


def loss(outputs, batch):
    return {"loss": functional.cross_entropy(outputs, batch["label"])}


def optimizer(network):
    return torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)


def set_rate(rule, rate):
    for group in rule.param_groups:
        group["lr"] = rate
"""


def program(folder: Path, model: str = MODEL, rules: str = RULES) -> Program:
    (folder / "model.py").write_text(model)
    (folder / "rules.py").write_text(rules)
    image = {"name": "image", "kind": "image", "dtype": "float32", "shape": [1, 32, 32]}
    about = {"class": "Lenet", "classes": 10, "inputs": [image], "golden": {"manifest": "lenet/step.json"}}
    about |= {"framework": "pytorch", "recipe": "lenet", "profile": None, "set": []}
    (folder / "emitted.json").write_text(json.dumps(about))
    return Program.read(folder)


def test_an_honest_program_passes_in_every_stage(tmp_path):
    comparison = values(program(tmp_path), Golden.read(LENET), 3)
    assert comparison.failed() == [] and comparison.lacking == []
    stages = {key.split("/")[0] for key in comparison.errors}
    assert stages == {"out", "grad", "loss", "group", "param1", "param3", "momentum1"}


@pytest.mark.parametrize(
    ("model", "rules", "first"),
    [
        (("self.pool1 = nn.MaxPool2d(2)", "self.pool1 = nn.AvgPool2d(2)"), None, "out/pool1#0"),
        (None, ('batch["label"])', 'batch["label"], label_smoothing=0.01)'), "grad/"),
        (None, ("momentum=0.9", "momentum=0.9, weight_decay=1e-4"), "momentum1/"),
        (None, ("momentum=0.9", "momentum=0.9, weight_decay=1e-12"), "group/"),
        (None, ("momentum=0.9", "momentum=0.9, nesterov=True"), "param1/"),
    ],
)
def test_what_was_changed_is_found(tmp_path, model, rules, first):
    changed = program(tmp_path, MODEL.replace(*model) if model else MODEL, RULES.replace(*rules) if rules else RULES)
    comparison, close = judged(changed, Golden.read(LENET), 3)
    failed = comparison.failed()
    assert close == []
    assert any(key.startswith(first) for key in failed), failed[:5]


@pytest.mark.parametrize(
    ("expected", "found", "passes"), [(0.0, 0.0, True), (0.0, 1e-15, False), (0.0, 5e-16, True), (2.0, 2.0 + 1e-9, True), (2.0, 2.0 + 3e-9, False)]
)
def test_a_loss_of_zero_is_compared_too(expected, found, passes):
    golden = Golden(LENET, {"losses_f64": [{"hinge": expected}]}, {})
    error, allowed = golden.error_of_loss(1, "hinge", found)
    assert (error <= allowed) == passes


@pytest.mark.parametrize(("found", "passes"), [(0.0, True), (1e-15, True), (1e-12, False)])
def test_a_tensor_of_zeros_may_be_rounding_of_the_others(found, passes):
    entries = {"grad/a": {"shape": [2], "l2": 0.0}, "grad/b": {"shape": [2], "l2": 1.0}}
    comparison = Comparison()
    comparison.add(Golden(LENET, {"tensors": entries}, {"grad/a": np.zeros(2)}), "grad/a", torch.tensor([found, 0.0]))
    assert (not comparison.failed()) == passes


@pytest.mark.parametrize(("gradient", "passes"), [(0.0, False), (1e-15, True), (1e-12, False)])
def test_an_update_of_a_gradient_that_is_rounding_is_not_compared(gradient, passes):
    entries = {"grad/a": {"shape": [1], "l2": 0.0}, "grad/b": {"shape": [1], "l2": 1.0}, "param1/a": {"shape": [1], "l2": 1.0}}
    golden = Golden(LENET, {"tensors": entries}, {"grad/a": np.zeros(1), "param1/a": np.ones(1)})
    comparison = Comparison()
    comparison.add(golden, "grad/a", torch.tensor([gradient], dtype=torch.float64))
    comparison.add(golden, "param1/a", torch.tensor([2.0], dtype=torch.float64))
    assert (not comparison.failed()) == passes


@pytest.mark.parametrize(("moved", "passes"), [(1.0, False), (1.0 + 5e-8, False), (1.0 + 2e-7, True)])
def test_what_rounding_moves_may_differ_as_far(moved, passes):
    comparison = Comparison({"param1/a": (1e-6, 1e-9)}, found={"param1/a": (np.array([1.0]), 1.0)})
    comparison.loosen(Comparison(found={"param1/a": (np.array([moved]), 1.0)}))
    assert (not comparison.failed()) == passes


def test_what_is_no_program_is_said(tmp_path, capsys):
    with pytest.raises(ProofError, match="no emitted program"):
        Program.read(tmp_path)
    assert main([str(tmp_path)]) == MISSING
    assert "no emitted program" in capsys.readouterr().err
