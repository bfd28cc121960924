"""python boxes.py [--seed N] [--count M]: draws files in COCO's layout and detections, and compares the average precision
that zoo computes from them with that of pycocotools. Needs cargo; exits with 1 if a figure differs by more than 1e-9."""

import argparse
import contextlib
import io
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from pycocotools.coco import COCO  # type: ignore[import-untyped]
from pycocotools.cocoeval import COCOeval  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parents[2]
WIDTH, HEIGHT = 320, 240
NAMES = {
    0: "map",
    1: "map_50",
    2: "map_75",
    3: "map_small",
    4: "map_medium",
    5: "map_large",
    8: "mar_100",
}

Entry = dict[str, Any]
Case = tuple[Entry, list[Entry]]

# Ways in which exporters write the same entry; pycocotools reads them all.
FLAGS: list[Callable[[int], Any]] = [int, float, bool]
NUMBERS: list[Callable[[int], Any]] = [int, float]
NAMED: list[Callable[[int], Any]] = [*NUMBERS, lambda number: f"image {number:05}"]


def draw_box(draw: random.Random, largest: float) -> list[float]:
    """A box inside the image; sides are often whole, so that areas lie on the limits of the ranges."""
    width, height = (draw.choice([32, 96]) if draw.random() < 0.1 else draw.uniform(1, largest) for _ in range(2))
    width, height = min(width, WIDTH), min(height, HEIGHT)
    digits = draw.choice([0, 2])
    box = [
        draw.uniform(0, WIDTH - width),
        draw.uniform(0, HEIGHT - height),
        max(width, 1),
        max(height, 1),
    ]
    return [round(value, digits) for value in box]


def draw_detection(draw: random.Random, own: list[Entry], categories: list[int]) -> tuple[int, list[float]]:
    """Near a true box, exactly on it, or anywhere."""
    if not own or draw.random() < 0.2:
        return draw.choice(categories), draw_box(draw, 200)
    near = draw.choice(own)
    category = near["category_id"] if draw.random() < 0.85 else draw.choice(categories)
    spread = draw.choice([0, 0, 0.02, 0.1, 0.3])
    x, y, width, height = near["bbox"]
    box = [x + draw.gauss(0, spread) * width, y + draw.gauss(0, spread) * height]
    box += [max(side * (1 + draw.gauss(0, spread)), 0.5) for side in (width, height)]
    return int(category), [round(value, 3) for value in box]


def draw_case(seed: int) -> Case:
    """An annotation file and detections: crowds, images without objects, classes without objects or detections, many
    equal scores, more than 100 detections of a class."""
    draw = random.Random(seed)
    images = list(range(1, draw.choice([2, 5, 12]) + 1))
    draw.shuffle(images)
    categories = sorted(draw.sample(range(draw.choice([0, 1]), 30), draw.randint(1, 5)))
    crowds, largest, digits = (
        draw.choice([0, 0.2, 0.6]),
        draw.choice([30, 90, 240]),
        draw.choice([0, 1, 2, 6]),
    )
    flag, number, image_id = (
        draw.choice(FLAGS),
        draw.choice(NUMBERS),
        draw.choice(NAMED),
    )
    with_objects = [category for category in categories if draw.random() < 0.8] or categories[:1]
    annotations: list[Entry] = []
    found: list[Entry] = []
    for image in images:
        for _ in range(draw.choice([0, 1, 3, 8])):
            box = draw_box(draw, largest)
            annotations.append(
                {
                    "id": number(len(annotations) + 1),
                    "image_id": image_id(image),
                    "category_id": number(draw.choice(with_objects)),
                    "bbox": box,
                    "area": round(box[2] * box[3] * draw.choice([1, 1, draw.uniform(0.3, 1)]), 2),
                    "iscrowd": flag(int(draw.random() < crowds)),
                    "segmentation": [],
                }
            )
        own = [one for one in annotations if one["image_id"] == image_id(image)]
        most = 130 if image == images[0] and draw.random() < 0.3 else draw.choice([0, 3, 12])
        for _ in range(most):
            category, box = draw_detection(draw, own, categories)
            score = round(draw.random(), digits)
            found.append(
                {
                    "image_id": image_id(image),
                    "category_id": category,
                    "bbox": box,
                    "score": score,
                }
            )
    draw.shuffle(annotations)
    files = [
        {
            "id": image_id(image),
            "file_name": f"{image}.png",
            "width": number(WIDTH),
            "height": number(HEIGHT),
        }
        for image in images
    ]
    names = [{"id": number(category), "name": f"class {category}"} for category in categories]
    return {"images": files, "annotations": annotations, "categories": names}, found


def expected(file: Path, found: list[Entry]) -> dict[str, float]:
    """What pycocotools computes; ranges of areas without an object are left out."""
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(file))
        # Its loader of results refuses an empty list.
        results = coco.loadRes([dict(one) for one in found]) if found else COCO()
        if not found:
            results.dataset = {**coco.dataset, "annotations": []}
            results.createIndex()
        evaluation = COCOeval(coco, results, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return {name: float(evaluation.stats[i]) for i, name in NAMES.items() if evaluation.stats[i] > -1}


def write(folder: Path, picture: Path, case: Case) -> Path:
    """The folder that zoo reads; returns the annotation file."""
    truth, found = case
    (folder / "annotations").mkdir(parents=True)
    (folder / "val2017").mkdir()
    for image in truth["images"]:
        os.link(picture, folder / "val2017" / image["file_name"])
    names = {image["id"]: image["file_name"] for image in truth["images"]}
    of_image: dict[str, list[tuple[int, list[float], float]]] = {}
    for one in found:
        of_image.setdefault(names[one["image_id"]], []).append((one["category_id"], one["bbox"], one["score"]))
    (folder / "detections.json").write_text(json.dumps(of_image))
    file = folder / "annotations" / "instances_val2017.json"
    file.write_text(json.dumps(truth))
    return file


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=200, help="number of files")
    parser.add_argument("--keep", type=Path, help="folder for the files; by default a temporary one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = arguments.keep or Path(temporary)
        root.mkdir(parents=True, exist_ok=True)
        picture = root / "picture.png"
        Image.new("RGB", (WIDTH, HEIGHT)).save(picture)
        seeds = range(arguments.seed, arguments.seed + arguments.count)
        folders = {seed: root / str(seed) for seed in seeds}
        wanted = {}
        for seed in seeds:
            case = draw_case(seed)
            wanted[seed] = expected(write(folders[seed], picture, case), case[1])
        command = [
            "cargo",
            "run",
            "--quiet",
            "--release",
            "-p",
            "zoo-tasks",
            "--example",
            "average_precision",
            "--",
        ]
        done = subprocess.run(
            [*command, *map(str, folders.values())],
            check=False,
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
        )
        found = [json.loads(line) for line in done.stdout.splitlines()]
        if done.returncode or len(found) != len(wanted):
            print(f"zoo read {len(found)} of {len(wanted)} files", file=sys.stderr)
            return 1
    wrong = 0
    for (seed, want), got in zip(wanted.items(), found, strict=True):
        if want.keys() != got.keys() or any(not math.isclose(want[key], got[key], abs_tol=1e-9) for key in want):
            print(f"seed {seed}: pycocotools {want}, zoo {got}")
            wrong += 1
    figures = sum(len(want) for want in wanted.values())
    print(f"{len(wanted)} files, {figures} figures, {wrong} files differ")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
