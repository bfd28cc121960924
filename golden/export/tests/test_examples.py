"""The scripts in examples/ that need PyTorch: what they prove, and that the committed recipe, golden and recording are what they write."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
ZOO = shutil.which(os.environ.get("ZOO", "zoo"))

pytestmark = pytest.mark.skipif(ZOO is None, reason="the command zoo is not on the PATH")


def run(script: str, folder: Path) -> str:
    """What a script prints."""
    assert ZOO is not None
    package = EXAMPLES.parent / "golden/export"
    environment = os.environ | {"PATH": f"{Path(ZOO).parent}:{os.environ['PATH']}", "PYTHONPATH": str(package)}
    done = subprocess.run([EXAMPLES / script, folder], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rules(recipe: Path) -> list[str]:
    """The lines of a recipe, without where its network was found."""
    return [line.split(" # ")[0] for line in recipe.read_text().splitlines() if not line.startswith(("#", "reference:"))]


def test_a_network_of_ones_own_is_proven_twice(tmp_path: Path) -> None:
    said = run("prove.sh", tmp_path)
    assert "my_network: pass, 8 stages" in said
    assert "113 tensors equal in f64" in said
    assert rules(tmp_path / "recipes/my_network.yaml") == rules(EXAMPLES / "recipes/my_network.yaml")


def test_the_fault_of_the_recorded_step_is_found(tmp_path: Path) -> None:
    said = run("judge.sh", tmp_path)
    assert "first divergence in forward: blocks.1.norm2#0" in said
    assert "my_network: fail in forward, backward" in said
