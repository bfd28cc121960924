"""python augment.py: prints FNV-1a hashes of the pixels that each operation of torchvision gives for one image, and statistics of its
random erasing. The tests in datasets/src/transforms contain these numbers."""

import numpy as np
import torch
from PIL import Image
from torchvision import transforms
from torchvision.transforms import functional, v2
from torchvision.transforms.autoaugment import RandAugment, _apply_op

from zoo_golden.hashes import hashes

WIDTH, HEIGHT = 160, 96


def image() -> Image.Image:
    """Hashed pixels whose levels lie between 20 and 219."""
    levels = hashes("augment", WIDTH * HEIGHT * 3) % np.uint64(200) + np.uint64(20)
    return Image.fromarray(levels.astype(np.uint8).reshape(HEIGHT, WIDTH, 3))


def fnv1a64(picture: Image.Image) -> str:
    state = 0xCBF29CE484222325
    for byte in picture.tobytes():
        state = ((state ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{state:016x}"


def main() -> None:
    picture = image()
    adjustments = {
        "brightness": (functional.adjust_brightness, (0.3, 1.7)),
        "contrast": (functional.adjust_contrast, (0.3, 1.7)),
        "saturation": (functional.adjust_saturation, (0.3, 1.7)),
        "sharpness": (functional.adjust_sharpness, (0.3, 1.7)),
        "hue": (functional.adjust_hue, (-0.5, -0.1, 0.0, 0.2)),
        "posterize": (functional.posterize, (1, 4, 8)),
        "solarize": (functional.solarize, (0.0, 128.5, 255.0)),
    }
    for name, (function, values) in adjustments.items():
        for value in values:
            print(name, value, fnv1a64(function(picture, value)))
    print("auto_contrast", fnv1a64(functional.autocontrast(picture)))
    print("equalize", fnv1a64(functional.equalize(picture)))
    space = RandAugment()._augmentation_space(31, (HEIGHT, WIDTH))
    for number, (name, (magnitudes, signed)) in enumerate(space.items()):
        for sign in (-1.0, 1.0) if signed else (1.0,):
            magnitude = float(magnitudes[9]) * sign if magnitudes.ndim else 0.0
            result = _apply_op(picture, name, magnitude, v2.InterpolationMode.NEAREST, None)
            print("rand_augment", number, name, fnv1a64(result))
    torch.manual_seed(1)
    empty = torch.zeros(3, 160, 224)
    drawn = [transforms.RandomErasing.get_params(empty, (0.02, 0.33), (0.3, 3.3), [0.0]) for _ in range(40_000)]
    drawn = [(h, w) for _, _, h, w, value in drawn if value is not None and (h, w) != (160, 224)]
    areas = np.array([h * w / (160 * 224) for h, w in drawn])
    shapes = np.array([h / w for h, w in drawn])
    print("erasing", len(drawn), areas.mean(), areas.std(), shapes.mean(), shapes.std())


main()
