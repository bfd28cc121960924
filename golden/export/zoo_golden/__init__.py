"""Makes golden data for `zoo check` from any PyTorch network. See golden/README.md for the format."""

from importlib import import_module

_MODULES = {
    "Input": "conditions", "gain_rules": "conditions", "image": "conditions", "labels": "conditions",
    "cross_entropy": "losses", "export": "exporter", "grouped": "optimizers",
}  # fmt: skip

__all__ = ["Input", "cross_entropy", "export", "gain_rules", "grouped", "image", "labels"]


def __getattr__(name: str):
    """Imports PyTorch where it is needed: zoo_golden.capture_mindspore is for machines without it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
