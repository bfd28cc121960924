"""BERT for pretraining from transformers (arXiv 1810.04805): masked words and next sentences, and its goldens.

The table of the embedding is also the weight of the last layer, whose bias has a second name: a golden has the first name of each.
"""

from pathlib import Path

import torch
from timm.optim import Lamb
from torch import nn
from torch.nn import functional as F
from transformers import BertConfig, BertForPreTraining

from .conditions import Input, gain_rules, labels
from .exporter import export
from .hashes import hashes
from .language import decayed

IGNORED = 65535
"""The label of words that are not hidden."""


def bert(width: int = 768, layers: int = 12, heads: int = 12, vocabulary: int = 30522, dropout: float = 0.0) -> nn.Module:
    """BERT of 110 million parameters."""
    return BertForPreTraining(
        BertConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=4 * width,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
        )
    )


def bert_large() -> nn.Module:
    """BERT of 340 million parameters, without dropout."""
    return bert(width=1024, layers=24, heads=16)


def forward(network, inputs):
    return network(inputs["input_ids"], inputs["attention_mask"].long(), inputs["token_type_ids"])


def loss(outputs, inputs, network):
    """Cross entropy of the hidden words, mean over them, and that of whether the second sentence follows the first."""
    words = F.cross_entropy(outputs.prediction_logits.flatten(0, 1), inputs["label"].flatten(), ignore_index=IGNORED)
    following = F.cross_entropy(outputs.seq_relationship_logits, inputs["next_sentence_label"])
    return {"loss": words + following, "cross_entropy": words, "next_sentence": following}


def conditions(batch: int, length: int, vocabulary: int) -> dict[str, Input]:
    """Sample n of N has n/4N fewer tokens than there is room for, in two sentences of equal length; one word in seven is hidden."""
    place = torch.arange(length).expand(batch, length)
    tokens = length - torch.arange(batch)[:, None] * length // (4 * batch)
    hidden = torch.from_numpy((hashes("hidden.label", batch * length) % 7 == 0).reshape(batch, length)) & (place < tokens)
    label = labels((batch, length), vocabulary)
    return {
        "input_ids": labels((batch, length), vocabulary, name="input_ids"),
        "token_type_ids": Input((2 * place >= tokens).long(), "1 in the second half of the tokens"),
        "attention_mask": Input((place < tokens).float(), f"1 for {tokens.flatten().tolist()} tokens"),
        "label": Input(label.values.masked_fill(~hidden, IGNORED), f"{label.rule} where h % 7 of 'hidden.label' is 0 in a token, else {IGNORED}"),
        "next_sentence_label": labels(batch, 2, name="next_sentence_label"),
    }


def step(path: Path, *, batch: int, length: int, lr: float, weight_decay: float, clip: float, gains: list) -> None:
    """A golden of the network under these conditions."""
    network = bert()
    export(
        path,
        network,
        loss,
        lambda network: Lamb(decayed(network, weight_decay), lr=lr, max_grad_norm=None),
        conditions(batch, length, network.config.vocab_size),
        forward=forward,
        name="bert_base",
        gain=gain_rules(gains),
        clip_grad_norm=clip,
        hyper={"label_smoothing": 0.0, "dropout": 0.0, "weight_decay": weight_decay},
        lifted_variant=False,
    )
