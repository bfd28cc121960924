"""Plants the faults of split steps in real runs of torch.distributed (gloo, two or four processes), and asks `zoo judge --parallel`
what it finds: a Llama, a Qwen3 and a mixture of experts, from the weights and inputs of `zoo golden inputs --parallel`.

    cargo build --release --bin zoo && export ZOO=$PWD/target/release/zoo
    cd golden/export
    python rank_faults.py --list                                   # cases and faults
    python rank_faults.py /tmp/ranks                               # all of them, as a table
    python rank_faults.py /tmp/ranks --case tensor --fault none norms

A case starts from FOLDER/CASE/begin; each fault records two steps into FOLDER/CASE/FAULT/stepN/rankR. Tensor and expert ranks are
those of rank_layers.py, FSDP2, ZeRO and pipelines those of torch.
"""

import argparse
import json
import os
import subprocess
import tempfile
from math import prod
from pathlib import Path

import torch
from torch import distributed, multiprocessing
from torch.distributed.device_mesh import init_device_mesh

from rank_runs import Case, Fault, Run

FAULTS = {
    "none": Fault("no fault"),
    "norms": Fault("gradients of normalisations not summed over tensor ranks", unsummed=("tensor", "*norm.weight")),
    "final_norm": Fault("gradient of the last normalisation not summed over tensor ranks", unsummed=("tensor", "model.norm.weight")),
    "head_norms": Fault("gradients of q_norm and k_norm not summed over tensor ranks", unsummed=("tensor", "*.[qk]_norm.weight")),
    "halves": Fault("gate and up divided as one table, or in the other order on one rank", halves=True),
    "counted": Fault("replicated weights counted on each rank in the norm of the gradients", counted=True),
    "own_norm": Fault("each rank clips by the norm of its own part", own_norm=True),
    "local_means": Fault("mean of the ranks' means instead of the mean over all tokens", local_means=True),
    "twice": Fault("gradients divided by the data ranks once more", scaled=("*", "data", -1)),
    "same_samples": Fault("all ranks read the samples of the first", same_samples=True),
    "one_layer": Fault("gradients of one layer not summed over data ranks", unsummed=("data", "model.layers.1.*")),
    "stale": Fault("gradients of the step before not set to zero", stale=True),
    "unsent": Fault("updated parameters not sent to the ranks that do not update them", unsent=True),
    "positions": Fault("rotary positions that start at 0 on each context rank", from_zero=True),
    "one_context": Fault("gradients of one layer not summed over context ranks", unsummed=("context", "model.layers.1.*")),
    "last_micro_batch": Fault("gradients of the last micro-batch alone", last_micro_batch=True),
    "micro_batches": Fault("gradients divided by the number of micro-batches", scaled=("*", "micro_batch", -1)),
    "tied": Fault("gradient of the tied table not summed over the first and last stage", unsummed=("pipeline", "model.embed_tokens.weight")),
    "frozen": Fault("a parameter that is not updated", frozen="model.layers.*.mlp.down_proj.weight"),
    "experts_divided": Fault("gradients of experts divided by the expert ranks", scaled=("*.experts.*", "expert", -1)),
    "experts_times": Fault("gradients of experts multiplied by the expert ranks", scaled=("*.experts.*", "expert", 1)),
    "router": Fault("gradient of the router not summed over expert ranks", unsummed=("expert", "*.mlp.gate.weight")),
}

SHARED = ("norms", "final_norm", "halves", "counted", "own_norm")
MEANS = ("local_means", "twice", "same_samples")
PIPED = ("last_micro_batch", "micro_batches", "tied", "frozen", "own_norm")
MIXED = ("experts_divided", "experts_times", "router", "halves", "local_means")

