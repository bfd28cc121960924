"""Networks of zoo_golden split over ranks of torch.distributed by hand, as Megatron-LM does it: the layers of rank_faults.py.

A network computes with parts of its weights; collectives are hooks before and after its layers, as
torch.distributed.tensor.parallel has them. Each collective has a gradient, which is another collective.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import distributed, nn
from torch.distributed import ProcessGroup, ReduceOp
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module

from zoo_golden.language import Decoder, LlamaAttention, attend
from zoo_golden.qwen3 import Experts, Mixture

TOKENS = 1
"""The axis of the tokens of a sample, which sequence parallel ranks share."""

Change = Callable[[torch.Tensor], torch.Tensor]


class Collective(torch.autograd.Function):
    """A change of a tensor, and what it does to gradients."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, change: Change, back: Change) -> torch.Tensor:
        ctx.back = back
        return change(x)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor):
        return ctx.back(gradient), None, None


class Among:
    """The ranks of one axis, and what they do together."""

    def __init__(self, group: ProcessGroup | None = None):
        """`group`: None for a rank alone."""
        self.group = group
        self.ranks, self.place = (1, 0) if group is None else (group.size(), group.rank())

    def sum(self, x: torch.Tensor, operation: ReduceOp.RedOpType = ReduceOp.SUM) -> torch.Tensor:
        x = x.clone()
        if self.group is not None:
            distributed.all_reduce(x, operation, group=self.group)
        return x

    def part(self, x: torch.Tensor, dim: int) -> torch.Tensor:
        return x.chunk(self.ranks, dim)[self.place].contiguous()

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        """All tokens."""
        parts = [torch.empty_like(x) for _ in range(self.ranks)]
        distributed.all_gather(parts, x.contiguous(), group=self.group)
        return torch.cat(parts, TOKENS)

    def scatter(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of own tokens."""
        return self.part(self.sum(x), TOKENS)

    def exchange(self, x: torch.Tensor, give: list[int], take: list[int]) -> torch.Tensor:
        """Rows for others, `give[r]` of which go to rank `r`, and what they have for this one."""
        taken = x.new_empty(sum(take), *x.shape[1:])
        distributed.all_to_all_single(taken, x.contiguous(), take, give, group=self.group)
        return taken


class Table(nn.Module):
    """An embedding of which each rank has some rows."""

    def __init__(self, weight: nn.Parameter, ranks: Among):
        super().__init__()
        self.weight, self.ranks = weight, ranks

    def forward(self, tokens):
        row = tokens - self.ranks.place * len(self.weight)
        mine = (row >= 0) & (row < len(self.weight))
        return F.embedding(row.where(mine, 0), self.weight) * mine[..., None]


def divide(module: nn.Module, ranks: Among, dim: int, name: str = "weight") -> None:
    """Leaves the module the own part of a parameter."""
    setattr(module, name, nn.Parameter(ranks.part(getattr(module, name).detach(), dim).clone()))


def tensor_parallel(network: Decoder, ranks: Among, sequence: bool, *, halves: bool = False) -> None:
    """Ranks share heads, hidden units and rows of the vocabulary; with `sequence` also the tokens between these layers.

    halves: the fault of a table [gate; up] that is divided as one, so that the first rank has the gate and the last has the rest.
    """

    def same(x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    enter, leave = (ranks.gather, ranks.scatter) if sequence else (same, ranks.sum)
    back = ranks.scatter if sequence else ranks.sum, ranks.gather if sequence else same

    def between(first: nn.Module, last: nn.Module | None = None) -> None:
        first.register_forward_pre_hook(lambda _, given: Collective.apply(given[0], enter, back[0]))
        if last is not None:
            last.register_forward_hook(lambda _, __, result: Collective.apply(result, leave, back[1]))

    for block in network.model["layers"]:
        attention, mlp = block.self_attn, block.mlp
        if halves:
            parts = ranks.part(torch.cat((mlp.gate_proj.weight, mlp.up_proj.weight)).detach(), 0).chunk(2)
            mlp.gate_proj.weight, mlp.up_proj.weight = (nn.Parameter(part.clone()) for part in parts)
        else:
            divide(mlp.gate_proj, ranks, 0)
            divide(mlp.up_proj, ranks, 0)
        for column in (attention.q_proj, attention.k_proj, attention.v_proj):
            divide(column, ranks, 0)
        for row in (attention.o_proj, mlp.down_proj):
            divide(row, ranks, 1)
        between(attention, attention.o_proj)
        between(mlp, mlp.down_proj)
    divide(network.lm_head, ranks, 0)
    table = Table(network.lm_head.weight, ranks)
    table.register_forward_hook(lambda _, __, result: Collective.apply(result, leave, back[1]))
    network.model["embed_tokens"] = table
    between(network.lm_head)


def tensor_parallel_of_torch(network: Decoder, mesh: DeviceMesh) -> None:
    """The same with `sequence` by the styles of torch, whose parameters are DTensors; the logits are whole."""
    tokens = Shard(TOKENS)
    whole = PrepareModuleInput(input_layouts=tokens, desired_input_layouts=Replicate())
    layer = {"input_layernorm": SequenceParallel(), "self_attn": whole, "post_attention_layernorm": SequenceParallel(), "mlp": whole}
    layer |= {f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"}
    layer |= {f"mlp.{name}_proj": ColwiseParallel() for name in ("gate", "up")}
    layer |= {name: RowwiseParallel(output_layouts=tokens) for name in ("self_attn.o_proj", "mlp.down_proj")}
    for block in network.model["layers"]:
        parallelize_module(block, mesh, layer)
    rows = RowwiseParallel(input_layouts=Replicate(), output_layouts=tokens)
    columns = ColwiseParallel(input_layouts=tokens, output_layouts=Replicate())
    parallelize_module(network, mesh, {"model.embed_tokens": rows, "model.norm": SequenceParallel(), "lm_head": columns})
    network.lm_head.weight = network.model["embed_tokens"].weight


class ContextAttention(LlamaAttention):
    """Attention of own tokens to those of all ranks, which have parts of each sample."""

    def __init__(self, whole: LlamaAttention, ranks: Among, *, from_zero: bool):
        nn.Module.__init__(self)
        self.ranks, self.from_zero, self.size, self.turn = ranks, from_zero, whole.size, whole.turn
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = whole.q_proj, whole.k_proj, whole.v_proj, whole.o_proj

    def forward(self, x):
        turn, first = self.turn[0], self.ranks.place * x.shape[TOKENS]

        def of_all(heads: torch.Tensor) -> torch.Tensor:
            return Collective.apply(heads.transpose(1, 2), self.ranks.gather, self.ranks.scatter).transpose(1, 2)

        query, key, value = (layer(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for layer in (self.q_proj, self.k_proj, self.v_proj))
        if self.from_zero:
            query, key = F.pad(turn(query), (0, 0, first, 0)), of_all(turn(key))
        else:
            query, key = turn(F.pad(query, (0, 0, first, 0))), turn(of_all(key))
        return self.o_proj(attend(query, key, of_all(value))[:, first:])


def context_parallel(network: Decoder, ranks: Among, *, from_zero: bool = False) -> None:
    """Ranks share the tokens of each sample. from_zero: the fault of rotary positions that start at 0 on each rank."""
    for block in network.model["layers"]:
        block.self_attn = ContextAttention(block.self_attn, ranks, from_zero=from_zero)


def token_losses(logits: torch.Tensor, labels: torch.Tensor, ranks: Among) -> torch.Tensor:
    """Cross entropy of each token, from own columns of the logits `[n, T, vocabulary / ranks]`."""
    largest = ranks.sum(logits.detach().amax(-1), ReduceOp.MAX)
    total = Collective.apply((logits - largest[..., None]).exp().sum(-1), ranks.sum, lambda gradient: gradient)
    column = labels - ranks.place * logits.shape[-1]
    mine = (column >= 0) & (column < logits.shape[-1])
    own = logits.gather(-1, column.where(mine, 0)[..., None])[..., 0] * mine
    return total.log() + largest - Collective.apply(own, ranks.sum, lambda gradient: gradient)


class SharedExperts(Experts):
    """Experts of which each rank has some: rows go to the rank of their expert, and come back."""

    def __init__(self, whole: Experts, ranks: Among, *, swapped: bool = False):
        nn.Module.__init__(self)
        self.ranks, self.swapped = ranks, swapped
        self.gate_up_proj, self.down_proj = whole.gate_up_proj, whole.down_proj
        divide(self, ranks, 0, "gate_up_proj")
        divide(self, ranks, 0, "down_proj")

    def forward(self, x, weights):
        rows = x.flatten(0, -2)
        expert, token = weights.T.nonzero(as_tuple=True)  # in the order of experts
        counts = torch.bincount(expert, minlength=weights.shape[-1]).view(self.ranks.ranks, -1)
        theirs = self.ranks.exchange(counts, [1] * self.ranks.ranks, [1] * self.ranks.ranks)
        give, take = counts.sum(-1).tolist(), theirs.sum(-1).tolist()
        taken = Collective.apply(rows[token], lambda x: self.ranks.exchange(x, give, take), lambda gradient: self.ranks.exchange(gradient, take, give))
        own = torch.arange(theirs.shape[1]).repeat(self.ranks.ranks).repeat_interleave(theirs.flatten())
        y = torch.zeros_like(taken)
        for number, (gate_up, down) in enumerate(zip(self.gate_up_proj, self.down_proj, strict=True)):
            (mine,) = (own == number).nonzero(as_tuple=True)
            gate, up = F.linear(taken[mine], gate_up).chunk(2, -1)[:: -1 if self.swapped else 1]
            y = y.index_add(0, mine, F.linear(F.silu(gate) * up, down))
        given = Collective.apply(y, lambda x: self.ranks.exchange(x, take, give), lambda gradient: self.ranks.exchange(gradient, give, take))
        return torch.zeros_like(rows).index_add(0, token, given * weights[token, expert, None]).view_as(x)


def expert_parallel(network: Decoder, ranks: Among, *, swapped: bool = False) -> None:
    """Ranks share experts. swapped: the last rank has gate and up of its experts in the other order."""
    for module in network.modules():
        if isinstance(module, Mixture):
            module.experts = SharedExperts(module.experts, ranks, swapped=swapped and ranks.place == ranks.ranks - 1)


def balance(network: nn.Module, samples: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """The part of these tokens of zoo_golden.qwen3.balance over the tokens of all ranks; `samples` sums over them."""
    mixtures = [module.balance for module in network.modules() if isinstance(module, Mixture)]
    scores, chosen = (torch.cat(parts) for parts in zip(*mixtures, strict=True))
    tokens = samples(torch.tensor(float(len(scores))))
    return scores.shape[-1] * (samples(chosen.sum(0)) / tokens * scores.softmax(-1).sum(0) / tokens).sum()


class Stage(nn.Module):
    """Some of a decoder's layers, with their names in the whole; the last of several has the table of the embedding, too."""

    def __init__(self, whole: Decoder, place: int, stages: int):
        super().__init__()
        self.first, self.last = place == 0, place == stages - 1
        layers = list(whole.model["layers"].named_children())
        own = layers[place * len(layers) // stages : (place + 1) * len(layers) // stages]
        self.model = nn.ModuleDict({"embed_tokens": whole.model["embed_tokens"]} if self.first or self.last else {})
        self.model["layers"] = nn.ModuleDict(dict(own))
        if self.last:
            self.model["norm"], self.lm_head = whole.model["norm"], whole.lm_head

    def forward(self, x):
        if self.first:
            x = self.model["embed_tokens"](x)
        for layer in self.model["layers"].values():
            x = layer(x)
        return self.lm_head(self.model["norm"](x)) if self.last else x
