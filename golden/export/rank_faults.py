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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from math import prod
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import distributed, multiprocessing, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from rank_layers import (
    Among,
    SharedExperts,
    Stage,
    balance,
    context_parallel,
    expert_parallel,
    tensor_parallel,
    tensor_parallel_of_torch,
    token_losses,
)
from zoo_golden.capture import Capture
from zoo_golden.language import Decoder, Llama
from zoo_golden.qwen3 import Mixture, Qwen3
from zoo_golden.ranks import AXES

STEPS = 2
IGNORED = 65535
"""The label that does not count."""

NETWORKS: dict[str, Callable[..., Decoder]] = {
    "llama": Llama,
    "qwen3": Qwen3,
    "qwen3_moe": partial(Qwen3, mlp=partial(Mixture, hidden=48, experts=8, top=2)),
}


@dataclass(frozen=True)
class Fault:
    """What a run does wrong. Patterns are those of fnmatch, for names of parameters."""

    says: str
    unsummed: tuple[str, str] = ("", "")
    """An axis over which the gradients of a pattern are not summed."""
    scaled: tuple[str, str, int] = ("", "", 1)
    """A pattern whose gradients are multiplied by the extent of an axis to this power."""
    frozen: str = ""
    """A pattern of parameters that the last stage does not update."""
    local_means: bool = False
    same_samples: bool = False
    last_micro_batch: bool = False
    halves: bool = False
    counted: bool = False
    own_norm: bool = False
    stale: bool = False
    unsent: bool = False
    from_zero: bool = False


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


@dataclass(frozen=True)
class Case:
    """A recipe, its split in zoo's words, the samples of a step, and what is planted beside `none`."""

    recipe: str
    parallel: str
    batch: int
    layers: int
    planted: tuple[str, ...]
    by_torch: bool = False
    """Whether torch divides the layers over tensor ranks, and not rank_layers.py."""

    def extent(self, axis: str) -> int:
        """Ranks of an axis, or its micro-batches."""
        words = dict(word.split("=") for word in self.parallel.split(",") if "=" in word)
        if axis == "micro_batch":
            samples = self.extent("data") * self.extent("expert")
            return self.batch // (int(words[axis]) * samples) if axis in words else 1
        return int(words.get(axis, 1))

    @property
    def mesh(self) -> dict[str, int]:
        """The axes that have several ranks, in zoo's order."""
        return {axis: ranks for axis in AXES if (ranks := self.extent(axis)) > 1}

    def arguments(self) -> list[str]:
        """Of `zoo golden inputs` and `zoo judge`: a small network, of whose labels some do not count, and whose gradients are cut."""
        sets = [
            "model.inputs.tokens.indices=[16]",
            "model.classes=96",
            f"model.body[0].scope.body[1].scope.body[0].stack.repeat={self.layers}",
            f"loss.softmax_cross_entropy.ignore={IGNORED}",
            "gradients.clip=[{norm: 0.05}]",
        ]
        given = [part for one in sets for part in ("--set", one)]
        return ["--parallel", self.parallel, "--batch", str(self.batch), *given]


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


