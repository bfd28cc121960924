"""A decoder-only transformer (GPT-2, Radford et al. 2019; pre-normalisation as in its section 2.3) with the module names of
nanoGPT's state_dict, its loss, and its goldens.

The table of the embedding is also the weight of the last layer (arXiv 1608.05859): one parameter with two names, of which a golden
has the first.
"""

import math
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from .conditions import gain_rules, labels
from .exporter import export


class Attention(nn.Module):
    """Causal self-attention of several heads, equation 1 of arXiv 1706.03762."""

    def __init__(self, width: int, heads: int, dropout: float, bias: bool):
        super().__init__()
        self.heads, self.rate = heads, dropout
        self.c_attn = nn.Linear(width, 3 * width, bias=bias)
        self.c_proj = nn.Linear(width, width, bias=bias)
        self.resid_dropout = nn.Dropout(dropout)

    def forward(self, x):
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, -1))
        scores = query @ key.transpose(-2, -1) / math.sqrt(key.shape[-1])
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        shares = F.dropout(scores.masked_fill(later, -math.inf).softmax(-1), self.rate, self.training)
        return self.resid_dropout(self.c_proj((shares @ value).transpose(1, 2).flatten(-2)))


class Mlp(nn.Module):
    def __init__(self, width: int, dropout: float, bias: bool, approximate: str):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width, bias=bias)
        self.gelu = nn.GELU(approximate)
        self.c_proj = nn.Linear(4 * width, width, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.dropout(self.c_proj(self.gelu(self.c_fc(x))))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float, bias: bool, approximate: str):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, bias=bias)
        self.attn = Attention(width, heads, dropout, bias)
        self.ln_2 = nn.LayerNorm(width, bias=bias)
        self.mlp = Mlp(width, dropout, bias, approximate)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """Logits `[n, T, vocabulary]` of indices `[n, T]`; drawn as GPT-2 is, whose projections into the residual stream start
    smaller by the root of their number."""

    def __init__(
        self,
        vocabulary: int = 65,
        length: int = 64,
        layers: int = 4,
        heads: int = 4,
        width: int = 128,
        dropout: float = 0.0,
        bias: bool = False,
        approximate: str = "none",
    ):
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocabulary, width),
                "wpe": nn.Embedding(length, width),
                "drop": nn.Dropout(dropout),
                "h": nn.ModuleList(Block(width, heads, dropout, bias, approximate) for _ in range(layers)),
                "ln_f": nn.LayerNorm(width, bias=bias),
            }
        )
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if name.endswith("c_proj.weight") else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens):
        parts = self.transformer
        x = parts["drop"](parts["wte"](tokens) + parts["wpe"](torch.arange(tokens.shape[1])))
        for block in parts["h"]:
            x = block(x)
        return self.lm_head(parts["ln_f"](x))


def gpt2() -> Gpt:
    """GPT-2 of 124 million parameters, as transformers' GPT2LMHeadModel computes it; that one has the matrices of linear layers
    transposed, and calls the activation `act`."""
    return Gpt(vocabulary=50257, length=1024, layers=12, heads=12, width=768, bias=True, approximate="tanh")


class Rotary(nn.Module):
    """The angle of every place and channel, and what it makes of queries or keys `[n, heads, T, d]` (arXiv 2104.09864): the
    `i`-th channel and the one `d/2` after it are a pair. In the numbers of the queries, where transformers has float32."""

    def __init__(self, size: int, base: float):
        super().__init__()
        self.size, self.base = size, base

    def forward(self, x):
        pair = torch.arange(0, self.size, 2, dtype=x.dtype) / self.size
        angle = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] / self.base**pair
        angle = torch.cat((angle, angle), -1)
        first, second = x.chunk(2, -1)
        return x * angle.cos() + torch.cat((-second, first), -1) * angle.sin()


