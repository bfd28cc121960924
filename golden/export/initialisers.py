"""python initialisers.py [NAME...]: writes <recipe>/init.json, the distribution each parameter starts from.

The figures are analytic, from torchvision's (for the NPU zoo's AlexNet, he_uniform's) initialisation code, and checked here
against values drawn by that code: mean and deviation within six standard errors, bounds kept and nearly reached.
"""

import json
import math
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torchvision
from torch import nn

from zoo_golden.airbench import Airbench94
from zoo_golden.bert import bert
from zoo_golden.detection import Retinanet
from zoo_golden.language import Gpt, Llama, gpt2
from zoo_golden.networks import NpuAlexNet, load
from zoo_golden.qwen3 import Qwen3, qwen3_moe
from zoo_golden.segmentation import Unet, deeplabv3_resnet50
from zoo_golden.small import LeNet5, ResNet8, ResNet20

GOLDEN = Path(__file__).resolve().parent.parent
SEED, LIMIT = 20240229, 6.0


@dataclass(frozen=True)
class Distribution:
    """`absmax_bound` is null where values are unbounded."""

    kind: str
    mean: float
    std: float
    absmax_bound: float | None


def normal(std: float) -> Distribution:
    return Distribution("normal", 0.0, std, None)


def uniform(bound: float) -> Distribution:
    """Over [-bound, bound]."""
    return Distribution("uniform", 0.0, bound / math.sqrt(3), bound)


def truncated_normal(std: float) -> Distribution:
    """Normal of this deviation, without what lies beyond two of them; its own deviation is smaller."""
    left = math.erf(math.sqrt(2))
    return Distribution("truncated_normal", 0.0, std * math.sqrt(1 - 4 * math.exp(-2) / math.sqrt(2 * math.pi) / left), 2 * std)


def dirac(module: nn.Conv2d) -> Distribution:
    """The first filters copy a channel each; these are the mean, the deviation and the bound of the others."""
    rest = torch_default(module, "weight")
    return Distribution("dirac", rest.mean, rest.std, rest.absmax_bound)


def constant(value: float) -> Distribution:
    return Distribution("constant", value, 0.0, abs(value))


def fan_in(module: nn.Module) -> int:
    return math.prod(module.weight.shape[1:])


def fan_out(module: nn.Module) -> int:
    return module.weight.shape[0] * math.prod(module.weight.shape[2:])


def normalisation(local: str) -> Distribution:
    return constant(1.0 if local == "weight" else 0.0)


def torch_default(module: nn.Module, local: str) -> Distribution:
    """kaiming_uniform(a=sqrt(5)) is U(+-1/sqrt(fan_in)); torch's layers draw their biases from the same."""
    return uniform(1 / math.sqrt(fan_in(module)))


def resnet(module: nn.Module, local: str) -> Distribution:
    if isinstance(module, nn.Conv2d):
        return normal(math.sqrt(2 / fan_out(module)))
    if isinstance(module, nn.BatchNorm2d):
        return normalisation(local)
    return torch_default(module, local)


def se_resnet(module: nn.Module, local: str) -> Distribution:
    """timm leaves the biases of convolutions as torch draws them, and starts each block as identity."""
    if getattr(module, "last_of_block", False) and local == "weight":
        return constant(0.0)
    return torch_default(module, local) if local == "bias" and isinstance(module, nn.Conv2d) else resnet(module, local)


def drawn_se_resnet() -> nn.Module:
    network = load("timm:seresnet50", 1000)
    for name, module in network.named_modules():
        module.last_of_block = name.endswith(".bn3")
    return network


def vgg(module: nn.Module, local: str) -> Distribution:
    """Also that of mobilenetv2 and mobilenet_v3_large."""
    if isinstance(module, nn.BatchNorm2d):
        return normalisation(local)
    if local == "bias":
        return constant(0.0)
    return normal(math.sqrt(2 / fan_out(module)) if isinstance(module, nn.Conv2d) else 0.01)


