"""Qwen3 and its mixture of experts (arXiv 2505.09388), with the names of transformers."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from .language import Decoder, DecoderBlock, LlamaMlp, Rotary, attend


class Attention(nn.Module):
    """Causal self-attention with shared keys and values, whose queries and keys are normalised head by head."""

    def __init__(self, width: int, heads: int, kv_heads: int, head: int, base: float, eps: float):
        super().__init__()
        self.head = head
        self.q_proj = nn.Linear(width, heads * head, bias=False)
        self.k_proj = nn.Linear(width, kv_heads * head, bias=False)
        self.v_proj = nn.Linear(width, kv_heads * head, bias=False)
        self.o_proj = nn.Linear(heads * head, width, bias=False)
        self.q_norm = nn.RMSNorm(head, eps)
        self.k_norm = nn.RMSNorm(head, eps)
        self.turn = [Rotary(head, base)]  # not a module of its own

    def forward(self, x):
        heads = [layer(x).unflatten(-1, (-1, self.head)) for layer in (self.q_proj, self.k_proj, self.v_proj)]
        heads[:2] = self.q_norm(heads[0]), self.k_norm(heads[1])
        query, key, value = (part.transpose(1, 2) for part in heads)
        return self.o_proj(attend(self.turn[0](query), self.turn[0](key), value))


class Experts(nn.Module):
    """Gated layers, of which each token uses those with a weight `[tokens, experts]`."""

    def __init__(self, experts: int, width: int, hidden: int):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(experts, 2 * hidden, width))
        self.down_proj = nn.Parameter(torch.empty(experts, width, hidden))

    def forward(self, x, weights):
        rows = x.flatten(0, -2)
        y = torch.zeros_like(rows)
        for weight, gate_up, down in zip(weights.unbind(-1), self.gate_up_proj, self.down_proj, strict=True):
            (tokens,) = weight.nonzero(as_tuple=True)
            gate, up = F.linear(rows[tokens], gate_up).chunk(2, -1)
            y = y.index_add(0, tokens, F.linear(F.silu(gate) * up, down) * weight[tokens, None])
        return y.view_as(x)


class Mixture(nn.Module):
    """The `top` experts of each token with the largest scores, weighted by the softmax over them."""

    def __init__(self, width: int, hidden: int, experts: int, top: int):
        super().__init__()
        self.top = top
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = Experts(experts, width, hidden)
        self.balance = []  # scores and choices of the last call

    def forward(self, x):
        scores = self.gate(x).flatten(0, 1)
        chosen = torch.zeros_like(scores).scatter(-1, scores.detach().topk(self.top).indices, 1.0)
        shares = scores.softmax(-1) * chosen
        self.balance[:] = scores, chosen
        return self.experts(x, shares / shares.sum(-1, keepdim=True))


class Qwen3(Decoder):
    """Logits `[n, T, vocabulary]` of indices `[n, T]`."""

    def __init__(
        self,
        vocabulary: int = 512,
        layers: int = 4,
        heads: int = 4,
        kv_heads: int = 2,
        head: int = 32,
        width: int = 64,
        mlp=lambda width: LlamaMlp(width, 192),
        base: float = 1e6,
        eps: float = 1e-6,
    ):
        parts = ((Attention(width, heads, kv_heads, head, base, eps), mlp(width)) for _ in range(layers))
        super().__init__(vocabulary, width, (DecoderBlock(width, *part, eps) for part in parts), eps)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)


def qwen3_moe() -> Qwen3:
    """Eight experts in each layer, of which a token uses two."""
    return Qwen3(mlp=partial(Mixture, hidden=48, experts=8, top=2))


def qwen3_moe_of_transformers() -> nn.Module:
    """`qwen3_moe` as transformers has it, with `aux_loss` beside the logits."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        vocab_size=512,
        hidden_size=64,
        moe_intermediate_size=48,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_experts=8,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        tie_word_embeddings=True,
        use_cache=False,
        output_router_logits=True,
    )
    return Qwen3MoeForCausalLM(config)


def balance(network: nn.Module) -> torch.Tensor:
    """Number of experts times the sum over them of (share of tokens that use it) * (mean of its softmax), over the tokens of
    all layers: `load_balancing_loss_func` of transformers."""
    mixtures = [module.balance for module in network.modules() if isinstance(module, Mixture)]
    scores, chosen = (torch.cat(parts) for parts in zip(*mixtures, strict=True))
    return scores.shape[-1] * (chosen.mean(0) * scores.softmax(-1).mean(0)).sum()


def balanced_loss(outputs, inputs, network):
    """Cross entropy, mean over all tokens, and 0.001 times the balance of the experts."""
    cross_entropy = F.cross_entropy(outputs.flatten(0, 1), inputs["label"].flatten())
    even = balance(network)
    return {"loss": cross_entropy + 0.001 * even, "cross_entropy": cross_entropy, "expert_balance": even}
