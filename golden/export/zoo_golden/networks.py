"""Networks by name: from torchvision, timm, transformers, any importable factory, and AlexNet of the Ascend zoo."""

from collections import OrderedDict
from collections.abc import Callable
from importlib import import_module

import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


def load(name: str, classes: int) -> nn.Module:
    """As `build`, and nothing is left to chance."""
    return still(build(name, classes))


def build(name: str, classes: int, **arguments) -> nn.Module:
    """`torchvision:<model>`, `timm:<model>`, `transformers:<class>` or `<module>:<factory>`, called with num_classes and further
    arguments; in transformers those of the configuration, whose vocabulary has as many words as there are classes."""
    package, _, factory = name.partition(":")
    if package == "torchvision":
        network = torchvision.models.get_model(factory, **{"weights": None, "num_classes": classes} | arguments)
    elif package == "timm":
        network = import_module("timm").create_model(factory, num_classes=classes, **arguments)
    elif package == "transformers":
        kind = getattr(import_module("transformers"), factory)
        network = kind(kind.config_class(vocab_size=classes, **arguments))
        for module in network.modules():
            if hasattr(module, "warn_if_padding_and_no_attention_mask"):
                module.warn_if_padding_and_no_attention_mask = _without_warning
    elif factory:
        network = getattr(import_module(package), factory)(num_classes=classes, **arguments)
    else:
        raise ValueError(f"{name!r}: use torchvision:<model>, timm:<model>, transformers:<class> or <module>:<factory>")
    return settled(network)


def settled(network: nn.Module) -> nn.Module:
    """Lets a network be copied, whose hooks compute weights at each call (the older weight norm)."""
    for module in network.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and not value.is_leaf:
                setattr(module, name, value.detach())
    return network


def _without_warning(*_: object) -> None:
    """In place of a warning of transformers about padding, which reads the tokens and changes nothing."""


def still(network: nn.Module) -> nn.Module:
    """Sets every rate of dropout to 0, in place."""
    for module in network.modules():
        if isinstance(module, (nn.modules.dropout._DropoutNd, torchvision.ops.StochasticDepth)):
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
        elif drops_samples(module):
            module.drop_prob = 0.0
    return network


def drops_samples(module: nn.Module) -> bool:
    """Whether a module drops whole samples at the rate `drop_prob` and scales the others, as DropPath of timm and transformers: told by what
    it makes of ones."""
    rate = getattr(module, "drop_prob", False)
    if rate is False or any(True for _ in module.children()) or any(True for _ in module.parameters()):
        return False
    # Nothing of this is the network's own: no mode and no hook sees it.
    with torch._C.DisableTorchFunction(), torch.no_grad():
        mode, state = module.training, torch.get_rng_state()
        try:
            module.drop_prob, samples = 0.5, torch.ones(64, 3, 2, 2, device="cpu")
            dropped, kept = module.train().forward(samples), module.eval().forward(samples)
            first = dropped[:, :1, :1, :1]
            is_whole = bool((dropped == first).all()) and {0.0, 2.0} == set(first.flatten().tolist())
            return is_whole and bool((kept == samples).all())
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
            return False
        finally:
            module.drop_prob = rate
            module.train(mode)
            torch.set_rng_state(state)


DROPOUT = (
    F.dropout,
    F.dropout1d,
    F.dropout2d,
    F.dropout3d,
    F.alpha_dropout,
    F.feature_alpha_dropout,
)


