"""Emitted programs in MindSpore against goldens: an honest one passes, and what was changed in it is found. They need the command
zoo, from the environment variable ZOO or the PATH."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("mindspore")

from mindspore import nn

from zoo_golden.__main__ import run
from zoo_golden.program import MISSING, framework
from zoo_golden.prove_mindspore import still

GOLDEN = Path(__file__).parents[3] / "golden"
ZOO = shutil.which(os.environ.get("ZOO", "zoo"))


@pytest.fixture
def lenet(tmp_path):
    if ZOO is None:
        pytest.skip("the command zoo is not here")
    folder = tmp_path / "lenet"
    subprocess.run([ZOO, "emit", "lenet", "--to", "mindspore", "--no-data", "-o", folder, "--quiet"], check=True)
    return folder


def prove(folder: Path, *options: str) -> int:
    return run(["prove", str(folder), "--golden", str(GOLDEN / "lenet/step.json"), "--zoo", str(ZOO), *options])


def test_an_honest_program_passes(lenet, capfd):
    assert framework([str(lenet)]) == "mindspore"
    assert prove(lenet) == 0
    assert "lenet: pass, 5 stages" in capfd.readouterr().out


def test_several_steps_pass(lenet):
    assert prove(lenet, "--steps", "2") == 0


@pytest.mark.parametrize(
    ("file", "change", "stage"),
    [
        ("model.py", ("self.pool1 = nn.MaxPool2d", "self.pool1 = nn.AvgPool2d"), "forward"),
        ("rules.py", ('batch["label"])', 'batch["label"], label_smoothing=0.01)'), "loss"),
        ("rules.py", ("weight_decay=0.0)", "weight_decay=1e-3)"), "update"),
    ],
)
def test_what_was_changed_is_found(lenet, capfd, file, change, stage):
    text = (lenet / file).read_text()
    assert change[0] in text
    (lenet / file).write_text(text.replace(*change))
    assert prove(lenet) == 1
    assert f"lenet: fail in {stage}" in capfd.readouterr().out


def test_dropout_is_off():
    network = nn.SequentialCell(nn.Dropout(p=0.5))
    still(network.set_train())
    assert network[0].p == 0


def test_a_golden_that_is_not_there_is_said(lenet, capfd):
    assert run(["prove", str(lenet), "--golden", "no/step.json"]) == MISSING
    assert "is not here" in capfd.readouterr().err