class Run:
    """A rank's part of the steps of a case, with a fault."""

    def __init__(self, case: Case, fault: Fault, begin: Path, mesh: DeviceMesh):
        self.case, self.fault, self.mesh = case, fault, mesh
        self.given = json.loads((begin / "step.json").read_text())
        weights = load_file(begin / "weights.safetensors")
        table = weights["model.embed_tokens.weight"]
        whole = NETWORKS[case.recipe](vocabulary=len(table), layers=case.layers)
        whole.load_state_dict(weights | {"lm_head.weight": table})
        self.pipeline, self.data, self.expert, self.context, self.tensor = map(self.among, AXES)
        self.sharded = "zero=3" in case.parallel
        self.network = self.divided(whole)
        self.micro_batches = list(zip(*(self.own(load_file(begin / "inputs.safetensors")[name]) for name in ("tokens", "label")), strict=True))
        self.valid = self.over_tokens(torch.tensor(float(sum((labels != IGNORED).sum() for _, labels in self.micro_batches))))
        self.optimizer = self.updating()
        if self.pipeline.ranks > 1:
            self.schedule = self.scheduled()

    def among(self, axis: str) -> Among:
        return Among(self.mesh.get_group(axis) if self.case.extent(axis) > 1 else None)

    def over_tokens(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over the ranks that have different tokens."""
        return self.context.sum(self.expert.sum(self.data.sum(x)))

    def divided(self, whole: Decoder) -> nn.Module:
        if self.case.by_torch:
            tensor_parallel_of_torch(whole, self.mesh["tensor"])
        elif self.tensor.ranks > 1:
            tensor_parallel(whole, self.tensor, "sequence" in self.case.parallel, halves=self.fault.halves)
        if self.context.ranks > 1:
            context_parallel(whole, self.context, from_zero=self.fault.from_zero)
        if self.expert.ranks > 1:
            expert_parallel(whole, self.expert, swapped=self.fault.halves)
        if self.sharded:
            for block in whole.model["layers"]:
                fully_shard(block, mesh=self.mesh["data"])
            fully_shard(whole, mesh=self.mesh["data"])
        return Stage(whole, self.pipeline.place, self.pipeline.ranks) if self.pipeline.ranks > 1 else whole

    def own(self, batch: torch.Tensor) -> torch.Tensor:
        """Tokens of this rank by micro-batch; the batch has all samples of the first rank, then those of the second."""
        place = 0 if self.fault.same_samples else self.expert.place * self.data.ranks + self.data.place
        samples = batch.long().unflatten(0, (self.expert.ranks * self.data.ranks, self.case.extent("micro_batch"), -1))[place]
        return self.context.part(samples, -1)

    def updating(self) -> torch.optim.Optimizer:
        trained, settings = dict(self.network.named_parameters()), self.given["optimizer"]["settings"]
        last = self.pipeline.place == self.pipeline.ranks - 1
        groups = []
        for group in self.given["optimizer"]["groups"]:
            names = [name for name in group["params"] if name in trained and not (last and fnmatch(name, self.fault.frozen))]
            groups.append({"params": [trained[name] for name in names], "lr": group["lr"], "weight_decay": group["weight_decay"]})
        groups = [group for group in groups if group["params"]]
        fixed = {"betas": (settings["beta1"], settings["beta2"]), "eps": settings["eps"]}
        if "zero=1" in self.case.parallel:
            optimizer = ZeroRedundancyOptimizer(groups, torch.optim.AdamW, process_group=self.data.group, **fixed)
            if self.fault.unsent:
                optimizer._sync_params = lambda: None
            return optimizer
        return torch.optim.AdamW(groups, **fixed)

    def record(self, folder: Path) -> None:
        for step in range(STEPS):
            if step == 0 or not self.fault.stale:
                self.network.zero_grad()
            with Capture(folder, self.network, self.optimizer, step=step, mesh=self.mesh, micro_batches=self.case.extent("micro_batch")) as capture:
                for name, value in (self.piped() if self.pipeline.ranks > 1 else self.passes()).items():
                    capture.loss(value, name)
                self.reduce()
                capture.gradients()
                self.clip()
                self.optimizer.step()

    def share(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """What these tokens add to the cross entropy of the step."""
        counts = labels != IGNORED
        columns = Among() if self.case.by_torch else self.tensor
        sum_ = (token_losses(logits, labels.where(counts, 0), columns) * counts).sum()
        if self.fault.local_means:
            return sum_ / counts.sum().clamp(min=1) / (self.data.ranks * self.expert.ranks * self.context.ranks * len(self.micro_batches))
        return sum_ / self.valid

    def passes(self) -> dict[str, torch.Tensor]:
        """Forward and backward; the losses of the whole step."""
        ((tokens, labels),) = self.micro_batches
        parts = {"cross_entropy": self.share(self.network(tokens), labels)}
        loss = parts["cross_entropy"]
        if self.case.recipe == "qwen3_moe":
            parts["expert_balance"] = balance(self.network, self.over_tokens)
            loss = loss + self.given["loss"]["expert_balance"]["weight"] * parts["expert_balance"]
        # FSDP2 takes the mean over the ranks.
        (loss * self.data.ranks if self.sharded else loss).backward()
        named = {"loss": loss} | (parts if len(parts) > 1 else {})
        return {name: self.over_tokens(value.detach()) for name, value in named.items()}

    def scheduled(self) -> Schedule1F1B:
        tokens, _ = self.micro_batches[0]
        first, last = self.pipeline.place == 0, self.pipeline.place == self.pipeline.ranks - 1
        passed = torch.empty(*tokens.shape, 64, requires_grad=True)
        sent = passed if not last else torch.empty(*tokens.shape, self.network.lm_head.out_features, requires_grad=True)
        stage = PipelineStage(
            self.network,
            self.pipeline.place,
            self.pipeline.ranks,
            torch.device("cpu"),
            input_args=tokens if first else passed,
            output_args=sent,
            group=self.pipeline.group,
        )
        if self.fault.last_micro_batch:
            once = stage.backward_one_chunk

            def backward(*given, **named):
                self.network.zero_grad()
                return once(*given, **named)

            stage.backward_one_chunk = backward
        return Schedule1F1B(stage, len(self.micro_batches), loss_fn=self.share, scale_grads=False)

    def piped(self) -> dict[str, torch.Tensor]:
        """Forward and backward of all micro-batches; the loss of the whole step on the last stage."""
        tokens, labels = (torch.cat(parts) for parts in zip(*self.micro_batches, strict=True))
        losses: list[torch.Tensor] = []
        last = self.pipeline.place == self.pipeline.ranks - 1
        self.schedule.step(*([tokens] if self.pipeline.place == 0 else []), target=labels if last else None, losses=losses)
        return {"loss": self.over_tokens(torch.stack(losses).sum().detach())} if last else {}

    def parameters(self) -> Iterator[tuple[str, nn.Parameter, nn.Module]]:
        """Parameters by name, with the module that has them."""
        modules = dict(self.network.named_modules())
        for name, parameter in self.network.named_parameters():
            yield name, parameter, modules[name.rpartition(".")[0]]

    @torch.no_grad()
    def reduce(self) -> None:
        """Sums gradients over the ranks that have parts of them."""
        for name, parameter, module in self.parameters():
            norm, experts = isinstance(module, nn.RMSNorm), isinstance(module, SharedExperts)
            parts = {
                "data": not self.sharded,
                "expert": not experts,
                "context": True,
                # Heads are divided, tokens only with `sequence`.
                "tensor": norm and not self.case.by_torch and ("sequence" in self.case.parallel or ".self_attn." in name),
                "pipeline": name == "model.embed_tokens.weight",
            }
            axis, pattern = self.fault.unsummed
            for among, part in parts.items():
                if part and not (among == axis and fnmatch(name, pattern)):
                    parameter.grad.copy_(getattr(self, among).sum(parameter.grad))
            pattern, axis, power = self.fault.scaled
            if fnmatch(name, pattern):
                parameter.grad.mul_(float(self.case.extent(axis)) ** power)

    @torch.no_grad()
    def clip(self) -> None:
        """By the norm of all gradients, of which each counts once."""
        largest = self.given["optimizer"]["clip_grad_norm"]
        placed = self.sharded or self.case.by_torch
        if placed and not self.fault.own_norm:
            nn.utils.clip_grad_norm_(self.network.parameters(), largest)
            return
        square = torch.zeros(())
        for name, parameter, module in self.parameters():
            own = (parameter.grad.to_local() if placed else parameter.grad).square().sum()
            if not self.fault.own_norm:
                matrix = not isinstance(module, nn.RMSNorm)
                own = self.tensor.sum(own) if matrix or self.fault.counted else own
                own = self.expert.sum(own) if isinstance(module, SharedExperts) or self.fault.counted else own
                again = name == "model.embed_tokens.weight" and self.pipeline.place > 0
                own = own * (not again)
            square += own
        norm = (square if self.fault.own_norm else self.pipeline.sum(square)).sqrt()
        for parameter in self.network.parameters():
            parameter.grad.mul_((largest / (norm + 1e-6)).clamp(max=1).item())


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
            print(f"| {case.recipe} {case.parallel} | {FAULTS[fault].says} | {judged(given.zoo, case, folder / fault)} |", flush=True)


if __name__ == "__main__":
    main()