CASES = {
    "tensor": Case("llama", "tensor=2,sequence", 4, 2, SHARED),
    "tensor4": Case("llama", "data=2,tensor=2,sequence", 4, 2, (*SHARED, *MEANS, "one_layer")),
    "heads": Case("qwen3", "tensor=2", 4, 2, ("head_norms", "halves", "counted")),
    "heads4": Case("qwen3", "data=2,tensor=2,sequence", 4, 2, ("head_norms", "norms")),
    "dtensor": Case("llama", "tensor=2,sequence", 4, 2, ("own_norm", "stale"), by_torch=True),
    "dtensor4": Case("llama", "data=2,tensor=2,sequence,zero=3", 4, 2, (*MEANS, "own_norm"), by_torch=True),
    "zero": Case("llama", "data=2,zero=1", 4, 2, (*MEANS, "one_layer", "unsent")),
    "fsdp": Case("llama", "data=2,zero=3", 4, 2, (*MEANS, "own_norm", "stale")),
    "fsdp4": Case("qwen3_moe", "data=4,zero=3", 4, 2, (*MEANS, "own_norm")),
    "context": Case("llama", "context=2", 4, 2, ("positions", "one_context", "local_means")),
    "context4": Case("llama", "data=2,context=2", 4, 2, ("positions", "one_context", "local_means", "twice")),
    "pipeline": Case("llama", "pipeline=2,micro_batch=1", 3, 4, PIPED),
    "pipeline4": Case("llama", "pipeline=2,data=2,micro_batch=1", 6, 4, (*PIPED, *MEANS)),
    "expert": Case("qwen3_moe", "expert=2", 4, 2, (*MIXED, "counted")),
    "expert4": Case("qwen3_moe", "data=2,expert=2", 4, 2, (*MIXED, "one_layer")),
}


def work(rank: int, case: Case, faults: list[str], folder: Path, meeting: str) -> None:
    """A process of a case; `meeting` is where the processes find each other."""
    torch.set_num_threads(1)
    ranks = prod(case.mesh.values())
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", tuple(case.mesh.values()), mesh_dim_names=tuple(case.mesh))
    for fault in faults:
        Run(case, FAULTS[fault], folder / "begin", mesh).record(folder / fault)
    distributed.destroy_process_group()


def recorded(zoo: str, case: Case, faults: list[str], folder: Path) -> None:
    """Runs the processes of a case."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([zoo, "golden", "inputs", case.recipe, *case.arguments(), "-o", folder / "begin"], check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory() as meeting:
        multiprocessing.spawn(work, (case, faults, folder, f"file://{meeting}/store"), prod(case.mesh.values()))


def judged(zoo: str, case: Case, folder: Path) -> str:
    """What is found, as cells of a table: stages that fail, the first tensor and what is said of it."""
    command = [zoo, "judge", case.recipe, folder, *case.arguments(), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        return f"refused | | {done.stderr.strip().splitlines()[0]}"
    report = json.loads(done.stdout)
    failed = ", ".join(stage["stage"] for stage in report["stages"] if stage["verdict"] == "fail") or report["verdict"]
    first = report.get("first_divergence") or {}
    return f"{failed} | {first.get('tensor', '')} | {first.get('explanation', '')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--case", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--fault", nargs="*", choices=FAULTS, help="by default all that suit the case")
    parser.add_argument("--list", action="store_true", help="show cases and faults")
    parser.add_argument("--only", choices=("record", "judge"), help="judge later, or again")
    parser.add_argument("--zoo", default=os.environ.get("ZOO", "zoo"))
    given = parser.parse_args()
    if given.list or given.folder is None:
        for name, case in CASES.items():
            print(f"{name}: {case.recipe} --parallel {case.parallel} --batch {case.batch}: none, {', '.join(case.planted)}")
        for name, fault in FAULTS.items():
            print(f"  {name}: {fault.says}")
        return
    print("| case | fault | stages that fail | first divergence | explained as |\n| --- | --- | --- | --- | --- |")
    for name in given.case:
        case, folder = CASES[name], given.folder / name
        faults = [fault for fault in ("none", *case.planted) if given.fault is None or fault in given.fault]
        if given.only != "judge":
            recorded(given.zoo, case, faults, folder)
        for fault in faults if given.only != "record" else ():
            print(f"| {case.title} | {FAULTS[fault].says} | {judged(given.zoo, case, folder / fault)} |", flush=True)


if __name__ == "__main__":
    main()
