"""Losses of the classification goldens. A loss maps (outputs, inputs, network) to named scalars; `loss` is differentiated."""

import torch
import torch.nn.functional as F
from torch import nn

from .batch import scores


def cross_entropy(label_smoothing: float = 0.0, l2: float = 0.0):
    """Softmax cross entropy, mean over the batch and its tokens, smoothing s spread over all K classes: target 1-s+s/K, off-target s/K.

    `l2` adds l2 * sum over all parameters of |p|^2 / 2 to the loss itself (TensorFlow's tf.nn.l2_loss).
    Smoothing brings along what the other definition (target 1-s, off-target s/(K-1)) and no smoothing would give.
    """

    def loss(outputs: object, inputs: dict[str, torch.Tensor], network: nn.Module) -> dict[str, torch.Tensor]:
        logits, label = scores(outputs), inputs["label"].flatten()
        entropy = F.cross_entropy(logits, label, label_smoothing=label_smoothing)
        if l2:
            penalty = l2 * sum(p.square().sum() / 2 for p in network.parameters())
            return {"loss": entropy + penalty, "cross_entropy": entropy, "l2": penalty}
        if not label_smoothing:
            return {"loss": entropy}
        return {
            "loss": entropy,
            "loss_smoothing_off_target_s_over_K_minus_1": _smoothed_over_others(logits, label, label_smoothing),
            "loss_no_smoothing": F.cross_entropy(logits, label),
        }

    return loss


def _smoothed_over_others(logits: torch.Tensor, label: torch.Tensor, smoothing: float) -> torch.Tensor:
    negative = -logits.log_softmax(1)
    target = negative.gather(1, label[:, None]).squeeze(1)
    others = negative.sum(1) - target
    return ((1 - smoothing) * target + smoothing / (logits.shape[1] - 1) * others).mean()
