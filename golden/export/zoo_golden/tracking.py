"""SiamMask base (arXiv 1812.05050), its losses, and its goldens.

Parameters have the names of the authors' code. All parameters are trained, the backbone at a tenth of the learning rate.
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from .conditions import Input, gain_rules, image
from .exporter import export
from .hashes import hashes, signed

GAINS = [("features.features.layer?.*.bn3.*", 0.1)]
WEIGHTS = {"cls": 1.0, "loc": 1.2, "mask": 36}
ANCHORS = 5
WINDOW, STRIDE, PADDING = 127, 8, 32


class Bottleneck(nn.Module):
    """Stride 2 comes without padding, and with a 3x3 shortcut."""

    def __init__(self, channels, width, stride=1, padding=1, dilation=1, shortcut=None):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding, dilation, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU()
        self.downsample = shortcut

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


def _stage(channels, width, blocks, first, others, kernel, padding):
    stride = first.get("stride", 1)
    shortcut = nn.Sequential(nn.Conv2d(channels, 4 * width, kernel, stride, padding, bias=False), nn.BatchNorm2d(4 * width))
    rest = [Bottleneck(4 * width, width, **others) for _ in range(blocks - 1)]
    return nn.Sequential(Bottleneck(channels, width, shortcut=shortcut, **first), *rest)


class Resnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = _stage(64, 64, 3, {}, {}, kernel=1, padding=0)
        self.layer2 = _stage(256, 128, 4, {"stride": 2, "padding": 0}, {}, kernel=3, padding=0)
        dilated = {"padding": 2, "dilation": 2}
        self.layer3 = _stage(512, 256, 6, {"padding": 1}, dilated, kernel=3, padding=1)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        p2 = self.layer2(self.layer1(x))
        p3 = self.layer3(p2)
        return p2, p3, p3


class Reduction(nn.Module):
    """To the width of the heads; narrow maps, the template's, keep their middle."""

    def __init__(self):
        super().__init__()
        self.downsample = nn.Sequential(nn.Conv2d(1024, 256, 1, bias=False), nn.BatchNorm2d(256))

    def forward(self, x):
        x = self.downsample(x)
        return x[:, :, 4:-4, 4:-4] if x.shape[-1] < 20 else x


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = Resnet()
        self.downsample = Reduction()

    def forward(self, x):
        return self.downsample(self.features(x)[-1])


