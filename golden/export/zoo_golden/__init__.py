"""Makes golden data for `zoo check` from any PyTorch network. See golden/README.md for the format."""

from .conditions import Input, gain_rules, image, labels
from .exporter import export
from .losses import cross_entropy
from .optimizers import grouped

__all__ = ["Input", "cross_entropy", "export", "gain_rules", "grouped", "image", "labels"]
