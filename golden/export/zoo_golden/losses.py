"""Losses of goldens. A loss maps (outputs, inputs, network) to named scalars; `loss` is differentiated."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from .conditions import Input, image, labels
from .trace import named_tensors


def cross_entropy(label_smoothing: float = 0.0, l2: float = 0.0):
    """Softmax cross entropy of the scores that a network gives, mean over the batch and its tokens, or over its pixels."""
    return Loss((Term("cross_entropy", ("",), "label", (), "cross_entropy"),), label_smoothing, l2)


@dataclass(frozen=True)
class Term:
    """A term of the loss: what it is, the keys of the outputs that it judges (empty for an only tensor, or `logits`), the input that it
    compares with, the shape of an output without the batch, and the name of its value: the kind, if it is the first of its kind."""

    kind: str
    outputs: tuple[str, ...]
    target: str | None
    shape: tuple[int, ...]
    name: str


class Unfit(ValueError):
    """Why a loss does not fit what a network gives."""


@dataclass(frozen=True)
class Loss:
    """The sum of terms. `ignore`: the label that cross entropy leaves out.

    Smoothing s is spread over all K classes: target 1-s+s/K, off-target s/K. It brings along what the other definition (target 1-s,
    off-target s/(K-1)) and no smoothing would give. `l2` adds l2 * sum over all parameters of |p|^2 / 2 to the loss itself (TensorFlow's
    tf.nn.l2_loss).
    """

    terms: tuple[Term, ...]
    label_smoothing: float = 0.0
    l2: float = 0.0
    ignore: int | None = None

    def __call__(self, outputs: object, inputs: dict[str, torch.Tensor], network: nn.Module) -> dict[str, torch.Tensor]:
        parts = {term.name: self._value(term, outputs, inputs) for term in self.terms}
        if self.l2:
            parts["l2"] = self.l2 * sum(p.square().sum() / 2 for p in network.parameters())
        total = {"loss": sum(parts.values())}
        if len(parts) > 1:
            return total | parts
        (term,) = self.terms
        return total | (self._otherwise(term, outputs, inputs) if self.label_smoothing else {})

    def _value(self, term: Term, outputs: object, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        given = [result(outputs, key) for key in term.outputs]
        if term.kind == "triplet":
            return F.triplet_margin_loss(*given)
        target = inputs[term.target]
        if term.kind in NUMBERS:
            return NUMBERS[term.kind](given[0], target.view_as(given[0]))
        scores, label = _rows(given[0], target)
        ignored = {} if self.ignore is None else {"ignore_index": self.ignore}
        if term.kind == "nll":
            return F.nll_loss(scores, label, **ignored)
        return F.cross_entropy(scores, label, label_smoothing=self.label_smoothing, **ignored)

    def _otherwise(self, term: Term, outputs: object, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        scores, label = _rows(result(outputs, term.outputs[0]), inputs[term.target])
        if scores.dim() > 2 or self.ignore is not None:
            return {}
        return {
            "loss_smoothing_off_target_s_over_K_minus_1": _smoothed_over_others(scores, label, self.label_smoothing),
            "loss_no_smoothing": F.cross_entropy(scores, label),
        }

    def targets(self, samples: int, classes: int, salt: str) -> dict[str, Input]:
        """The inputs that the terms compare with, beside those of the network."""
        found = {}
        for term in self.terms:
            if term.kind in CLASSES:
                rows = term.shape[1:] if len(term.shape) == 3 else term.shape[:-1]
                found[term.target] = _labels((samples, *rows), classes, salt, term.target, self.ignore)
            elif term.target:
                shape = (samples, *(term.shape or (1,)))
                found[term.target] = _shares(shape, salt, term.target) if term.kind.startswith("bce") else image(shape, salt, term.target)
        return found


CLASSES = ("cross_entropy", "nll")
NUMBERS: dict[str, Callable] = {
    "mse": F.mse_loss,
    "mae": F.l1_loss,
    "bce": F.binary_cross_entropy_with_logits,
    "bce_probabilities": F.binary_cross_entropy,
}
KINDS = (*CLASSES, *NUMBERS, "triplet")
"""Losses by the names of `--loss`."""
_ONCE = ("nll", "triplet")
"""Those that a loss has once."""


def natural(given: Mapping[str, tuple[int, ...]], classes: int) -> list[tuple[str, str]]:
    """Outputs and kinds of a loss of which nothing is said: the cross entropy of scores of classes (of `logits` alone, if they are some), and
    the squared error of all other outputs."""
    kinds = {key: "cross_entropy" if _are_scores(shape, classes) else "mse" for key, shape in given.items()}
    return [("logits", kinds["logits"])] if kinds.get("logits") == "cross_entropy" else list(kinds.items())


def _are_scores(shape: tuple[int, ...], classes: int) -> bool:
    """Whether a sample has scores of several classes: [K], [T, K] or [K, H, W]."""
    return len(shape) in (1, 2, 3) and classes > 1 and (shape[0] if len(shape) == 3 else shape[-1]) == classes


def fitted(
    wanted: list[tuple[str | None, str]],
    given: Mapping[str, tuple[int, ...]],
    classes: int,
    inputs: Mapping[str, tuple[int, ...]],
    target: str | None = None,
) -> tuple[Term, ...]:
    """The terms of a loss for what a network gives. wanted: outputs by key, if they are named, and kinds. given, inputs: shapes without the
    batch. target: the name of what numbers are compared with."""
    several, terms = len(wanted) > 1, []
    for key, kind in wanted:
        tag = "bce" if kind == "bce_probabilities" else kind
        called = f"{key}_{tag}" if any(term.name == tag for term in terms) else tag
        if called != tag and (tag in _ONCE or key is None or any((key,) == term.outputs and term.kind == kind for term in terms)):
            raise Unfit(f"a loss has one term `{kind}`" + ("" if tag in _ONCE else " of each output"))
        if kind == "triplet":
            if len(given) != 3 or len(set(given.values())) > 1:
                raise Unfit(f"a triplet loss compares three tensors of one shape, and the network gives {_told(given)}")
            terms.append(Term(kind, tuple(given), None, next(iter(given.values())), called))
            continue
        usual = next((usual for usual in ("", "logits", *(given if len(given) == 1 else ())) if usual in given), None)
        own = usual if key is None else key
        if own is None or own not in given:
            raise Unfit(f"the network gives {_told(given)}: `--loss KEY=KIND` says which of them is judged, and how")
        shape, name = given[own], f"{own}_" if several and own else ""
        if kind in CLASSES:
            if not _are_scores(shape, classes):
                raise Unfit(
                    f"the network gives {list(shape)} for each sample, and the loss wants scores of {classes} classes (--classes): [K], [T, K] of "
                    "tokens or [K, H, W] of pixels; numbers are compared by `--loss mse`, `mae` or `bce`"
                )
            label = "label" if all(term.target != "label" for term in terms) else f"{name}label"
            terms.append(Term(kind, (own,), label, shape, called))
        else:
            wanted_target = target or f"{name}target"
            if wanted_target in inputs and inputs[wanted_target] != shape:
                raise Unfit(f"the network gives {list(shape)} for each sample, and `{wanted_target}` is {list(inputs[wanted_target])}")
            terms.append(Term(kind, (own,), wanted_target, shape, called))
    return tuple(terms)


def _told(given: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"`{key}` {list(shape)}" if key else str(list(shape)) for key, shape in given.items()) or "no tensor"


def result(outputs: object, key: str) -> torch.Tensor:
    """What a network gives under a key; under none, its only tensor or its `logits`."""
    found = dict(named_tensors(outputs))
    return found[key] if key in found else found["logits"]


def _rows(scores: torch.Tensor, label: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores `[rows, K]` of samples and tokens with their labels; those of pixels as they are, `[N, K, H, W]`."""
    return (scores, label) if scores.dim() == 4 else (scores.flatten(0, -2), label.flatten())


def _labels(shape: tuple[int, ...], classes: int, salt: str, name: str, ignored: int | None) -> Input:
    """With a label that is ignored, one class more than there are; those of that class are ignored."""
    if ignored is None:
        return labels(shape, classes, salt, name)
    drawn = labels(shape, classes + 1, salt, name)
    return Input(drawn.values.masked_fill(drawn.values == classes, ignored), f"{drawn.rule}, {classes} is {ignored}")


def _shares(shape: tuple[int, ...], salt: str, name: str) -> Input:
    """0 or 1."""
    drawn = labels(shape, 2, salt, name)
    return Input(drawn.values.float(), drawn.rule)


def _smoothed_over_others(logits: torch.Tensor, label: torch.Tensor, smoothing: float) -> torch.Tensor:
    negative = -logits.log_softmax(1)
    target = negative.gather(1, label[:, None]).squeeze(1)
    others = negative.sum(1) - target
    return ((1 - smoothing) * target + smoothing / (logits.shape[1] - 1) * others).mean()