class Correlation(nn.Module):
    """One map slid over the other, channel by channel, and a head on the result."""

    def __init__(self, out, width=256):
        super().__init__()
        branch = lambda: nn.Sequential(nn.Conv2d(width, width, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.conv_kernel, self.conv_search = branch(), branch()
        head = (nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, out, 1))
        self.head = nn.Sequential(*head)

    def forward(self, template, search):
        kernel, search = self.conv_kernel(template), self.conv_search(search)
        n, c, h, w = search.shape
        y = F.conv2d(search.reshape(1, n * c, h, w), kernel.reshape(n * c, 1, *kernel.shape[2:]), groups=n * c)
        return self.head(y.reshape(n, c, *y.shape[2:]))


class Rpn(nn.Module):
    def __init__(self):
        super().__init__()
        self.cls, self.loc = Correlation(2 * ANCHORS), Correlation(4 * ANCHORS)

    def forward(self, template, search):
        return self.cls(template, search), self.loc(template, search)


class MaskModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.mask = Correlation(63 * 63)

    def forward(self, template, search):
        return self.mask(template, search)


class SiamMask(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.rpn_model, self.mask_model = Features(), Rpn(), MaskModel()

    def forward(self, inputs):
        template, search = self.features(inputs["template"]), self.features(inputs["search"])
        cls, loc = self.rpn_model(template, search)
        mask = self.mask_model(template, search)
        n, _, h, w = cls.shape
        cls = F.log_softmax(cls.reshape(n, 2, ANCHORS, h, w).permute(0, 2, 3, 4, 1), dim=4)
        losses = (class_loss(cls, inputs), box_loss(loc, inputs), mask_loss(mask, inputs))
        return {"predict": (loc, cls, mask, template, search), "losses": losses}


def class_loss(scores, inputs):
    """Half the mean over positives and half that over negatives; -1 does not count."""
    scores, labels = scores.reshape(-1, 2), inputs["label_cls"].flatten()
    mean = lambda wanted: F.nll_loss(scores[labels == wanted], labels[labels == wanted])
    return 0.5 * mean(1) + 0.5 * mean(0)


def box_loss(boxes, inputs):
    """Absolute differences, weighted, summed, over the batch."""
    n, _, h, w = boxes.shape
    difference = (boxes.reshape(n, 4, ANCHORS, h, w) - inputs["label_loc"]).abs().sum(1)
    return (difference * inputs["label_loc_weight"]).sum() / n


def mask_loss(masks, inputs):
    """Soft margin between masks enlarged to the window and the windows of the target, where the weight is 1."""
    wanted = inputs["label_mask_weight"].flatten() == 1
    masks = masks.permute(0, 2, 3, 1).reshape(-1, 1, 63, 63)[wanted]
    masks = F.interpolate(masks, size=(WINDOW, WINDOW), mode="bilinear", align_corners=True).flatten(1)
    windows = F.unfold(inputs["label_mask"], WINDOW, padding=PADDING, stride=STRIDE)
    windows = windows.permute(0, 2, 1).reshape(-1, WINDOW * WINDOW)[wanted]
    return F.soft_margin_loss(masks, windows)


def loss(outputs, inputs, network):
    terms = dict(zip(WEIGHTS, outputs["losses"]))
    total = sum(weight * terms[name] for name, weight in WEIGHTS.items())
    return {"loss": total, **{f"{name}_loss": value for name, value in terms.items()}}


def targets(batch: int, search: int, places: int, salt: str) -> dict[str, Input]:
    """Labels by hash, in the ranges of the authors' target maker: 16 positives and 48 negatives per image."""
    cls = np.full((batch, ANCHORS * places * places), -1, np.int64)
    for i in range(batch):
        order = np.argsort(hashes(f"{salt}label.cls.{i}", cls.shape[1]), kind="stable")
        cls[i, order[:16]], cls[i, order[16:64]] = 1, 0
    cls = cls.reshape(batch, ANCHORS, places, places)
    weight = (cls == 1).astype(np.float32)
    weight /= weight.sum((1, 2, 3), keepdims=True) + np.float32(1e-6)
    seen = (cls == 1).max(1, keepdims=True).astype(np.float32)
    sides = np.where(signed(f"{salt}label.mask", (batch, 1, search, search)) < 0, -1, 1).astype(np.float32)
    maps = {
        "label_cls": cls,
        "label_loc": signed(f"{salt}label.loc", (batch, 4, ANCHORS, places, places)),
        "label_loc_weight": weight,
        "label_mask": sides,
        "label_mask_weight": seen,
    }
    return {name: Input(torch.from_numpy(values)) for name, values in maps.items()}


def step(path: Path, *, batch: int, search: int, salt: str, lr: float, momentum: float, weight_decay: float, clip: float, samples: int) -> None:
    """A golden of SiamMask under these conditions; `search` is 127 + 16 n pixels."""
    network = SiamMask()

    def optimizer(network: nn.Module) -> torch.optim.Optimizer:
        slow = [p for n, p in network.named_parameters() if n.startswith("features.features.")]
        fast = [p for n, p in network.named_parameters() if not n.startswith("features.features.")]
        groups = [{"params": slow, "lr": 0.1 * lr}, {"params": fast}]
        return torch.optim.SGD(groups, lr=lr, momentum=momentum, weight_decay=weight_decay)

    places = (search - 127) // STRIDE + 9
    export(
        path,
        network,
        loss,
        optimizer,
        {
            "template": image((batch, 3, 127, 127), salt, "template"),
            "search": image((batch, 3, search, search), salt, "search"),
            **targets(batch, search, places, salt),
        },
        forward=lambda network, inputs: network(inputs),
        name="siammask_base",
        salt=salt,
        gain=gain_rules(GAINS),
        clip_grad_norm=clip,
        hyper={"loss_weights": list(WEIGHTS.values()), "weight_decay": weight_decay, "clip_grad_norm": clip},
        samples=samples,
    )