def efficientnet(module: nn.Module, local: str) -> Distribution:
    if isinstance(module, nn.Linear) and local == "weight":
        return uniform(1 / math.sqrt(module.out_features))
    return vgg(module, local)


def convnext(module: nn.Module, local: str) -> Distribution:
    """Truncated at -2 and 2, which is 100 deviations."""
    if isinstance(module, nn.LayerNorm):
        return normalisation(local)
    if local == "layer_scale":
        return constant(1e-6)
    return constant(0.0) if local == "bias" else normal(0.02)


def swin(module: nn.Module, local: str) -> Distribution:
    """Truncated at -2 and 2, as convnext's."""
    if isinstance(module, nn.LayerNorm):
        return normalisation(local)
    if isinstance(module, nn.Conv2d):
        return torch_default(module, local)
    return constant(0.0) if local == "bias" else normal(0.02)


def densenet(module: nn.Module, local: str) -> Distribution:
    if isinstance(module, nn.Conv2d):
        return normal(math.sqrt(2 / fan_in(module)))
    if isinstance(module, nn.BatchNorm2d):
        return normalisation(local)
    return constant(0.0) if local == "bias" else torch_default(module, local)


def inception(std: float) -> Callable[[nn.Module, str], Distribution]:
    """Truncated at -2 and 2, not at two deviations: nothing is cut off."""

    def distribution(module: nn.Module, local: str) -> Distribution:
        if isinstance(module, nn.BatchNorm2d):
            return normalisation(local)
        return normal(std) if local == "weight" else torch_default(module, local)

    return distribution


def squeezenet(module: nn.Module, local: str) -> Distribution:
    """The last convolution, which answers for 1000 classes, starts small."""
    if local == "bias":
        return constant(0.0)
    return normal(0.01) if module.out_channels == 1000 else uniform(math.sqrt(6 / fan_in(module)))


def vision_transformer(module: nn.Module, local: str) -> Distribution:
    """The last layer answers 0 to everything; of MultiheadAttention's own layers the first is xavier_uniform, the second torch's default."""
    if local == "pos_embedding":
        return normal(0.02)
    if isinstance(module, nn.LayerNorm):
        return normalisation(local)
    if local == "in_proj_weight":
        return uniform(math.sqrt(6 / sum(module.in_proj_weight.shape)))
    attends = type(module) is nn.modules.linear.NonDynamicallyQuantizableLinear
    if local in ("class_token", "in_proj_bias") or (local == "bias" and (attends or isinstance(module, nn.Conv2d))):
        return constant(0.0)
    if attends:
        return torch_default(module, local)
    if isinstance(module, nn.Conv2d):
        return normal(math.sqrt(1 / fan_in(module)))
    if module.out_features == 1000:
        return constant(0.0)
    return normal(1e-6) if local == "bias" else uniform(math.sqrt(6 / sum(module.weight.shape)))


def gpt(module: nn.Module, local: str, width: int = 128, layers: int = 4) -> Distribution:
    """Of all layers only the projections into the residual stream give `width` numbers."""
    if isinstance(module, nn.LayerNorm):
        return normalisation(local)
    if local == "bias":
        return constant(0.0)
    projects = isinstance(module, nn.Linear) and module.out_features == width
    return normal(0.02 / math.sqrt(2 * layers) if projects else 0.02)


def llama(module: nn.Module, local: str) -> Distribution:
    if isinstance(module, nn.RMSNorm):
        return constant(1.0)
    return normal(0.02 / math.sqrt(2 * 5) if hasattr(module, "narrow") else 0.02)


def qwen(module: nn.Module, local: str) -> Distribution:
    return constant(1.0) if isinstance(module, nn.RMSNorm) else normal(0.02)


def transformers_bert(module: nn.Module, local: str) -> Distribution:
    if isinstance(module, nn.LayerNorm):
        return normalisation(local)
    return constant(0.0) if local == "bias" else normal(0.02)