def attend(query, key, value):
    """Causal attention of heads `[n, heads, T, d]`, several of which share keys and values, as tokens `[n, T, heads * d]`."""
    key, value = (part.repeat_interleave(query.shape[1] // part.shape[1], 1) for part in (key, value))
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    shares = scores.masked_fill(later, -math.inf).softmax(-1)
    return (shares @ value).transpose(1, 2).flatten(-2)


class LlamaAttention(nn.Module):
    """Causal self-attention whose heads share keys and values (arXiv 2305.13245)."""

    def __init__(self, width: int, heads: int, kv_heads: int, base: float):
        super().__init__()
        self.size = width // heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, kv_heads * self.size, bias=False)
        self.v_proj = nn.Linear(width, kv_heads * self.size, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)
        self.turn = [Rotary(self.size, base)]  # not a module of its own

    def forward(self, x):
        parts = (layer(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for layer in (self.q_proj, self.k_proj, self.v_proj))
        query, key, value = parts
        return self.o_proj(attend(self.turn[0](query), self.turn[0](key), value))


class LlamaMlp(nn.Module):
    """A gated layer (SwiGLU, arXiv 2002.05202)."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class DecoderBlock(nn.Module):
    """Attention and what follows it, each on normalised tokens and added to them."""

    def __init__(self, width: int, attention: nn.Module, mlp: nn.Module, eps: float):
        super().__init__()
        self.self_attn = attention
        self.mlp = mlp
        self.input_layernorm = nn.RMSNorm(width, eps)
        self.post_attention_layernorm = nn.RMSNorm(width, eps)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Logits `[n, T, vocabulary]` of indices `[n, T]`; the table of the vocabulary gives them too."""

    def __init__(self, vocabulary: int, width: int, blocks: Iterable[nn.Module], eps: float):
        super().__init__()
        self.model = nn.ModuleDict(
            {
                "embed_tokens": nn.Embedding(vocabulary, width),
                "layers": nn.ModuleList(blocks),
                "norm": nn.RMSNorm(width, eps),
            }
        )
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.model["embed_tokens"].weight

    def forward(self, tokens):
        parts = self.model
        x = parts["embed_tokens"](tokens)
        for block in parts["layers"]:
            x = block(x)
        return self.lm_head(parts["norm"](x))


class Llama(Decoder):
    """Logits `[n, T, vocabulary]` of indices `[n, T]`, in the size of llama2.c's stories260K (doc/stories260K.md; `hidden` is
    two thirds of four times the width, up to a multiple of 4) with the names of transformers' LlamaForCausalLM; drawn as
    llama2.c does."""

    def __init__(
        self,
        vocabulary: int = 512,
        layers: int = 5,
        heads: int = 8,
        kv_heads: int = 4,
        width: int = 64,
        hidden: int = 172,
        base: float = 10000.0,
        eps: float = 1e-5,
    ):
        parts = ((LlamaAttention(width, heads, kv_heads, base), LlamaMlp(width, hidden)) for _ in range(layers))
        super().__init__(vocabulary, width, (DecoderBlock(width, *part, eps) for part in parts), eps)
        for block in self.model["layers"]:
            block.self_attn.o_proj.narrow = block.mlp.up_proj.narrow = True  # wo and w3 of llama2.c
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02 / math.sqrt(2 * layers) if hasattr(module, "narrow") else 0.02)


def llama_of_transformers(vocabulary: int = 512, layers: int = 5, heads: int = 8, kv_heads: int = 4, width: int = 64, hidden: int = 172) -> nn.Module:
    """`Llama` as transformers has it."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        tie_word_embeddings=True,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


def loss(outputs, inputs, network):
    """Cross entropy, mean over all tokens."""
    return {"loss": F.cross_entropy(outputs.flatten(0, 1), inputs["label"].flatten())}


def decayed(network: nn.Module, weight_decay: float) -> list[dict]:
    """Decay for matrices, none for vectors."""
    parameters = list(network.parameters())
    return [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]


def step(
    path: Path,
    network: Callable[[], nn.Module] = Gpt,
    *,
    batch: int,
    length: int,
    classes: int,
    lr: float,
    betas: tuple[float, float],
    weight_decay: float,
    clip: float,
    gains: list,
    name: str = "gpt",
    loss: Callable = loss,
) -> None:
    """A golden of the network under these conditions."""
    export(
        path,
        network(),
        loss,
        lambda network: torch.optim.AdamW(decayed(network, weight_decay), lr=lr, betas=betas),
        {name: labels((batch, length), classes, name=name) for name in ("tokens", "label")},
        forward=lambda network, inputs: network(inputs["tokens"]),
        name=name,
        gain=gain_rules(gains),
        clip_grad_norm=clip,
        hyper={"label_smoothing": 0.0, "dropout": 0.0, "weight_decay": weight_decay},
        lifted_variant=False,
    )
