"""A run of torch.distributed for rank_faults.py: two steps of a rank, with a fault."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
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
    """Each rank divides its loss by the number of its own labels."""
    same_samples: bool = False
    last_micro_batch: bool = False
    halves: bool = False
    """Of [`tensor_parallel`] and of [`SharedExperts`]."""
    counted: bool = False
    """The norm of the gradients has what several ranks have alike once for each of them."""
    own_norm: bool = False
    """The norm of the gradients has what this rank has alone."""
    stale: bool = False
    """The second step adds to the gradients of the first."""
    unsent: bool = False
    """A rank keeps the old values of parameters that another rank updates."""
    from_zero: bool = False
    """Of [`context_parallel`]."""


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

    @property
    def title(self) -> str:
        return f"{self.recipe} {self.parallel}{' by torch' if self.by_torch else ''}"

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


class Run:
    """A rank's part of the steps of a case, with a fault."""

    def __init__(self, case: Case, fault: Fault, begin: Path, mesh: DeviceMesh):
        self.case, self.fault, self.mesh = case, fault, mesh
        self.given = json.loads((begin / "step.json").read_text())
        weights = load_file(begin / "weights.safetensors")
        table = weights["model.embed_tokens.weight"]
        self.width = table.shape[1]
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
        passed = torch.empty(*tokens.shape, self.width, requires_grad=True)
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
