"""Networks for images of 32 pixels: ResNet-20, MLPerf Tiny's ResNet-8, LeNet-5."""

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F


def widened(x: torch.Tensor) -> torch.Tensor:
    """Option A of arXiv 1512.03385 as fb.resnet.torch has it: every other pixel, and as many channels of zeros behind."""
    kept = F.avg_pool2d(x, 1, 2)
    return torch.cat([kept, kept * 0], 1)


class Basic(nn.Module):
    def __init__(self, channels: int, width: int):
        super().__init__()
        widens = width != channels
        self.conv1 = nn.Conv2d(channels, width, 3, 2 if widens else 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = widened if widens else lambda x: x

    def forward(self, x):
        return self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))) + self.shortcut(x))


class ResNet20(nn.Module):
    """Section 4.2 of arXiv 1512.03385, n = 3, drawn as in fb.resnet.torch."""

    def __init__(self, num_classes: int = 10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU()
        for index, (channels, width) in enumerate([(16, 16), (16, 32), (32, 64)], 1):
            setattr(self, f"layer{index}", nn.Sequential(Basic(channels, width), Basic(width, width), Basic(width, width)))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.fc.bias)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        return self.fc(self.avgpool(self.layer3(self.layer2(self.layer1(x)))).flatten(1))


def keras_bn(width: int) -> nn.BatchNorm2d:
    """With the settings that Keras has by default: momentum 0.99 there is 0.01 here."""
    return nn.BatchNorm2d(width, eps=1e-3, momentum=0.01)


class Stack(nn.Module):
    """Padding `same` of Keras: with stride 2 the zeros are below and on the right."""

    def __init__(self, channels: int, width: int):
        super().__init__()
        widens = width != channels
        self.rim = (0, 1, 0, 1) if widens else (1, 1, 1, 1)
        self.conv1 = nn.Conv2d(channels, width, 3, 2 if widens else 1)
        self.bn1 = keras_bn(width)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1)
        self.bn2 = keras_bn(width)
        self.project = nn.Conv2d(channels, width, 1, 2) if widens else None

    def forward(self, x):
        main = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(F.pad(x, self.rim))))))
        return self.relu(main + (self.project(x) if self.project else x))


class ResNet8(nn.Module):
    """mlcommons/tiny, resnet_v1_eembc with 16 filters."""

    def __init__(self, num_classes: int = 10):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, 1, 1)
        self.bn = keras_bn(16)
        self.relu = nn.ReLU()
        self.stack1, self.stack2, self.stack3 = Stack(16, 16), Stack(16, 32), Stack(32, 64)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.dense = nn.Linear(64, num_classes)
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                nn.init.zeros_(module.bias)

    def forward(self, x):
        x = self.relu(self.bn(self.conv(x)))
        return self.dense(self.avgpool(self.stack3(self.stack2(self.stack1(x)))).flatten(1))


class LeNet5(nn.Sequential):
    """mindspore-ai/models research/cv/lenet: grey images of 32 pixels, convolutions N(0, 0.01^2), dense layers N(0, 0.02^2)."""

    def __init__(self, num_classes: int = 10):
        super().__init__(
            OrderedDict(
                conv1=nn.Conv2d(1, 6, 5, bias=False),
                relu1=nn.ReLU(),
                pool1=nn.MaxPool2d(2, 2),
                conv2=nn.Conv2d(6, 16, 5, bias=False),
                relu2=nn.ReLU(),
                pool2=nn.MaxPool2d(2, 2),
                flatten=nn.Flatten(),
                fc1=nn.Linear(16 * 5 * 5, 120),
                relu3=nn.ReLU(),
                fc2=nn.Linear(120, 84),
                relu4=nn.ReLU(),
                fc3=nn.Linear(84, num_classes),
            )
        )
        for module in self:
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, std=0.01)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
