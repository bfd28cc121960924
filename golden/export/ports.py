"""python ports.py DIR [NAME...]: ports torchvision's image classifiers (all, or those named) into DIR and writes the table of docs/import.md.

Small images and two samples, so that each takes seconds. Networks of more than `--most` million parameters are imported and held
against their trace, and their golden is left out. What has been ported is not done again.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import torchvision

from zoo_golden.port import parse, port
from zoo_golden.trace import TraceError

SIZES = {"inception_v3": 160, "maxvit_t": 224, "vit_h_14": 56}
ARGUMENTS = {"inception_v3": ["aux_logits=False"], "googlenet": ["aux_logits=False"]}


def factories() -> list[str]:
    return torchvision.models.list_models(module=torchvision.models)


def options(name: str, folder: Path, *more: str) -> argparse.Namespace:
    size = SIZES.get(name, 64)
    given = ARGUMENTS.get(name, [f"image_size={size}"] if name.startswith("vit") else [])
    words = [f"torchvision:{name}", "--classes", "10", "--size", str(size), "--no-lifted", "-o", str(folder), *more]
    return parse([*words, *(word for argument in given for word in ("--arg", argument))])


def parameters(name: str) -> float:
    """Million parameters, of the network with a thousand classes."""
    return next(iter(torchvision.models.get_model_weights(name))).meta["num_params"] / 1e6


def attempt(name: str, folder: Path, most: float, millions: float) -> dict:
    start = time.monotonic()
    more = ["--no-golden"] if millions > most else []
    run = subprocess.run(
        [sys.executable, __file__, "--one", name, str(folder), *more], capture_output=True, text=True, check=False
    )
    text = run.stdout + run.stderr
    lines = re.search(r"(\d+) lines?; the same as the trace", text)
    reason = re.search(r"(?:recipes cannot say|error:).*(?:\n -->.*)?(?:\n  =.*)?", text)
    verdict = {0: "imported" if more else "pass", 2: "refused"}.get(run.returncode, "failed")
    return {
        "name": name,
        "millions": round(millions, 1),
        "verdict": verdict,
        "lines": int(lines[1]) if lines else None,
        "reason": reason[0] if reason and run.returncode else "",
        "seconds": round(time.monotonic() - start, 1),
    }


def table(results: list[dict]) -> str:
    rows = [f"| {r['name']} | {r['millions']} | {r['verdict']} | {r['lines'] or ''} |" for r in sorted(results, key=lambda r: r["name"])]
    return "\n".join(["| factory | million parameters | verdict | lines |", "| --- | --- | --- | --- |", *rows])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--most", type=float, default=100.0)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--no-golden", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        try:
            return port(options(given.one, given.folder, *(["--no-golden"] if given.no_golden else [])))
        except TraceError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    given.folder.mkdir(parents=True, exist_ok=True)
    log = given.folder / "results.jsonl"
    results = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    sizes = {name: parameters(name) for name in given.names or factories()}
    for name in sorted(sizes, key=sizes.get):
        if not any(result["name"] == name for result in results):
            result = attempt(name, given.folder, given.most, sizes[name])
            results.append(result)
            with log.open("a") as file:
                file.write(json.dumps(result) + "\n")
            print(f"{name}: {result['verdict']} {result['seconds']} s {result['reason']}", file=sys.stderr, flush=True)
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
