"""python benches/against_torchvision.py FOLDER [--files N] [--rounds N]: compares loaders with torchvision.

FOLDER has one folder of images per class. All measurements use one thread.

1. The evaluation transforms of both must give bit-for-bit equal results for every image.
2. Hard links in a temporary folder (--files of them) form one large data set. Measured are the time that zoo takes to
   open it and to make the first batch, and the resident memory while it reads --images of them.
3. Images per second of the evaluation transforms (resize, centre crop, normalise) and the training transforms (random
   crop, mirror, normalise), in fresh processes that take turns. The processor time counts, which a busy machine affects
   less. The first batch warms up and does not count.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BATCH = 32


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("folder", type=Path)
    add("--files", type=int, default=100_000)
    add("--images", type=int, default=2_000, help="read of the large set")
    add("--rounds", type=int, default=3)
    add("--timed", type=int, default=640, help="images of a round")
    add("--scratch", type=Path, default=ROOT / "target", help="where the links are made: on the same disk as FOLDER")
    add("--zoo", type=Path, default=ROOT / "target/release/examples/load", help="datasets/examples/load.rs, built")
    add("--torchvision", choices=("evaluation", "training"), help=argparse.SUPPRESS)
    return parser.parse_args()


def pipeline(mode: str):
    """torchvision's transforms of ImageNet, normalised."""
    import torchvision.transforms as T

    geometry = {
        "evaluation": [T.Resize(256), T.CenterCrop(224)],
        "training": [T.RandomResizedCrop(224), T.RandomHorizontalFlip()],
    }
    return T.Compose(geometry[mode] + [T.ToTensor(), T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*/*") if path.is_file())


def processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def torchvision(folder: Path, mode: str, images: int) -> None:
    import torch
    from PIL import Image

    torch.set_num_threads(1)
    transform, paths = pipeline(mode), files(folder)
    started = processor()
    for number in range(images):
        if number % BATCH == 0:
            batch = torch.empty(BATCH, 3, 224, 224)
        if number == BATCH:
            started = processor()
        with Image.open(paths[number % len(paths)]) as image:
            batch[number % BATCH] = transform(image.convert("RGB"))
    print(json.dumps({"images_per_s": (images - BATCH) / (processor() - started)}))


def run(*command: object) -> dict:
    return json.loads(subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout)


def expect_equal(options: argparse.Namespace, scratch: Path) -> None:
    import numpy
    from PIL import Image

    run(options.zoo, options.folder, "evaluation", "--pixels", scratch / "pixels")
    found = numpy.fromfile(scratch / "pixels", numpy.float32).reshape(-1, 3, 224, 224)
    transform, paths = pipeline("evaluation"), files(options.folder)
    equal = sum(bool((transform(Image.open(path).convert("RGB")).numpy() == image).all()) for path, image in zip(paths, found))
    print(f"evaluation: {equal} of {len(paths)} images equal, bit for bit")
    if equal != len(paths) or len(found) != len(paths):
        sys.exit(1)


def link(options: argparse.Namespace, scratch: Path) -> Path:
    paths, large = files(options.folder), scratch / "large"
    for number in range(options.files):
        path = paths[number % len(paths)]
        target = large / path.parent.name / f"{number:06}{path.suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, target)
    return large


def main() -> None:
    options = parse()
    if options.torchvision:
        return torchvision(options.folder, options.torchvision, options.timed)
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        scratch = Path(scratch)
        expect_equal(options, scratch)
        large = link(options, scratch)
        found = run(options.zoo, large, "training", options.images)
        print(f"{found['images']} files: opened in {found['open_s']:.2f} s, first batch of {BATCH} after {found['first_batch_s']:.2f} s more")
        print(f"resident MiB, after each tenth of {options.images} images: {found['resident_mib']}")
        for mode in ("evaluation", "training"):
            rates: dict[str, list[float]] = {"zoo": [], "torchvision": []}
            for _ in range(options.rounds):
                rates["zoo"].append(run(options.zoo, large, mode, options.timed)["images_per_s"])
                rates["torchvision"].append(
                    run(sys.executable, __file__, large, "--torchvision", mode, "--timed", options.timed)["images_per_s"]
                )
            ratios = [ours / theirs for ours, theirs in zip(rates["zoo"], rates["torchvision"])]
            both = ", ".join(f"{name} {statistics.median(values):.0f} images/s" for name, values in rates.items())
            print(f"{mode}: {both}; ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