class StillFunctions(TorchFunctionMode):
    """Sets the rate of every call of a dropout function to 0, for networks that call them without a module."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in DROPOUT:
            names = ("input", "p", "training", "inplace")
            return function(**{**dict(zip(names, args)), **kwargs, "p": 0.0})
        if function is F.scaled_dot_product_attention:
            names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
            return function(**{**dict(zip(names, args)), **kwargs, "dropout_p": 0.0})
        return function(*args, **kwargs)


class OneType(TorchFunctionMode):
    """Lets a network whose numbers are of this type make none of f32, which the network takes for the type of its numbers: `.float()`,
    `.to(torch.float32)`, `softmax(..., dtype=torch.float32)`, `torch.arange(8.0)` round nothing, as in a network of f32 throughout."""

    def __init__(self, dtype: torch.dtype):
        super().__init__()
        self.dtype = dtype

    def __enter__(self):
        self.usual = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)
        return super().__enter__()

    def __exit__(self, *error):
        torch.set_default_dtype(self.usual)
        return super().__exit__(*error)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if getattr(function, "__name__", "") in ("grouped_mm", "_grouped_mm"):
            return products_of_groups(*args, **kwargs)
        if self.dtype is torch.float32:
            return function(*args, **kwargs)
        first = args[0] if args else kwargs.get("input")
        name = getattr(function, "__name__", "")
        if isinstance(first, torch.Tensor):
            if first.is_floating_point() and first.dtype is not self.dtype:
                return function(*args, **kwargs)
            if name == "float":
                return first.to(self.dtype)

        def kept(value):
            if isinstance(value, torch.Tensor):
                return value.to(self.dtype) if name in ("to", "type_as") and value is not first and value.dtype is torch.float32 else value
            if value is torch.float32:
                return self.dtype
            return torch.DoubleTensor if name == "type" and value in ("torch.FloatTensor", torch.FloatTensor) else value

        return function(*map(kept, args), **{key: kept(value) for key, value in kwargs.items()})


def products_of_groups(x: torch.Tensor, matrices: torch.Tensor, offs: torch.Tensor, **_: None) -> torch.Tensor:
    """torch's grouped_mm for numbers of any type and rows of any length, which it does not take on a CPU."""
    groups = x.tensor_split(offs[:-1].tolist())
    return torch.cat([rows @ matrix for rows, matrix in zip(groups, matrices, strict=True)])


def exact_buffers(network: nn.Module, make: Callable[[], nn.Module]) -> dict[str, torch.Tensor]:
    """Constant buffers in f64, as tables of angles, where the network computes them from its settings: not rounded to f32 on the way.

    Those of the state_dict are as they are stored, in f32. make: makes the network again.
    """
    stored = network.state_dict()
    tables = {key: buffer for key, buffer in network.named_buffers() if buffer.dtype is torch.float32 and key not in stored}
    if not tables:
        return {}
    with OneType(torch.float64):
        again = dict(make().named_buffers())
    return {
        key: again[key]
        for key, table in tables.items()
        if key in again
        and again[key].dtype is torch.float64
        and again[key].shape == table.shape
        and torch.allclose(again[key].float(), table, rtol=1e-5, atol=1e-6, equal_nan=True)
    }


class NpuAlexNet(nn.Sequential):
    """AlexNet of the NPU zoo: 96 filters first, padding as nodes of their own, ReLU on the logits too; 3x224x224 only."""

    def __init__(self, num_classes: int = 1000):
        layers = OrderedDict()
        channels = 3
        # index, filters, kernel, stride, padding, pooled
        for index, filters, kernel, stride, padding, pooled in (
            (1, 96, 11, 4, 2, True),
            (2, 192, 5, 1, 2, True),
            (3, 384, 3, 1, 1, False),
            (4, 256, 3, 1, 1, False),
            (5, 256, 3, 1, 1, True),
        ):
            layers[f"pad{index}"] = nn.ZeroPad2d(padding)
            layers[f"conv{index}"] = nn.Conv2d(channels, filters, kernel, stride)
            layers[f"relu{index}"] = nn.ReLU()
            if pooled:
                layers[f"pool{index}"] = nn.MaxPool2d(3, 2)
            channels = filters
        features = channels * 6 * 6
        for index, width in ((1, 4096), (2, 4096), (3, num_classes)):
            layers[f"fc{index}"] = nn.Linear(features, width)
            layers[f"fc_relu{index}"] = nn.ReLU()
            features = width
        super().__init__(layers)

    def forward(self, x):
        for name, layer in self.named_children():
            x = layer(x.flatten(1) if name == "fc1" else x)
        return x


def googlenet(num_classes: int = 1000) -> nn.Module:
    """torchvision's, without the two auxiliary classifiers."""
    return torchvision.models.googlenet(num_classes=num_classes, aux_logits=False, init_weights=False)


def inception_v3(num_classes: int = 1000) -> nn.Module:
    """torchvision's, without the auxiliary classifier."""
    return torchvision.models.inception_v3(num_classes=num_classes, aux_logits=False, init_weights=False)


def vit_b_16(num_classes: int = 1000) -> nn.Module:
    """torchvision's, for images of 96 pixels: 36 patches."""
    return torchvision.models.vit_b_16(num_classes=num_classes, image_size=96)
