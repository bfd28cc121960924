"""The table of words: what can be drawn, on values of which rank, and how often."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from .program import Draw, Value, Word


@dataclass(frozen=True)
class Entry:
    """A word. `ranks`: of its first value, without the batch. `covers`: layers and options of recipes that it makes."""

    write: Word
    ranks: tuple[int, ...]
    weight: float
    arity: int
    refused: str | None
    """Part of the reason of the refusal, for a word that cannot be imported."""


WORDS: dict[str, Entry] = {}


def word(*ranks: int, weight: float = 1.0, refused: str | None = None) -> Callable[[Word], Word]:
    """Adds a function to the words; its name is theirs."""

    def add(function: Word) -> Word:
        def checked(draw: Draw, first: Value, *others: Value) -> str:
            draw.need(first.rank in ranks)
            return function(draw, first, *others)

        arity = sum(parameter.annotation is Value for parameter in inspect.signature(function).parameters.values())
        WORDS[function.__name__] = Entry(checked, ranks, weight, arity, refused)
        return function

    return add


def writers() -> dict[str, Word]:
    return {name: entry.write for name, entry in WORDS.items()}