def unet(module: nn.Module, local: str) -> Distribution:
    if local == "bias":
        return constant(0.0)
    return normal(0.01) if isinstance(module, nn.ConvTranspose2d) else truncated_normal(0.06)


def deeplab(module: nn.Module, local: str) -> Distribution:
    """The backbone as torchvision draws it, what follows as torch does."""
    if isinstance(module, nn.BatchNorm2d):
        return normalisation(local)
    return resnet(module, local) if getattr(module, "of_backbone", False) else torch_default(module, local)


def drawn_deeplab() -> nn.Module:
    network = deeplabv3_resnet50()
    for module in network.backbone.modules():
        module.of_backbone = True
    return network


def retinanet(module: nn.Module, local: str) -> Distribution:
    """The backbone and the heads as torchvision draws them, the pyramid by kaiming uniform with a = 1."""
    if isinstance(module, nn.BatchNorm2d):
        return normalisation(local)
    if local == "bias":
        return constant(-math.log(99) if module.part == "cls_logits" else 0.0)
    if module.part == "fpn":
        return uniform(math.sqrt(3 / fan_in(module)))
    return resnet(module, local) if module.part == "body" else normal(0.01)


def drawn_retinanet() -> nn.Module:
    network = Retinanet(91)
    for name, module in network.named_modules():
        module.part = next((part for part in ("body", "fpn", "cls_logits") if part in name.split(".")), "head")
    return network


def resnet20(module: nn.Module, local: str) -> Distribution:
    return constant(0.0) if local == "bias" else resnet(module, local)


def resnet8(module: nn.Module, local: str) -> Distribution:
    if isinstance(module, nn.BatchNorm2d):
        return normalisation(local)
    return constant(0.0) if local == "bias" else normal(math.sqrt(2 / fan_in(module)))


def airbench(module: nn.Module, local: str) -> Distribution:
    if isinstance(module, nn.BatchNorm2d):
        return normalisation(local)
    if local == "bias":
        return constant(0.0)
    return dirac(module) if isinstance(module, nn.Conv2d) and module.padding == "same" else torch_default(module, local)


def lenet(module: nn.Module, local: str) -> Distribution:
    if local == "bias":
        return constant(0.0)
    return normal(0.01 if isinstance(module, nn.Conv2d) else 0.02)


def he_uniform(module: nn.Module, local: str) -> Distribution:
    return constant(0.0) if local == "bias" else uniform(math.sqrt(6 / fan_in(module)))


def drawn_he_uniform() -> nn.Module:
    network = NpuAlexNet()
    for module in network:
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
            nn.init.zeros_(module.bias)
    return network


