"""The first losses of an emitted program against those of a run of zoo: equal ones pass, and what was changed is found."""

import json

import numpy as np
import pytest
import torch

from zoo_golden.follow import CONDITIONED, Data, NotComparable, Step, judge, logged, losses

from .test_prove import MODEL, program

TRAIN = """
import torch
from torch.nn import functional


def rate(step, per_epoch, steps):
    return 0.01 * (1 - step / steps)


def load(network, path):
    network.load_state_dict(torch.load(path, weights_only=True))


class Training:
    def __init__(self, network, device, precision, ranks):
        self.network = network
        self.rule = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)

    def enter(self, epoch):
        self.network.train()

    def step(self, batch, learning_rate):
        self.rule.param_groups[0]["lr"] = learning_rate
        self.rule.zero_grad()
        loss = functional.cross_entropy(self.network(batch["image"]), batch["label"])
        loss.backward()
        self.rule.step()
        return {"loss": loss.detach()}
"""


def followed(folder, train: str = TRAIN, steps: int = 4):
    """The losses of a program in f64 and f32, on given data."""
    made = program(folder, MODEL)
    (folder / "train.py").write_text(train)
    torch.manual_seed(0)
    torch.save(made.network().state_dict(), folder / "weights.pth")
    (folder / "train").mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    np.save(folder / "train" / "image.npy", rng.standard_normal((8 * steps, 1, 32, 32)).astype(np.float32))
    np.save(folder / "train" / "label.npy", rng.integers(0, 10, 8 * steps))
    data = Data(folder, {"batch": 8, "steps_per_epoch": 2, "steps": steps})
    return [list(losses(made, data, steps, dtype)) for dtype in (torch.float64, torch.float32)]


def steps_of(zoo, exact, rounded) -> list[Step]:
    return [Step(number, *found) for number, *found in zip(range(1, len(zoo) + 1), zoo, exact, rounded, strict=True)]


def test_equal_losses_pass_and_their_errors_are_said(tmp_path, capsys):
    exact, rounded = followed(tmp_path)
    assert judge(steps_of(rounded, exact, rounded), 5)
    assert "the losses of 4 steps are equal" in capsys.readouterr().out


@pytest.mark.parametrize(
    "change", [("momentum=0.9", "momentum=0.8"), ("0.01 * (1 -", "0.011 * (1 -"), ('batch["label"])', 'batch["label"], label_smoothing=1e-4)')]
)
def test_what_was_changed_is_found(tmp_path, capsys, change):
    zoo, _ = followed(tmp_path)
    exact, rounded = followed(tmp_path, TRAIN.replace(*change))
    assert not judge(steps_of(zoo, exact, rounded), 5)
    assert "steps differ" in capsys.readouterr().out


def test_an_error_beyond_rounding_and_a_loss_that_is_no_number_fail():
    exact = [{"loss": 1.0}]
    assert judge(steps_of([{"loss": 1.0 + 0.9 * CONDITIONED * 1e-6}], exact, [{"loss": 1.0 + 1e-6}]), 5)
    assert not judge(steps_of([{"loss": 1.0 + 1.1 * CONDITIONED * 1e-6}], exact, [{"loss": 1.0 + 1e-6}]), 5)
    assert not judge(steps_of([{"loss": float("nan")}], exact, exact), 5)
    assert not judge(steps_of([{}], exact, exact), 5)


def test_a_run_that_is_too_short_is_said(tmp_path):
    with pytest.raises(NotComparable, match="no run of zoo"):
        logged(tmp_path, 1)
    event = {"event": "step", "step": 1, "loss": 2.5, "components": [["l2", 0.5]]}
    (tmp_path / "events.jsonl").write_text(json.dumps(event, separators=(",", ":")) + "\n")
    assert logged(tmp_path, 1) == [{"loss": 2.5, "l2": 0.5}]
    with pytest.raises(NotComparable, match="2 are needed"):
        logged(tmp_path, 2)
