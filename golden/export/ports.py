"""python ports.py DIR [NAME...]: ports torchvision's image classifiers and one network of each of timm's families (all, or those
named: resnet18, timm:resnet18) into DIR and prints the tables of docs/import.md.

Small images and two samples, so that each takes seconds; more samples or smaller weights where a step is badly
conditioned (`BATCHES`, `GAINS`).
Networks of more than `--most` million parameters are imported and held against their trace, and their golden is left out. Golden and
weights of a network that passes are removed. DIR/results.jsonl has a line per network; what is in it is not done again.
"""

import argparse
import json
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import torch
import torchvision

from zoo_golden.port import parse, port
from zoo_golden.trace import TraceError

SIZES = {"inception_v3": 160, "timm:inception_v3": 160, "maxvit_t": 224, "vit_h_14": 56}
ARGUMENTS = {"inception_v3": ["aux_logits=False"], "googlenet": ["aux_logits=False"]}
BATCHES = {"timm:rexnet_100": 8, "timm:skresnet18": 8, "timm:inception_v4": 8}
"""Networks that normalise a few values when there are two samples."""
GAINS = {"timm:convmixer_768_32": "blocks.*.0.fn.2.*=0.1"}
"""Residual branches that are scaled down: where each of many blocks amplifies, rounding grows a hundred thousandfold per step."""
FAMILIES = """
    resnet18 seresnet18 resnext26ts eca_resnet33ts skresnet18 resnest14d resnetv2_50 nf_resnet26 nfnet_l0 res2net50_26w_4s dpn48b
    regnetx_002 regnety_002 efficientnet_b0 efficientnetv2_rw_t efficientnet_lite0 tinynet_e mobilenetv2_050 mobilenetv3_small_050
    mnasnet_small semnasnet_075 spnasnet_100 fbnetc_100 hardcorenas_a ghostnet_050 rexnet_100 tresnet_m dla34 hrnet_w18_small
    densenet121 vgg11 inception_v3 inception_v4 xception41 cspresnet50 darknet53 vovnet39a ese_vovnet19b_dw selecsls42 repvgg_a0
    mobileone_s0 fastvit_t8 convnext_atto convmixer_768_32 edgenext_xx_small efficientformer_l1 poolformer_s12
    vit_tiny_patch16_224 deit_tiny_patch16_224 deit3_small_patch16_224 beit_base_patch16_224 cait_xxs24_224 xcit_nano_12_p16_224
    crossvit_9_240 swin_tiny_patch4_window7_224 pvt_v2_b0 coat_lite_tiny levit_128s mixer_s32_224 gmlp_ti16_224 resmlp_12_224
""".split()
"""One small network of each of timm's families."""


def factories() -> list[str]:
    return [*torchvision.models.list_models(module=torchvision.models), *(f"timm:{name}" for name in FAMILIES)]


def options(name: str, folder: Path, *more: str) -> argparse.Namespace:
    if name.startswith("timm:"):
        return parse([name, "--classes", "10", "--size", str(_timm_size(name)), "--no-lifted", *_conditions(name), "-o", str(folder), *more])
    size = SIZES.get(name, 64)
    given = ARGUMENTS.get(name, [f"image_size={size}"] if name.startswith("vit") else [])
    words = [f"torchvision:{name}", "--classes", "10", "--size", str(size), "--no-lifted", *_conditions(name), "-o", str(folder), *more]
    return parse([*words, *(word for argument in given for word in ("--arg", argument))])


def _conditions(name: str) -> list[str]:
    batch = ["--batch", str(BATCHES[name])] if name in BATCHES else []
    return [*batch, *(["--gain", GAINS[name]] if name in GAINS else [])]


def _timm_size(name: str) -> int:
    """The size in `SIZES`, or 96 pixels where the network takes images of any size."""
    import timm

    if name in SIZES:
        return SIZES[name]

    described = timm.get_pretrained_cfg(name.removeprefix("timm:"))
    whole = described.fixed_input_size or name.removeprefix("timm:").startswith(("mixer", "gmlp", "resmlp", "cait", "coat", "levit"))
    return described.input_size[-1] if whole else 96


def parameters(name: str) -> float:
    """Million parameters, of the network with a thousand classes."""
    if name.startswith("timm:"):
        import timm

        with torch.device("meta"):
            return sum(tensor.numel() for tensor in timm.create_model(name.removeprefix("timm:")).parameters()) / 1e6
    return next(iter(torchvision.models.get_model_weights(name))).meta["num_params"] / 1e6


def attempt(name: str, folder: Path, most: float, millions: float) -> dict:
    start = time.monotonic()
    more = ["--no-golden"] if millions > most else []
    run = subprocess.run([sys.executable, __file__, "--one", name, str(folder), *more], capture_output=True, text=True, check=False)
    text = run.stdout + run.stderr
    lines = re.search(r"(\d+) lines?; the same as the trace", text)
    reason = re.search(r"(?:cannot import|error:).*(?:\n -->.*)?(?:\n  =.*)?", text)
    verdict = {0: "imported" if more else "pass", 2: "refused"}.get(run.returncode, "failed")
    if verdict == "pass":
        recipe = name.rpartition(":")[2]
        shutil.rmtree(folder / "golden" / recipe)
        (folder / f"{recipe}.safetensors").unlink()
    return {
        "name": name,
        "millions": round(millions, 1),
        "verdict": verdict,
        "lines": int(lines[1]) if lines else None,
        "worst": worst(text),
        "reason": reason[0] if reason and run.returncode else "",
        "seconds": round(time.monotonic() - start, 1),
        "gigabytes": float(needed[1]) if (needed := re.search(r"^at most (\S+) GiB$", text, re.MULTILINE)) else None,
    }


def worst(text: str) -> dict[str, str] | None:
    """The stage of `zoo check` with the largest ratio of an error to its floor."""
    row = re.compile(r"^(\w+) +\d+ +(\S.*?) +(\S+) +(\S+) +(\S+) +\S+ +(?:pass|fail)$", re.MULTILINE)
    stages = [dict(zip(("stage", "tensor", "error", "floor", "ratio"), found)) for found in row.findall(text)]
    return max(stages, key=lambda stage: float(stage["ratio"]), default=None)


def table(results: list[dict]) -> str:
    rows = [
        f"| {r['name']} | {r['millions']} | {r['verdict']} | {r['lines'] or ''} | {' '.join((r['worst'] or {}).values())} |"
        for r in sorted(results, key=lambda r: r["name"])
    ]
    header = "| factory | million parameters | verdict | lines | worst stage, tensor, error, floor, ratio |"
    return "\n".join([header, "| --- | --- | --- | --- | --- |", *rows])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--most", type=float, default=100.0)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--no-golden", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_intermixed_args()
    if given.one:
        try:
            return port(options(given.one, given.folder, *(["--no-golden"] if given.no_golden else [])))
        except TraceError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        finally:
            used = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
            print(f"at most {used / 2**20:.1f} GiB", file=sys.stderr)
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
