"""python augment.py: prints FNV-1a hashes of the pixels that each operation of torchvision gives for one image, statistics of
its random erasing, and hashes of batches that MixUp and CutMix mixed. The tests in datasets/src/{transforms,loader} contain these
numbers."""

from unittest import mock

import numpy as np
import torch
from PIL import Image
from torchvision import transforms
from torchvision.transforms import functional, v2
from torchvision.transforms.autoaugment import RandAugment, TrivialAugmentWide, _apply_op

from zoo_golden.hashes import hashes

WIDTH, HEIGHT = 160, 96


def image() -> Image.Image:
    """Hashed pixels whose levels lie between 20 and 219."""
    levels = hashes("augment", WIDTH * HEIGHT * 3) % np.uint64(200) + np.uint64(20)
    return Image.fromarray(levels.astype(np.uint8).reshape(HEIGHT, WIDTH, 3))


def fnv1a64(picture: Image.Image | np.ndarray) -> str:
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
    operations("rand_augment", picture, RandAugment()._augmentation_space(31, (HEIGHT, WIDTH)), 9)
    for magnitude in (4, 17, 30):
        operations("trivial_augment", picture, TrivialAugmentWide()._augmentation_space(31), magnitude)
    torch.manual_seed(1)
    empty = torch.zeros(3, 160, 224)
    drawn = [transforms.RandomErasing.get_params(empty, (0.02, 0.33), (0.3, 3.3), [0.0]) for _ in range(40_000)]
    drawn = [(h, w) for _, _, h, w, value in drawn if value is not None and (h, w) != (160, 224)]
    areas = np.array([h * w / (160 * 224) for h, w in drawn])
    shapes = np.array([h / w for h, w in drawn])
    print("erasing", len(drawn), areas.mean(), areas.std(), shapes.mean(), shapes.std())
    mixed()


def operations(kind: str, picture: Image.Image, space: dict, magnitude: int) -> None:
    for number, (name, (magnitudes, signed)) in enumerate(space.items()):
        for sign in (-1.0, 1.0) if signed else (1.0,):
            value = float(magnitudes[magnitude]) * sign if magnitudes.ndim else 0.0
            result = _apply_op(picture, name, value, v2.InterpolationMode.NEAREST, None)
            print(kind, magnitude, number, name, fnv1a64(result))


def mixed() -> None:
    """Image 1 of a batch of two, mixed with image 0."""
    height, width = 8, 10
    batch = torch.arange(2 * 3 * height * width) * 37 % 256 / 64.0 - 2.0
    batch = batch.float().reshape(2, 3, height, width)
    transform = v2.MixUp(num_classes=2)
    print("mixup", fnv1a64(transform.transform(batch, {"lam": 0.3, "labels": None, "batch_size": 2})[1].numpy()))
    transform = v2.CutMix(num_classes=2)
    for share, centre in ((0.3, (4, 4)), (0.75, (9, 0)), (0.999, (5, 5))):
        drawn = [torch.tensor([place]) for place in centre]
        with mock.patch.object(transform, "_dist") as dist, mock.patch("torch.randint", side_effect=drawn):
            dist.sample.return_value = share
            params = transform.make_params([batch])
        image = transform.transform(batch, {**params, "labels": None, "batch_size": 2})[1]
        print("cutmix", share, centre, params["box"], params["lam_adjusted"], fnv1a64(image.numpy()))


main()
