"""Single changes of a setting in recipes that pass: the check must notice each that changes a value."""

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .draw import Case
from .outcome import Failed, Kind
from .pipeline import Pipeline

_LEFT = frozenset(["name", "enabled", "init", "out_init", "start", "use", "block", "args", "returns", "tap", "like", "key", "value", "table", "item", "rows"])
"""Settings that name something, initial values (a golden has its own), and numbers that say what the golden's shapes say."""
_NUMBER = re.compile(r"(?<![\w.$])\d+(?:\.\d+)?(?:e-?\d+)?(?!\w)")
_WORDS = {
    "nearest": "bilinear",
    "bilinear": "nearest",
    "none": "tanh",
    "tanh": "none",
    "zeros": "reflect",
    "reflect": "zeros",
    "pytorch": "tensorflow",
    "tensorflow": "pytorch",
}
ROUNDING = 1e-12
"""Largest relative difference between steps that are the same but for rounding: a thousandth of what a check notices."""
AMPLIFIED = 1e-8
"""The same for parameters that an optimizer moves by the sign of rounding errors."""
SMALL = 1e-7
"""An eps below this has no effect on most values, and neither have half and ten times as much."""
DETECTED, WITHOUT, MISSED, INVALID = "detected", "without effect", "missed", "invalid"


def settings(recipe: dict, schema: dict) -> Iterator[tuple[str, str]]:
    """Paths in a recipe and other values for them."""
    model = recipe["model"]
    for path, layers in [
        ("model.body", model["body"]),
        *((f"model.blocks.{name}.body", block.get("body", [])) for name, block in model.get("blocks", {}).items()),
    ]:
        for place, layer in enumerate(layers):
            yield from of_layer(f"{path}[{place}]", layer, schema)
    ((kind, given),) = recipe["optimizer"].items()
    rule = next(entry["properties"][kind] for entry in schema["$defs"]["Optimizer"]["oneOf"] if kind in entry.get("properties", {}))
    yield from of_settings(f"optimizer.{kind}", given, _target(rule, schema))
    smoothing = (recipe["loss"].get("softmax_cross_entropy") or {}).get("label_smoothing", 0.0)
    yield "loss.softmax_cross_entropy.label_smoothing", str(round(smoothing + 0.07, 3))
    clip = recipe.get("gradients", {}).get("clip")
    yield ("gradients.clip", "[norm: 1e-3]") if clip is None else ("gradients.clip", f"[norm: {clip[0]['norm'] * 0.01}]")


def of_layer(path: str, layer: Any, schema: dict) -> Iterator[tuple[str, str]]:
    """Of a layer, and of the layers inside it."""
    whole = isinstance(layer, str)
    ((kind, given),) = ((layer, {}),) if isinstance(layer, str) else layer.items()
    if isinstance(given, str):
        yield from ((f"{path}.{kind}", changed) for changed in of_formula(given) if kind == "map")
        return
    for key in ("body", "main", "shortcut"):
        for place, inner in enumerate(given.get(key, ())):
            yield from of_layer(f"{path}.{kind}.{key}[{place}]", inner, schema)
    for place, branch in enumerate(given.get("branches", ())):
        for inside, inner in enumerate(branch):
            yield from of_layer(f"{path}.{kind}.branches[{place}][{inside}]", inner, schema)
    entry = next((entry["properties"][kind] for entry in schema["$defs"]["Layer"]["oneOf"] if kind in entry.get("properties", {})), None)
    if entry is None:
        return
    for at, value in of_settings(f"{path}.{kind}", given, _target(entry, schema)):
        yield (path, f"{{{kind}: {{{at.rpartition('.')[2]}: {value}}}}}") if whole else (at, value)


def _target(entry: dict, schema: dict) -> dict:
    return schema["$defs"][entry["$ref"].rpartition("/")[2]] if "$ref" in entry else entry


def of_settings(path: str, given: dict, definition: dict) -> Iterator[tuple[str, str]]:
    """Other values of what is given, and of what has its default."""
    for key, described in definition.get("properties", {}).items():
        if key in _LEFT or key not in given and "default" not in described:
            continue
        for value in others(given.get(key, described.get("default"))):
            yield f"{path}.{key}", value


