"""Records one training step of a port of my_network.py, as it would run on a device: record_step.py BEGIN RECORDED

BEGIN has the weights and inputs that `zoo golden inputs` wrote. The port has a fault: its batch normalisations divide by another epsilon.
"""

import sys
from pathlib import Path

import torch
from my_network import my_network
from torch import nn

from zoo_golden.capture import Capture

begin, recorded = map(Path, sys.argv[1:])
network = my_network()
network.load_state_dict(torch.load(begin / "weights.pth"))
inputs = torch.load(begin / "inputs.pth")
optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)

network.blocks[1].norm2.eps = 1e-3  # The fault.

with Capture(recorded, network, optimizer) as capture:
    loss = nn.functional.cross_entropy(network(inputs["image"]), inputs["label"])
    capture.loss(loss)
    loss.backward()
    optimizer.step()