RESNET_RULE = "convolutions kaiming normal (fan_out), normalisations 1 and 0, linear layer and its bias U(+-1/sqrt(fan_in))"
VGG_RULE = "convolutions kaiming normal (fan_out), linear layers N(0, 0.01), normalisations 1 and 0, biases 0"
VIT_RULE = (
    "patches N(0, 1/fan_in), positions N(0, 0.02^2), class token, last layer and biases of attention 0, in_proj and hidden layers "
    "xavier_uniform, hidden biases N(0, 1e-12), out_proj U(+-1/sqrt(fan_in)), normalisations 1 and 0"
)
SQUEEZENET_RULE = "convolutions he_uniform U(+-sqrt(6/fan_in)), the last one N(0, 0.01), biases 0"
INCEPTION_RULE = "weights N(0, {}) within -2 and 2, normalisations 1 and 0, the linear layer's bias U(+-1/sqrt(fan_in))"
# rule, distribution of each parameter, a network with values drawn by the reference's own code
RECIPES: dict[str, tuple[str, Callable[[nn.Module, str], Distribution], Callable[[], nn.Module]]] = {
    "resnet50": (RESNET_RULE, resnet, torchvision.models.resnet50),
    "alexnet": ("he_uniform: U(+-sqrt(6/fan_in)), biases 0", he_uniform, drawn_he_uniform),
    "alexnet-torchvision": ("torch's default: weights and biases U(+-1/sqrt(fan_in))", torch_default, torchvision.models.alexnet),
    "resnet18": (RESNET_RULE, resnet, torchvision.models.resnet18),
    "vgg16": ("convolutions kaiming normal (fan_out), linear layers N(0, 0.01), biases 0", vgg, torchvision.models.vgg16),
    **{name: (RESNET_RULE, resnet, getattr(torchvision.models, name)) for name in ("resnet34", "resnet101", "resnet152", "resnext50_32x4d", "wide_resnet50_2")},
    "se_resnet50": (
        ("convolutions kaiming normal (fan_out), normalisations 1 and 0, the last of each block 0 and 0, linear layer and all biases U(+-1/sqrt(fan_in))"),
        se_resnet,
        drawn_se_resnet,
    ),
    "vgg11_bn": (VGG_RULE, vgg, torchvision.models.vgg11_bn),
    "vgg19": (VGG_RULE, vgg, torchvision.models.vgg19),
    "mobilenetv2": (VGG_RULE, vgg, torchvision.models.mobilenet_v2),
    "mobilenet_v3_large": (VGG_RULE, vgg, torchvision.models.mobilenet_v3_large),
    "efficientnet_b0": (
        "convolutions kaiming normal (fan_out), linear layer U(+-1/sqrt(fan_out)), normalisations 1 and 0, biases 0",
        efficientnet,
        torchvision.models.efficientnet_b0,
    ),
    "convnext_tiny": (
        "weights N(0, 0.02^2) within -2 and 2, normalisations 1 and 0, biases 0, layer scale 1e-6",
        convnext,
        torchvision.models.convnext_tiny,
    ),
    "densenet121": (
        "convolutions kaiming normal (fan_in), normalisations 1 and 0, linear layer U(+-1/sqrt(fan_in)), its bias 0",
        densenet,
        torchvision.models.densenet121,
    ),
    "googlenet": (
        INCEPTION_RULE.format(0.01),
        inception(0.01),
        lambda: torchvision.models.googlenet(aux_logits=False, init_weights=True),
    ),
    "inception_v3": (
        INCEPTION_RULE.format(0.1),
        inception(0.1),
        lambda: torchvision.models.inception_v3(aux_logits=False, init_weights=True),
    ),
    "swin_t": (
        ("linear layers and biases of positions N(0, 0.02^2) within -2 and 2, their biases 0, normalisations 1 and 0, the convolution U(+-1/sqrt(fan_in))"),
        swin,
        torchvision.models.swin_t,
    ),
    "vit_b_16": (VIT_RULE, vision_transformer, torchvision.models.vit_b_16),
    "gpt_shakespeare": ("weights N(0, 0.02^2), projections into the residual stream N(0, 0.02^2/8), normalisations 1", gpt, Gpt),
    "gpt2": (
        "weights N(0, 0.02^2), projections into the residual stream N(0, 0.02^2/24), normalisations 1 and 0, biases 0",
        partial(gpt, width=768, layers=12),
        gpt2,
    ),
    "llama": (
        "weights N(0, 0.02^2), o_proj and up_proj N(0, 0.02^2/10), normalisations 1",
        llama,
        Llama,
    ),
    "qwen3": ("weights N(0, 0.02^2), normalisations 1", qwen, Qwen3),
    "qwen3_moe": ("weights N(0, 0.02^2), normalisations 1", qwen, qwen3_moe),
    "bert_base": ("weights N(0, 0.02^2), normalisations 1 and 0, biases 0", transformers_bert, bert),
    "unet_medical": (
        "convolutions N(0, 0.06^2) within two deviations, upward ones N(0, 0.01^2), biases 0",
        unet,
        Unet,
    ),
    "deeplabv3_resnet50": (
        "convolutions of the backbone kaiming normal (fan_out), the others and their biases U(+-1/sqrt(fan_in)), normalisations 1 and 0",
        deeplab,
        drawn_deeplab,
    ),
    "retinanet_resnet50_fpn": (
        (
            "convolutions of the backbone kaiming normal (fan_out), of the pyramid kaiming uniform with a = 1, of the heads N(0, 0.01^2), "
            "biases 0 (class scores -log 99), normalisations 1 and 0"
        ),
        retinanet,
        drawn_retinanet,
    ),
    "resnet20": (
        "convolutions kaiming normal (fan_out), normalisations 1 and 0, linear layer U(+-1/sqrt(fan_in)), its bias 0",
        resnet20,
        ResNet20,
    ),
    "airbench94": (
        ("3x3 convolutions dirac, the first one U(+-1/sqrt(fan_in)) until it whitens, its bias 0, normalisations 1 and 0, linear layer U(+-1/sqrt(fan_in))"),
        airbench,
        Airbench94,
    ),
    "resnet8_tiny": (
        ("convolutions and linear layer kaiming normal (fan_in; Keras' he_normal is cut off at two deviations), normalisations 1 and 0, biases 0"),
        resnet8,
        ResNet8,
    ),
    "lenet": ("convolutions N(0, 0.01^2), linear layers N(0, 0.02^2), biases 0", lenet, LeNet5),
    "squeezenet1_0": (SQUEEZENET_RULE, squeezenet, torchvision.models.squeezenet1_0),
    "squeezenet1_1": (SQUEEZENET_RULE, squeezenet, torchvision.models.squeezenet1_1),
}


