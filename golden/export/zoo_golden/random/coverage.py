"""What the reference of recipes documents, and whether it is drawn."""

import random
from collections.abc import Iterator

from ..goldens import OPTIMIZERS, SETTINGS
from .draw import VALUES, Case, Source
from .program import Node, Program, Unfit, Value, Written, extend
from .structures import draw_node
from .vocabulary import WORDS, writers

_EVERYWHERE = frozenset(("name", "enabled", "init"))
"""Settings of all layers: names and initial values come from the network, and an importer has no need to switch layers off."""

_OF_NO_FUNCTION = "no function of PyTorch is imported as this layer"
_OF_RECIPES = "a notation of recipes that an importer has no need of"
_NO_OPTION = "`port` has no such option"
NOT_DRAWN = {
    "crop": _OF_NO_FUNCTION,
    "cumsum.reverse": _OF_NO_FUNCTION,
    "pair_log_softmax": _OF_NO_FUNCTION,
    "xcorr": _OF_NO_FUNCTION,
    "patches": _OF_NO_FUNCTION,
    "unused": "a network of words uses all its parameters",
    "scope": "written for modules that are not called, around layers that are drawn",
    "tap": "written where the same value is read again",
    "from": "written where the same value is read again",
    "residual.shortcut": "written for branches that are drawn",
    "stack.args": "written for numbers that differ",
    "stack.first": "written for numbers that differ",
    "stack.count": "written for numbers that differ",
    "stack.turns": "written for numbers that differ",
    "stack.item": "written for names of torchvision's vision transformers",
    "block.args": "written for numbers that differ",
    "scale": "written for products with numbers, which are drawn as formulas",
    "scale.by": "written for products with numbers, which are drawn as formulas",
    "tokens.size": "written for detectors",
    "upsample.like": "a trace has the numbers of a size, not where they come from",
    "attention.causal": "a mask of PyTorch's MultiheadAttention is refused",
    "attention.mask": "a trace has no values of inputs",
    "attention.out_init": "initial values come from the network",
    "dot_product_attention.dropout": "goldens leave out chance",
    "dot_product_attention.mask": "a trace has no values of inputs",
    "dot_product_attention.rotary": "tables of angles are constants, and refused",
    "continuous_position_bias.hidden": "torchvision has always 512",
    "logit_scale.most": "torchvision has always 100",
    **{f"crop.{key}": _OF_NO_FUNCTION for key in ("like", "margin", "narrower_than")},
    **{f"patches.{key}": _OF_NO_FUNCTION for key in ("kernel", "pad", "stride")},
    "xcorr.kernel": _OF_NO_FUNCTION,
    "unused.body": "a network of words uses all its parameters",
    "unused.parameters": "a network of words uses all its parameters",
    "conv.weight_norm": "drawn for dense layers and signals, whose weights are made in the same way",
    "scope.body": "written for modules that are not called, around layers that are drawn",
    **{f"constant{key}": "constants are drawn as numbers of formulas" for key in ("", ".shape", ".values", ".formula", ".to", ".each")},
    "sine_positions": "sines are a constant of the network, and refused",
    "sine_positions.base": "sines are a constant of the network, and refused",
    "gate.body": "written for the branch of a product that is drawn",
    **{f"optimizer.lion{key}": _NO_OPTION for key in ("", ".beta1", ".beta2", ".groups", ".no_decay", ".weight_decay")},
    **{f"optimizer.lars{key}": _NO_OPTION for key in ("", ".momentum", ".trust", ".groups", ".no_decay", ".weight_decay")},
}
"""Layers and settings of the reference that no network draws, and why."""


def documented(schema: dict) -> set[str]:
    """Layers and their settings, and optimizers, by the names that recipes have."""
    found = set()
    for entry in schema["$defs"]["Layer"]["oneOf"]:
        for kind, described in entry.get("properties", {}).items():
            settings = schema["$defs"][described["$ref"].rpartition("/")[2]].get("properties", {}) if "$ref" in described else {}
            found |= {kind, *(f"{kind}.{key}" for key in settings if key not in _EVERYWHERE)}
    for entry in schema["$defs"]["Optimizer"]["oneOf"]:
        for kind, described in entry.get("properties", {}).items():
            settings = schema["$defs"][described["$ref"].rpartition("/")[2]]["properties"]
            found |= {f"optimizer.{kind}", *(f"optimizer.{kind}.{key}" for key in settings)}
    return found


def drawn(draws: int = 60) -> set[str]:
    """What the words give that can be imported: each is drawn several times on values of several shapes."""
    tags = {tag for name in OPTIMIZERS for tag in _of_optimizer(name)}
    for name, entry in WORDS.items():
        if not entry.refused:
            tags.update(tag for number in range(draws) for tag in _tags(name, number))
    for options in ({"width": 8}, {"width": 8, "padding": 0}, {"width": 8, "tied": "with bias"}):
        tags |= Source(Case(0, 0, "tokens", (5,), 7, Program([Node("activation", [0])]), dict(options))).tags
    return tags


def _of_optimizer(name: str) -> Iterator[str]:
    kind = "optimizer.rmsprop" if name == "rmsprop_tf" else f"optimizer.{name}"
    yield kind
    if name == "rmsprop_tf":
        yield f"{kind}.form"
    for option in VALUES:
        setting = option.replace("-", "_")
        if name in SETTINGS.get(setting, ()) or setting in ("weight_decay", "no_decay"):
            yield f"{kind}.{setting}"
    yield f"{kind}.groups"  # what `--no-decay dense` becomes


_SHAPES = ((4, 8, 8), (8, 4, 6), (6, 5), (8, 12), (12,), (8, 8, 8), (9, 8, 8))


def _tags(name: str, number: int) -> Iterator[str]:
    """Tags of one draw of a word, on a value of a shape that it takes and, if it takes two, on that value's activation."""
    chance = random.Random(f"{name} {number}")
    shapes = [shape for shape in _SHAPES if len(shape) in WORDS[name].ranks]
    shape = chance.choice(shapes)
    written = Written({"x": shape}, [])
    values = [Value("x", shape)]
    if WORDS[name].arity == 2:
        draw_node(chance, written, values, "0")
        written.tags.clear()
    inputs = list(range(len(values)))[: WORDS[name].arity]
    try:
        extend(written, Node(name, inputs), values, writers(), chance, "1")
    except (Unfit, IndexError):
        return
    yield from written.tags
