"""Profiles that `zoo profile --measured` reads have the ranges that it knows."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from zoo_golden.profile import Profile


def trained(folder: Path, profile_steps: int) -> list[dict]:
    """The events of some steps of a small network."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    with Profile(folder, network, skip=1, steps=profile_steps) as profile:
        for _ in range(1 + profile_steps):
            loss = network(torch.randn(3, 4)).square().mean()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            profile.step()
    [trace] = folder.glob("*.pt.trace.json")
    return [event for event in json.loads(trace.read_text())["traceEvents"] if event.get("ph") == "X"]


def around(events: list[dict], inner: str) -> set[str]:
    """The ranges around the operators with a name."""
    ranges = [event for event in events if event.get("cat") == "user_annotation"]
    operators = [event for event in events if event["name"] == inner]
    assert operators
    return {outer["name"] for event in operators for outer in ranges if outer["ts"] <= event["ts"] and event["ts"] + event["dur"] <= outer["ts"] + outer["dur"]}


def test_parts_of_a_step_are_ranges(tmp_path: Path) -> None:
    events = trained(tmp_path, 2)
    assert len([event for event in events if event["name"].startswith("ProfilerStep#")]) == 2
    assert {"forward/@root", "forward/0", "forward/2"} <= around(events, "aten::linear")
    assert "loss" in around(events, "aten::mean")
    assert "loss" not in around(events, "aten::linear")
    assert "backward" in around(events, "AddmmBackward0")
    assert "clip" in around(events, "aten::_foreach_norm")
    assert "Optimizer.step#SGD.step" in around(events, "aten::add_")
    assert "clip" not in around(events, "aten::add_")


def test_nothing_stays_changed(tmp_path: Path) -> None:
    before = torch.autograd.backward
    network = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="stop"), Profile(None, network):
        network(torch.ones(1, 2)).sum().backward()
        raise ValueError("stop")
    assert torch.autograd.backward is before
    assert not network._forward_hooks
    assert not network._forward_pre_hooks
