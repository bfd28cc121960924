"""RetinaNet of torchvision, its losses, and its goldens."""

from pathlib import Path

import numpy as np
import torch
import torchvision
from torch import nn
from torchvision.models.detection import retinanet_resnet50_fpn
from torchvision.models.detection.image_list import ImageList

from .conditions import Input, gain_rules, image
from .exporter import export
from .hashes import hashes, signed

BACKGROUND, IGNORED = -1, -2
"""Labels of anchors without an object, and of those that do not count: what torchvision's Matcher calls them."""


class Retinanet(nn.Module):
    """torchvision's modules under torchvision's names, from a batch of images to what its head gives."""

    def __init__(self, classes: int):
        super().__init__()
        whole = retinanet_resnet50_fpn(weights=None, weights_backbone=None, num_classes=classes)
        self.backbone, self.head = whole.backbone, whole.head
        self.detector = [whole]  # in a list, so that none of its modules is found twice

    def forward(self, x):
        return self.head(list(self.backbone(x).values()))


class Encoded:
    """In the place of torchvision's BoxCoder: boxes that are offsets already."""

    def encode_single(self, boxes, _anchors):
        return boxes


def loss(outputs, inputs, network):
    """torchvision's losses of anchors that have been matched."""
    matched = [torch.where(label >= 0, torch.arange(len(label)), label).long() for label in inputs["label"]]
    targets = [{"labels": label.clamp(min=0).long(), "boxes": boxes} for label, boxes in zip(inputs["label"], inputs["box"])]
    network.head.regression_head.box_coder = Encoded()
    losses = network.head.compute_loss(targets, outputs, inputs["box"], matched)
    return {"loss": sum(losses.values()), **losses}


def drawn_boxes(index: int, size: int, classes: int, salt: str, count: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Boxes within a square image, with classes."""
    corners = (signed(f"{salt}boxes.{index}", (count, 2, 2)) * 0.5 + 0.5) * size
    corners.sort(axis=1)
    corners[:, 1] = np.minimum(np.maximum(corners[:, 1], corners[:, 0] + size / 4), size)
    corners[:, 0] = np.minimum(corners[:, 0], corners[:, 1] - size / 8)
    labels = (hashes(f"{salt}classes.{index}", count) % np.uint64(classes)).astype(np.int64)
    return torch.from_numpy(corners.reshape(count, 4)), torch.from_numpy(labels)


@torch.no_grad()
def matched(network: Retinanet, batch: int, size: int, classes: int, salt: str) -> dict[str, Input]:
    """Labels and offsets of the anchors, as torchvision matches and encodes them in f32."""
    detector = network.detector[0]
    images = torch.zeros(batch, 3, size, size)
    features = list(network.backbone(images).values())
    anchors = detector.anchor_generator(ImageList(images, [(size, size)] * batch), features)
    labels, offsets = [], []
    for index in range(batch):
        boxes, found = drawn_boxes(index, size, classes, salt)
        match = detector.proposal_matcher(torchvision.ops.box_iou(boxes, anchors[index]))
        labels.append(torch.where(match >= 0, found[match.clamp(min=0)], match).float())
        offsets.append(detector.box_coder.encode_single(boxes[match.clamp(min=0)], anchors[index]))
    rule = "boxes of the hash on torchvision's anchors, matched and encoded by torchvision"
    return {"label": Input(torch.stack(labels), rule), "box": Input(torch.stack(offsets), rule)}


def step(path: Path, *, batch: int, size: int, classes: int, lr: float, momentum: float, weight_decay: float, gains: list, salt: str = "") -> None:
    """A golden of RetinaNet under these conditions. Everything trains, all normalisations on the batch."""
    network = Retinanet(classes)
    targets = matched(network.eval(), batch, size, classes, salt)
    network.train()
    export(
        path,
        network,
        loss,
        lambda network: torch.optim.SGD(network.parameters(), lr=lr, momentum=momentum, weight_decay=weight_decay),
        {"image": image((batch, 3, size, size), salt), **targets},
        name="retinanet_resnet50_fpn",
        salt=salt,
        gain=gain_rules(gains),
        hyper={"label_smoothing": 0.0, "weight_decay": weight_decay},
    )