def others(value: object) -> list[str]:
    """Other values of a setting."""
    if isinstance(value, bool):
        return ["false" if value else "true"]
    if isinstance(value, int):
        return [str(value + 1)] + ([str(value - 1)] if value > 1 else [])
    if isinstance(value, float) and 0 < value < SMALL:
        return ["1e-4", "1e-3"]
    if isinstance(value, float):
        return [repr(round(value * 0.5, 12)), repr(value * 10)] if value else ["0.3"]
    if isinstance(value, str):
        return [_WORDS[value]] if value in _WORDS else []
    if isinstance(value, list) and all(isinstance(item, int) for item in value) and len(value) > 1:
        return [str([*value[1:], value[0]]), str([value[0] + 1, *value[1:]])]
    return []


def of_formula(formula: str) -> list[str]:
    """A formula with another number or another function."""
    changed = [
        formula[: found.start()] + str(float(found[0]) * 1.5 + 0.25) + formula[found.end() :]
        for found in _NUMBER.finditer(formula)
        if formula[found.start() - 1 : found.start()] != "^"
    ]
    swapped = [
        formula.replace(a, b, 1)
        for a, b in (
            ("sin(", "cos("),
            ("cos(", "sin("),
            ("exp(", "tanh("),
            ("max(", "min("),
            ("abs(", "sin("),
            ("^2", "^3"),
            (" + ", " - "),
            (" * ", " + "),
        )
        if a in formula
    ]
    return [f'"{text}"' for text in (*changed, *swapped)]


class Mutation:
    """Changes of recipes in the folder of a lot."""

    def __init__(self, pipeline: Pipeline, schema: Path):
        self.pipeline, self.schema = pipeline, json.loads(schema.read_text())

    def of(self, case: Case, count: int) -> list[dict]:
        """Up to so many changes of a case that passed, each with what became of it."""
        import yaml

        recipe = self.pipeline.folder / f"recipes/{case.name}.yaml"
        every = list(dict.fromkeys(settings(yaml.safe_load(recipe.read_text()), self.schema)))
        chosen = random.Random(f"changes {case.seed} {case.number}").sample(every, min(count, len(every)))
        return [{"case": case.number, "path": path, "value": value, "result": self.one(case, recipe, path, value)} for path, value in chosen]

    def one(self, case: Case, recipe: Path, path: str, value: str) -> str:
        told = ("--set", f"{path}={value}")
        code, _, message = self.pipeline.command("check", recipe, "--dtype", "f64", "--format", "json", *told)
        if code == 1:
            return DETECTED
        if code == 0:
            return WITHOUT if same(self.own_step(case, recipe, ()), self.own_step(case, recipe, told), path) else MISSED
        if code != 2:
            raise Failed(Kind.CRASH, "mutate", f"{path}={value}: exit {code}: {message}")
        return INVALID

    def own_step(self, case: Case, recipe: Path, told: tuple[str, ...]) -> dict:
        """Statistics of everything that three steps of zoo give in f64."""
        stem = self.pipeline.folder / f"changed/{case.name}"
        code, _, message = self.pipeline.command("golden", "record", recipe, "--batch", 3, "--force", "--out", stem, *told)
        if code:
            raise Failed(Kind.CRASH, "mutate", f"exit {code}: {message}")
        return json.loads(stem.with_suffix(".json").read_text())


def same(own: dict, changed: dict, path: str) -> bool:
    """Whether a change has no effect on what a step leaves behind: gradients, variables and losses differ by rounding at most, as behind a
    sum whose mean is taken away. Outputs of modules may differ.

    An optimizer may amplify the rounding of small gradients. If the model is changed, and gradients of the first step and losses of three
    are the same, parameters have more room.
    """
    limits: defaultdict[str, float] = defaultdict(float)
    for key, facts in own["tensors"].items():
        room = AMPLIFIED if path.startswith("model.") and _kind(key) not in ("grad", "buffer1", "buffer3") else ROUNDING
        limits[_kind(key)] = max(limits[_kind(key)], room * facts["absmax"], room * facts["l2"])
    if own["tensors"].keys() != changed["tensors"].keys():
        return False
    differs = any(
        abs(step[name] - other[name]) > ROUNDING * max(1.0, abs(step[name])) for step, other in zip(own["losses_f64"], changed["losses_f64"]) for name in step
    )
    return not differs and all(
        abs(facts[figure] - changed["tensors"][key][figure]) <= limits[_kind(key)]
        for key, facts in own["tensors"].items()
        if _kind(key) != "out"
        for figure in ("l2", "absmax", "mean", "std")
    )


def _kind(key: str) -> str:
    return key.partition("/")[0]
