"""DB (differentiable binarisation, arXiv 1911.08947) with a plain ResNet-50, its loss, and its goldens.

Parameters have the names of the authors' code. `smooth` and `fc` of the backbone are in their checkpoints, but never called.
"""

from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
import torchvision
from torch import nn
from torch.nn import functional as F

from .conditions import Input, gain_rules, image
from .exporter import export
from .hashes import signed

GAINS = [("backbone.layer?.*.bn3.*", 0.1), ("decoder.*.6.weight", 0.25)]
STEEPNESS = 50
NEGATIVE_RATIO = 3.0
EPS = 1e-6


class Backbone(nn.Module):
    """torchvision's ResNet-50, which returns the outputs of its four stages."""

    def __init__(self):
        super().__init__()
        resnet = torchvision.models.resnet50()
        for name, module in resnet.named_children():
            if name not in ("avgpool", "fc"):
                setattr(self, name, module)
        self.smooth = nn.Conv2d(2048, 256, 1)
        self.fc = resnet.fc

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        stages = []
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
            stages.append(x)
        return tuple(stages)


class Decoder(nn.Module):
    """The feature pyramid and both heads."""

    def __init__(self, width=256):
        super().__init__()
        inner = width // 4
        for level, channels in zip((5, 4, 3, 2), (2048, 1024, 512, 256)):
            setattr(self, f"in{level}", nn.Conv2d(channels, width, 1, bias=False))
        for level in (5, 4, 3):
            setattr(self, f"up{level}", nn.Upsample(scale_factor=2, mode="nearest"))
            upsample = nn.Upsample(scale_factor=2 ** (level - 2), mode="nearest")
            setattr(self, f"out{level}", nn.Sequential(nn.Conv2d(width, inner, 3, padding=1, bias=False), upsample))
        self.out2 = nn.Conv2d(width, inner, 3, padding=1, bias=False)
        self.binarize = self._head(width, inner)
        self.thresh = self._head(width, inner)

    @staticmethod
    def _head(width, inner):
        return nn.Sequential(
            nn.Conv2d(width, inner, 3, padding=1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.ConvTranspose2d(inner, inner, 2, 2),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.ConvTranspose2d(inner, 1, 2, 2),
            nn.Sigmoid(),
        )

    def forward(self, stages):
        c2, c3, c4, c5 = stages
        p5, p4, p3, p2 = self.in5(c5), self.in4(c4), self.in3(c3), self.in2(c2)
        p4 = self.up5(p5) + p4
        p3 = self.up4(p4) + p3
        p2 = self.up3(p3) + p2
        fused = torch.cat((self.out5(p5), self.out4(p4), self.out3(p3), self.out2(p2)), 1)
        binary, thresh = self.binarize(fused), self.thresh(fused)
        return OrderedDict(binary=binary, thresh=thresh, thresh_binary=torch.sigmoid(STEEPNESS * (binary - thresh)))


class Db(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.decoder = Decoder()

    def forward(self, x):
        return self.decoder(self.backbone(x))


def loss(outputs, inputs, network):
    """dice + 10 * L1 + 5 * balanced cross entropy with hard negatives over the whole batch."""
    gt, mask = inputs["gt"][:, 0], inputs["mask"]
    binary, thresh, thresh_binary = (outputs[key][:, 0] for key in ("binary", "thresh", "thresh_binary"))
    positive, negative = gt * mask, (1 - gt) * mask
    positives = int(positive.sum())
    negatives = min(int(negative.sum()), int(positives * NEGATIVE_RATIO))
    entropy = F.binary_cross_entropy(binary, gt, reduction="none")
    hardest = torch.topk((entropy * negative).flatten(), negatives).values
    bce = ((entropy * positive).sum() + hardest.sum()) / (positives + negatives + EPS)
    l1 = ((thresh - inputs["thresh_map"]).abs() * inputs["thresh_mask"]).sum() / inputs["thresh_mask"].sum()
    intersection = (thresh_binary * gt * mask).sum()
    union = (thresh_binary * mask).sum() + (gt * mask).sum() + EPS
    dice = 1 - 2 * intersection / union
    return {"loss": dice + 10 * l1 + 5 * bce, "bce_loss": bce, "l1_loss": l1, "dice_loss": dice}


def targets(batch: int, size: int, salt: str) -> dict[str, Input]:
    """Maps that have words (squares of a quarter of the image, one per image), a ring of thresholds around them, and a
    corner that does not count."""
    gt = np.zeros((batch, 1, size, size), np.float32)
    mask = np.ones((batch, size, size), np.float32)
    ring = np.zeros((batch, size, size), np.float32)
    quarter = size // 4
    places = ((signed(f"{salt}input.words", (batch, 2)) + 1) / 2 * (size - 2 * quarter)).astype(int) + quarter // 2
    for i, (top, left) in enumerate(places):
        gt[i, 0, top : top + quarter, left : left + quarter] = 1
        ring[i, top - 4 : top + quarter + 4, left - 4 : left + quarter + 4] = 1
        ring[i, top + 4 : top + quarter - 4, left + 4 : left + quarter - 4] = 0
        mask[i, : quarter // 2, : quarter // 2] = 0
    threshold = np.float32(0.5) + np.float32(0.2) * signed(f"{salt}input.thresh_map", ring.shape)
    maps = {"gt": gt, "mask": mask, "thresh_map": threshold * ring, "thresh_mask": ring}
    return {name: Input(torch.from_numpy(values)) for name, values in maps.items()}


def step(path: Path, *, batch: int, size: int, salt: str, lr: float, momentum: float, weight_decay: float, samples: int) -> None:
    """A golden of DB under these conditions, weight decay on everything."""
    export(
        path,
        Db(),
        loss,
        lambda network: torch.optim.SGD(
            [p for n, p in network.named_parameters() if not n.startswith(("backbone.fc", "backbone.smooth"))],
            lr=lr,
            momentum=momentum,
            weight_decay=weight_decay,
        ),
        {"image": image((batch, 3, size, size), salt), **targets(batch, size, salt)},
        name="db_resnet50",
        salt=salt,
        gain=gain_rules(GAINS),
        hyper={"k": STEEPNESS, "negative_ratio": NEGATIVE_RATIO, "eps": EPS, "loss": "dice + 10*l1 + 5*bce", "weight_decay": weight_decay},
        samples=samples,
    )
