"""python preprocessing.py [IMAGES]: writes <recipe>/preprocess.{json,safetensors}, the evaluation preprocessing of
preprocess/images/*.png by Pillow and torchvision. IMAGES: another folder with the same files."""

import json
import sys
from pathlib import Path

import numpy as np
import PIL
import torch
import torchvision
from PIL import Image
from safetensors.numpy import save
from torchvision.transforms import v2

from zoo_golden.hashes import sample_positions

GOLDEN = Path(__file__).resolve().parent.parent
IMAGES = GOLDEN / "preprocess" / "images"
SAMPLES = 256

# Per recipe: pixels are scaled by 1/scale, then (x - mean) / std per channel (R, G, B).
IMAGENET = {"scale": 255.0, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
RECIPES = {
    "resnet50": IMAGENET,
    "alexnet": {"scale": 1.0, "mean": [121.0, 115.0, 100.0], "std": [70.0, 68.0, 71.0]},
    "alexnet-torchvision": IMAGENET,
    "resnet18": IMAGENET,
    "vgg16": IMAGENET,
    "densenet121": IMAGENET,
    "googlenet": IMAGENET,
    "inception_v3": {"resize": 342, "crop": 299, **IMAGENET},
    "mobilenetv2": IMAGENET,
    "mobilenet_v3_large": IMAGENET,
    "efficientnet_b0": {"interpolation": "bicubic", **IMAGENET},
    "convnext_tiny": {"resize": 236, **IMAGENET},
    "vit_b_16": IMAGENET,
    "swin_t": {"resize": 232, "interpolation": "bicubic", **IMAGENET},
    "resnet34": IMAGENET,
    "se_resnet50": IMAGENET,
    "resnet101": IMAGENET,
    "resnet152": IMAGENET,
    "resnext50_32x4d": IMAGENET,
    "squeezenet1_0": IMAGENET,
    "squeezenet1_1": IMAGENET,
    "vgg11_bn": IMAGENET,
    "vgg19": IMAGENET,
    "wide_resnet50_2": IMAGENET,
}
# Small images. A network for grey ones takes Pillow's luminance.
RECIPES |= {
    "resnet20": {"resize": 32, "crop": 32, **IMAGENET},
    "airbench94": {"resize": 32, "crop": 32, **IMAGENET, "mean": [0.4914, 0.4822, 0.4465], "std": [0.2470, 0.2435, 0.2616]},
    "resnet8_tiny": {"resize": 32, "crop": 32, "scale": 1.0, "mean": [0.0] * 3, "std": [1.0] * 3},
    "lenet": {"resize": 32, "crop": 32, "grey": True, "scale": 255.0, "mean": [0.1307] * 3, "std": [0.3081] * 3},
}
# The authors of DB subtract a mean in the order red, green, blue from images in the order blue, green, red
# (data/processes/normalize_image.py); those of SiamMask do not normalise. The size of images is defined elsewhere.
DB = {"resize": None, "crop": None, "channels": "bgr", "mean": [122.67891434, 116.66876762, 104.00698793], "std": [255.0] * 3}
SIAMMASK = DB | {"mean": [0.0] * 3, "std": [1.0] * 3}
RECIPES |= {name: {"scale": 1.0} | DB for name in ("db_resnet", "db_resnet-original", "db_resnet18")}
RECIPES |= {name: {"scale": 1.0} | SIAMMASK for name in ("siammask", "siammask-sharp")}
# Label maps have the size of their images, which is defined elsewhere. Networks for grey images use the mean as it is.
RECIPES |= {
    "retinanet_resnet50_fpn": {"resize": None, "crop": None, **IMAGENET},
    "deeplabv3_resnet50": {"resize": None, "crop": None, **IMAGENET},
    "unet_medical": {"resize": None, "crop": None, "scale": 1.0, "mean": [127.5] * 3, "std": [127.5] * 3},
}
SIZES = {"resize": 256, "crop": 224, "interpolation": "bilinear", "grey": False}
RULE = (
    "decode to RGB u8; shorter side to `resize` by Pillow's antialiased {interpolation} filter in u8, longer side truncated; "
    "centre crop, offsets rounded half to even{grey}; per channel ((x / scale) - mean) / std, each operation rounded to f32"
)

UNSIZED_RULE = "decode to RGB u8; {}per channel ((x / scale) - mean) / std, each operation rounded to f32"


def preprocess(image: Image.Image, rule: dict) -> torch.Tensor:
    """The f32 tensor that the network sees, channels first."""
    if rule["crop"] is None:
        pixels = np.asarray(image, dtype=np.float32)[..., :: -1 if rule.get("channels") == "bgr" else 1] / np.float32(rule["scale"])
        pixels = (pixels - np.array(rule["mean"], dtype=np.float32)) / np.array(rule["std"], dtype=np.float32)
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
    geometry = v2.Compose([v2.Resize(rule["resize"], v2.InterpolationMode(rule["interpolation"])), v2.CenterCrop(rule["crop"])])
    sized = geometry(image)
    pixels = v2.functional.pil_to_tensor(sized.convert("L") if rule["grey"] else sized).to(torch.float32) / rule["scale"]
    return v2.functional.normalize(pixels, rule["mean"][: len(pixels)], rule["std"][: len(pixels)])


def worded(rule: dict) -> str:
    """What is done, in words."""
    if rule["crop"] is None:
        return UNSIZED_RULE.format("channels to B, G, R; " if "channels" in rule else "")
    return RULE.format(interpolation=rule["interpolation"], grey="; grey as Pillow's convert('L')" if rule["grey"] else "")


def write(recipe: str, images: Path) -> None:
    entries, data, rule = [], {}, SIZES | RECIPES[recipe]
    for path in sorted(images.glob("*.png")):
        image = Image.open(path).convert("RGB")
        tensor = preprocess(image, rule)
        key = f"norm/{path.stem}"
        exact = tensor.double()
        data[key] = tensor.flatten()[torch.from_numpy(sample_positions(key, tensor.numel(), SAMPLES))].numpy()
        entries.append(
            {
                "key": key,
                "file": f"../preprocess/images/{path.name}",
                "size": list(image.size),
                "shape": list(tensor.shape),
                "mean": exact.mean().item(),
                "std": exact.std(correction=0).item(),
                "l2": exact.norm().item(),
                "absmax": exact.abs().max().item(),
            }
        )
    if not entries:
        sys.exit(f"no PNG images in {images}")
    elements = (3 - 2 * rule["grey"]) * rule["crop"] ** 2 if rule["crop"] else "size"
    versions = {"pillow": PIL.__version__, "torchvision": torchvision.__version__.split("+")[0]}
    document = {
        "recipe": recipe,
        "rule": worded(rule),
        "made_with": versions,
        "resize": rule["resize"],
        "interpolation": rule["interpolation"],
        "crop": rule["crop"],
        **{key: rule[key] for key in ("scale", "mean", "std")},
        "layout": f"CHW f32; {SAMPLES} samples at h('sample:' + key, j) mod {elements}",
        "entries": entries,
    }
    folder = GOLDEN / recipe
    folder.mkdir(exist_ok=True)
    (folder / "preprocess.json").write_text(json.dumps(document, indent=1) + "\n")
    (folder / "preprocess.safetensors").write_bytes(save({key: np.ascontiguousarray(v) for key, v in data.items()}))
    print(f"{folder}/preprocess: {len(entries)} images")


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    for recipe in RECIPES:
        write(recipe, folder)
