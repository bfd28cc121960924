"""python make.py: writes cases.json, what pycocotools computes for random boxes."""

import contextlib
import io
import json
import random
from pathlib import Path

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

CLASSES = 5
NAMES = {0: "map", 1: "map_50", 2: "map_75", 3: "map_small", 4: "map_medium", 5: "map_large", 8: "mar_100"}


def case(seed: int, images: int, largest: float, crowds: bool, digits: int) -> dict:
    """Scores have few digits, so that many are equal; class 3 has no object, class 4 no detection."""
    draw = random.Random(seed)
    truth, found = [], []
    for image in range(1, images + 1):
        for _ in range(draw.choice([0, 1, 2, 5, 9])):
            width, height = draw.uniform(4, largest), draw.uniform(4, largest)
            box = [round(v, 2) for v in (draw.uniform(0, 300), draw.uniform(0, 300), width, height)]
            truth.append(
                {
                    "id": len(truth) + 1,
                    "image_id": image,
                    "category_id": draw.choice([0, 1, 2, 4]),
                    "bbox": box,
                    "area": round(box[2] * box[3] * draw.uniform(0.6, 1), 2),
                    "iscrowd": int(crowds and draw.random() < 0.2),
                }
            )
        own = [object for object in truth if object["image_id"] == image]
        for _ in range(150 if image == 2 else draw.choice([0, 8, 25])):
            # Near a true box, or anywhere.
            model, category = [draw.uniform(0, 300), draw.uniform(0, 300), 40, 40], draw.randrange(4)
            if own and draw.random() < 0.8:
                near = draw.choice(own)
                model, category = near["bbox"], near["category_id"] if draw.random() < 0.8 else category
            spread = draw.choice([0, 0.02, 0.1, 0.3])
            box = [v + draw.gauss(0, spread) * side for v, side in zip(model, (model[2], model[3]) * 2)]
            box = [round(v, 2) for v in (box[0], box[1], max(box[2], 1), max(box[3], 1))]
            if draw.random() < 0.1:
                box = list(model)
            category = 0 if category == 4 else category
            found.append({"image_id": image, "category_id": category, "bbox": box, "score": round(draw.random(), digits)})
    categories = [{"id": i, "name": str(i)} for i in range(CLASSES)]
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = {"images": [{"id": i} for i in range(1, images + 1)], "annotations": truth, "categories": categories}
        coco.createIndex()
        evaluation = COCOeval(coco, coco.loadRes([dict(one) for one in found]), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    stats = {name: float(evaluation.stats[i]) for i, name in NAMES.items() if evaluation.stats[i] > -1}
    truth = [[t["image_id"], t["category_id"], *t["bbox"], t["area"], t["iscrowd"]] for t in truth]
    found = [[f["image_id"], f["category_id"], *f["bbox"], f["score"]] for f in found]
    return {"images": images, "truth": truth, "found": found, "stats": stats}


cases = [case(1, 30, 150, True, 1), case(2, 12, 30, True, 2), case(3, 40, 250, False, 3), case(4, 3, 60, True, 0)]
(Path(__file__).parent / "cases.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")
