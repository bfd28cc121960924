"""Makes a failing case smaller while it fails in the same way."""

from collections.abc import Iterator
from dataclasses import replace

from ..goldens import SETTINGS
from .draw import VALUES, Case, Source
from .outcome import Outcome
from .pipeline import Pipeline
from .program import Node, Program, Unfit

TRIES = 150
"""Networks that are tried, at most."""


def shrink(pipeline: Pipeline, case: Case, outcome: Outcome) -> tuple[Case, Outcome]:
    """The smallest case found whose outcome is of the same kind, in the same stage."""
    everything, tries = outcome.stage not in ("import", "python", "golden", "check f64", "check f32"), 0
    progress = True
    while progress:
        progress = False
        text = Source(case).text
        for smaller in smaller_cases(case):
            try:
                same = Source(smaller).text == text and smaller.options == case.options
            except Unfit:
                continue
            if same:
                continue
            tries += 1
            if tries > TRIES:
                return case, outcome
            found = pipeline.run(smaller, everything)
            if found.kind is outcome.kind and found.stage == outcome.stage:
                case, outcome, progress = smaller, found, True
                break
    return case, outcome


def smaller_cases(case: Case) -> Iterator[Case]:
    """Cases with less in them, the smallest steps last."""
    name = replace(case, program=case.program.copy(), options=dict(case.options))
    for program in smaller_programs(case.program, case.planted):
        yield replace(name, program=program)
    for option in VALUES:
        if option in case.options and not (option == "momentum" and "nesterov" in case.options):
            yield replace(name, options={key: value for key, value in case.options.items() if key != option})
    if case.options["optimizer"] != "sgd" and not any(option.replace("-", "_") in SETTINGS for option in case.options):
        yield replace(name, options={**case.options, "optimizer": "sgd"})
    if case.classes > 2:
        yield replace(name, classes=2)
    if case.kind == "image":
        channels, height, _ = case.shape
        for shape in ((channels, max(height // 2, 4), max(height // 2, 4)), (1, height, height)):
            if shape != case.shape:
                yield replace(name, shape=shape)
    elif case.shape[0] > 3:
        yield replace(name, shape=(case.shape[0] // 2,))


def smaller_programs(program: Program, planted: str | None) -> Iterator[Program]:
    """Without the second half, without one node, with a body instead of its block, and with plainer choices."""
    count = len(program.nodes)
    if count > 3:
        yield Program(program.copy().nodes[: count // 2])
    for place in reversed(range(count)):
        if program.nodes[place].word != planted:
            for taken in program.nodes[place].inputs:
                yield without(program, place, taken)
    for place, node in enumerate(program.nodes):
        for smaller in smaller_nodes(node):
            changed = program.copy()
            changed.nodes[place] = smaller
            yield changed


def without(program: Program, place: int, taken: int) -> Program:
    """Readers of a node read one of its inputs instead."""
    shorter = program.copy()
    del shorter.nodes[place]
    result = place + 1
    for node in shorter.nodes:
        node.inputs = [taken if index == result else index - (index > result) for index in node.inputs]
    return shorter


def smaller_nodes(node: Node) -> Iterator[Node]:
    """The same word with a smaller body, or with one choice left to its plainest form."""
    if node.body is not None:
        for body in smaller_programs(node.body, None):
            if body.nodes:
                yield Node(node.word, node.inputs, dict(node.given), body)
    for key in node.given:
        plainer = Node(node.word, list(node.inputs), {other: value for other, value in node.given.items() if other != key}, node.body)
        if node.given[key] not in (0, False):
            yield plainer
