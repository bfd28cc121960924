"""Re-makes every golden of this repository and compares it with the file that is there (a quarter of an hour on two cores).

The step files of resnet50, alexnet and alexnet-torchvision come from another exporter: for them this proves zoo_golden right.
"""

import json
import tempfile
import unittest
from pathlib import Path

try:
    import torch
    from PIL import Image
    from safetensors.numpy import load_file

    import preprocessing
    import schedules
    import steps
    from zoo_golden.compare import compare
except ModuleNotFoundError as missing:
    raise unittest.SkipTest(f"{missing.name} is not installed") from missing

REFERENCE = Path(__file__).resolve().parents[4] / "shared" / "reference"


class Steps(unittest.TestCase):
    def test_every_golden_is_reproduced(self):
        for name, (place, _) in steps.GOLDENS.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                again = Path(folder) / "step"
                steps.make(name, again)
                difference = compare(again, place)
                # The reference says dropout 0 of a network that has no dropout modules; we say null.
                self.assertEqual(difference.unequal, ["hyper"] if name == "alexnet" else [])
                self.assertLess(difference.samples[0], 1e-10, difference)
                self.assertLess(difference.statistics[0], 1e-10, difference)
                self.assertLess(difference.losses[0], 1e-13, difference)
                self.assertLess(difference.degenerate[0], 1e-12, difference)


class Schedules(unittest.TestCase):
    def test_files_are_fresh(self):
        for name, schedule in schedules.SCHEDULES.items():
            stored = json.loads((schedules.GOLDEN / name / "schedule.json").read_text())["lr"]
            self.assertEqual(stored, {str(step): schedule.lr(step) for step in schedules.chosen_steps(name, schedule)})

    def test_ends_and_borders_by_hand(self):
        epoch = schedules.STEPS_PER_EPOCH
        cosine = schedules.SCHEDULES["resnet50"].lr
        self.assertEqual(cosine(5 * epoch - 1), 0.256)
        self.assertEqual(cosine(5 * epoch), 0.256)
        self.assertAlmostEqual(cosine(5 * epoch + 85 * epoch // 2), 0.128, delta=1e-15)
        npu = schedules.SCHEDULES["alexnet"].lr
        self.assertEqual(npu(5 * epoch), npu(6 * epoch - 1))
        self.assertLess(npu(5 * epoch), 0.06)
        stepped = schedules.SCHEDULES["resnet18"].lr
        self.assertEqual((stepped(30 * epoch - 1), stepped(30 * epoch)), (0.1, 0.1 * 0.1))


@unittest.skipUnless(REFERENCE.exists(), f"{REFERENCE} is absent")
class Preprocessing(unittest.TestCase):
    def test_crops_are_those_of_the_reference(self):
        crops = load_file(REFERENCE / "preprocess.safetensors")
        for path in sorted((REFERENCE / "images").glob("*.png")):
            as_bytes = {"scale": 1.0, "mean": [0.0] * 3, "std": [1.0] * 3, "grey": False}
            sized = {"resize": 256, "crop": 224, "interpolation": "bilinear"}
            ours = preprocessing.preprocess(Image.open(path).convert("RGB"), as_bytes | sized)
            theirs = torch.from_numpy(crops[f"crop/{path.stem}/png/bilinear256"])
            self.assertTrue(torch.equal(ours.permute(1, 2, 0).to(torch.uint8), theirs), path.stem)


if __name__ == "__main__":
    unittest.main()
