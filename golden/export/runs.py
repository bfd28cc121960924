"""python runs.py RUNS.tsv DIR [NAME...]: ports the networks of a list into DIR and prints how many are proven, as docs/import.md has it.

A row of the list has a group, a name, a model and the arguments of `python -m zoo_golden port MODEL ARGUMENTS --no-lifted`, with tabs
between; `--no-golden` among them is left out. A network is proven if its recipe passes `zoo check` in f64 (as part of port) and in
f32. DIR/results.jsonl has a line per network; what is in it is not done again.
"""

import argparse
import csv
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from zoo_golden.port import parse, port
from zoo_golden.trace import TraceError

PROVEN, OTHER, REFUSED = "proven", "no golden or not equal", "refused"


def ported(model: str, arguments: str, folder: Path, zoo: str) -> int:
    """The exit code of port, in a process of its own; its output is in folder/log.txt."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 70
    try:
        log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        given = [word for word in shlex.split(arguments) if word != "--no-golden"]
        code = port(parse([model, *given, "--no-lifted", "--zoo", zoo, "-o", str(folder)]))
    except (TraceError, SystemExit) as error:
        code = 2
        print(f"error: {error}", flush=True)
    finally:
        if code == 70:
            print(f"Traceback: {sys.exc_info()[1]!r}")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def attempt(row: dict[str, str], folder: Path, zoo: str) -> dict:
    start = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    code = ported(row["model"], row["arguments"], folder, zoo)
    text = (folder / "log.txt").read_text()
    lines = [line for line in text.splitlines() if line.startswith(("error:", " -->", "  =", "Traceback"))]
    verdict, reason = {0: PROVEN, 2: REFUSED}.get(code, OTHER), " ".join(lines)[:300]
    recipes = [*(folder / "recipes").glob("*.yaml")]
    if code == 2 and recipes:
        verdict = OTHER
    if verdict == PROVEN:
        check = subprocess.run([zoo, "check", str(recipes[0].resolve())], cwd=folder, capture_output=True, text=True, check=False)
        if check.returncode:
            verdict, reason = OTHER, "in f32: " + (check.stdout + check.stderr).strip().rpartition("\n")[2]
    for file in folder.glob("*.safetensors"):
        file.unlink()
    return {"group": row["group"], "name": row["name"], "verdict": verdict, "code": code, "reason": reason, "seconds": round(time.monotonic() - start, 1)}


def table(results: list[dict]) -> str:
    groups = sorted({result["group"] for result in results})
    rows = []
    for group in groups:
        counts = Counter(result["verdict"] for result in results if result["group"] == group)
        rows.append(f"| {group} | {counts.total()} | " + " | ".join(str(counts[verdict]) for verdict in (PROVEN, OTHER, REFUSED)) + " |")
    return "\n".join([f"| group | networks | {PROVEN} | {OTHER} | {REFUSED} |", "| --- | --- | --- | --- | --- |", *rows])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--group", help="those of this group alone")
    parser.add_argument("--zoo", default=os.environ.get("ZOO", "zoo"), help="the command")
    given = parser.parse_args()
    sys.path.insert(0, str(given.runs.resolve().parent))
    given.folder.mkdir(parents=True, exist_ok=True)
    log = given.folder / "results.jsonl"
    results = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    with given.runs.open() as file:
        keys = ("group", "name", "model", "arguments")
        rows = [dict(zip(keys, row, strict=False)) for row in list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]]
    for row in rows:
        wanted = (not given.names or row["name"] in given.names) and given.group in (None, row["group"])
        if wanted and not any(result["name"] == row["name"] for result in results):
            results.append(attempt(row, given.folder / row["name"], given.zoo))
            with log.open("a") as file:
                file.write(json.dumps(results[-1]) + "\n")
            print(f"{row['name']}: {results[-1]['verdict']} {results[-1]['seconds']} s {results[-1]['reason']}", file=sys.stderr, flush=True)
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
