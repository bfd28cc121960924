"""Draws networks, ports them, and compares everything that zoo does with them with PyTorch."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from .draw import Case, Source, arguments, draw_case
from .mutate import DETECTED, INVALID, MISSED, WITHOUT, Mutation
from .outcome import ACCEPTED, FAULTS, Failed, Kind, Outcome
from .pipeline import Pipeline
from .shrink import shrink


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="zoo_golden random", description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--seed", type=int, default=1)
    add("--count", type=int, default=100, help="number of networks")
    add("--only", type=int, metavar="I", help="only network I of the seed")
    add(
        "-o",
        "--output",
        default="random",
        metavar="DIR",
        help="gets sources, traces, recipes, goldens, seed-N.jsonl, and failures/ with networks that are as small as they still fail",
    )
    add("--zoo", default=os.environ.get("ZOO", "zoo"), help="path of the command zoo; by default from the environment variable ZOO, or the PATH")
    add("--jobs", type=int, default=1, help="number of processes")
    add("--mutate", type=int, default=0, metavar="K", help="also change K settings, one at a time, in each recipe that passes: the check must notice")
    add("--no-shrink", action="store_true", help="leave failing networks as they are")
    return parser.parse_args(arguments)


@dataclass(frozen=True)
class Work:
    """What a process needs for a case."""

    seed: int
    number: int
    folder: Path
    zoo: str
    shrinks: bool
    mutations: int


def one(work: Work) -> dict:
    """Draws a case and tries everything on it; the row of its log."""
    begun = time.perf_counter()
    case = draw_case(work.seed, work.number)
    drawn = round(time.perf_counter() - begun, 3)
    pipeline = Pipeline(work.folder, work.zoo)
    outcome = pipeline.run(case)
    outcome.stages["draw"] = drawn
    row = {"seed": work.seed, "number": work.number, "planted": case.planted, "tags": sorted(Source(case).tags), **outcome.json()}
    if outcome.kind is Kind.PASS and work.mutations:
        try:
            row["changes"] = Mutation(pipeline, work.folder / "schema.json").of(case, work.mutations)
        except Failed as failed:
            row |= failed.outcome.json()
    if work.shrinks and outcome.kind in FAULTS:
        smaller, found = shrink(pipeline, replace(case, program=case.program.copy()), outcome)
        row["shrunk"] = found.reason
        write_down(pipeline, smaller, found)
    return row | {"seconds": round(time.perf_counter() - begun, 2)}


def write_down(pipeline: Pipeline, case: Case, outcome: Outcome) -> None:
    """The network and the command that show a failure again, in a folder of their own."""
    folder = pipeline.folder / "failures"
    folder.mkdir(exist_ok=True)
    text = f"# {outcome.kind.value} in {outcome.stage}\n# python -m zoo_golden port {' '.join(arguments(case))} -o .\n"
    text += "".join(f"# {line}\n" for line in outcome.reason.splitlines())
    (folder / f"{case.name}.py").write_text(text + Source(case).text)


def main(arguments: list[str]) -> int:
    """1 if there is a fault, 3 without the command zoo."""
    options = parse(arguments)
    command = shutil.which(options.zoo)
    if command is None:
        print(f"{options.zoo} is not there: install zoo, or say where it is with --zoo or ZOO", file=sys.stderr)
        return 3
    folder = Path(options.output).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if options.mutate:
        (folder / "schema.json").write_text(subprocess.run([command, "schema", "recipe"], capture_output=True, check=True, text=True).stdout)
    numbers = range(options.count) if options.only is None else [options.only]
    work = [Work(options.seed, number, folder, command, not options.no_shrink, options.mutate) for number in numbers]
    rows = []
    with (folder / f"seed-{options.seed}.jsonl").open("w") as log, get_context("spawn").Pool(options.jobs) as pool:
        for row in pool.imap(one, work):
            log.write(json.dumps(row) + "\n")
            log.flush()
            rows.append(row)
            if Kind(row["kind"]) in FAULTS or options.only is not None:
                print(f"{row['number']}: {row['kind']} in {row['stage']}: {row.get('shrunk') or row['reason']}", file=sys.stderr)
            for change in row.get("changes", ()):
                if change["result"] == MISSED:
                    print(f"{row['number']}: not noticed: --set {change['path']}={change['value']}", file=sys.stderr)
    return summary(rows)


def summary(rows: list[dict]) -> int:
    """Prints what became of the networks; 1 if there is a fault."""
    counts = Counter(Kind(row["kind"]) for row in rows)
    for kind in Kind:
        print(f"{kind.value:18}{counts[kind]:6}")
    print(f"{'imported':18}{sum(counts[kind] for kind in ACCEPTED):6} of {len(rows)}")
    seconds: Counter[str] = Counter()
    for row in rows:
        seconds.update(row["stages"])
    print("seconds of a network: " + ", ".join(f"{name} {value / len(rows):.2f}" for name, value in seconds.items()))
    changes = Counter(change["result"] for row in rows for change in row.get("changes", ()))
    if changes:
        print("changes: " + ", ".join(f"{changes[result]} {result}" for result in (DETECTED, WITHOUT, MISSED, INVALID)))
    return 1 if changes[MISSED] or any(counts[kind] for kind in FAULTS) else 0
