"""Runs the transforms of transforms.rs with Pillow and torchvision on one thread; prints images per second.

    python benches/pillow.py FOLDER
"""

import sys
import time
from pathlib import Path

import torch
from PIL import Image
from torchvision import transforms

torch.set_num_threads(1)
FILES = sorted(Path(sys.argv[1]).glob("*/*"))
ROUNDS = 7
normalize = [transforms.ToTensor(), transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]
PIPELINES = {
    "decode": lambda image: image,
    "evaluation": transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), *normalize]),
    "training": transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), *normalize]),
}

for name, pipeline in PIPELINES.items():
    best = 0.0
    for _ in range(ROUNDS):
        start = time.process_time()
        for file in FILES:
            pipeline(Image.open(file).convert("RGB"))
        best = max(best, len(FILES) / (time.process_time() - start))
    print(f"{name} {best:.0f} images/s")