def check(name: str, values: torch.Tensor, expected: Distribution) -> None:
    """Raises ArithmeticError where drawn values contradict the analytic distribution."""
    if expected.kind == "dirac":
        channels = values.shape[1]
        copies, rest = values[:channels], values[channels:]
        if not torch.equal(copies, nn.init.dirac_(torch.empty_like(copies))):
            raise ArithmeticError(f"{name}: the first filters do not copy channels")
        return check(name, rest, replace(expected, kind="uniform")) if len(rest) else None
    values = values.detach().double().flatten()
    count, largest = values.numel(), values.abs().max().item()
    if expected.kind == "constant":
        fits = bool((values == np.float32(expected.mean)).all())
    else:
        # Standard error of a deviation: sqrt((kurtosis - 1) / 4n); kurtosis 3 (normal), 1.8 (uniform).
        spread = 0.5 if expected.kind == "normal" else 0.2
        fits = abs(values.mean().item() - expected.mean) < LIMIT * expected.std / math.sqrt(count)
        fits &= abs(values.std(correction=0).item() / expected.std - 1) < LIMIT * math.sqrt(spread / count)
        if expected.absmax_bound is not None:
            fits &= expected.absmax_bound * (1 - 20 / count) < largest <= expected.absmax_bound * (1 + 1e-6)
        elif count > 10_000:
            fits &= largest > 3 * expected.std
    if not fits:
        raise ArithmeticError(f"{name}: drawn values do not follow {expected}")


def write(recipe: str) -> None:
    rule, distribution, draw = RECIPES[recipe]
    torch.manual_seed(SEED)
    network = draw()
    parameters, names = {}, {parameter: name for name, parameter in network.named_parameters()}
    for prefix, module in network.named_modules():
        for local, parameter in module.named_parameters(recurse=False):
            name = f"{prefix}.{local}" if prefix else local
            if names[parameter] != name:
                continue  # shared with a module above
            expected = distribution(module, local)
            check(name, parameter, expected)
            parameters[name] = asdict(expected)
    document = {
        "recipe": recipe,
        "rule": rule,
        "made_with": {"torch": torch.__version__.split("+")[0], "torchvision": torchvision.__version__.split("+")[0]},
        "parameters": parameters,
    }
    path = GOLDEN / recipe / "init.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{path}: {len(parameters)} parameters")


if __name__ == "__main__":
    torch.set_num_threads(2)
    for recipe in sys.argv[1:] or RECIPES:
        write(recipe)
