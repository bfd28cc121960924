"""python -m unittest tests.test_capture (in golden/export): what a capture records, on a small network, in seconds."""

import json
import tempfile
import unittest
from pathlib import Path

try:
    import torch
    from safetensors.torch import load_file
    from torch import nn

    from zoo_golden.capture import Capture
except ModuleNotFoundError as missing:
    raise unittest.SkipTest(f"{missing.name} is not installed") from missing


class Small(nn.Module):
    """A ReLU used twice, once in place, and an unused parameter."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.bn = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.fc = nn.Linear(8, 5)
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        features = self.relu(self.bn(self.conv(x)))
        return self.relu(self.fc(features.mean((2, 3))))


class Captures(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "recorded"
        torch.manual_seed(0)
        self.network = Small()
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1, momentum=0.9)
        self.image, self.label = torch.randn(4, 3, 9, 9), torch.tensor([0, 1, 2, 3])

    def step(self, autocast=False, clip=None) -> tuple[dict, dict]:
        start = {name: value.clone() for name, value in self.network.state_dict().items()}
        with Capture(self.folder, self.network, self.optimizer) as capture:
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = nn.functional.cross_entropy(self.network(self.image), self.label)
            capture.loss(loss)
            loss.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(self.network.parameters(), clip)
            self.optimizer.step()
        return load_file(self.folder / "step.safetensors"), start

    def test_keys_are_those_of_the_golden(self):
        found, _ = self.step()
        calls = {"conv#0", "bn#0", "relu#0", "fc#0", "relu#1", "@root#0"}
        self.assertEqual({key.removeprefix("out/") for key in found if key.startswith("out/")}, calls)
        trained = {f"{module}.{name}" for module in ("conv", "bn", "fc") for name in ("weight", "bias")}
        for kind in ("grad", "param1", "momentum1"):
            self.assertEqual({key.partition("/")[2] for key in found if key.startswith(f"{kind}/")}, trained)
        self.assertEqual({key for key in found if key.startswith("buffer1/")}, {"buffer1/bn.running_mean", "buffer1/bn.running_var"})
        self.assertIn("start/unused.weight", found)
        self.assertTrue(torch.equal(found["in/@root#0.0"], self.image))
        self.assertEqual(found["loss/loss"].shape, ())

    def test_the_update_by_hand(self):
        found, start = self.step()
        self.assertTrue(torch.equal(found["start/fc.weight"], start["fc.weight"]))
        torch.testing.assert_close(found["param1/fc.weight"], start["fc.weight"] - 0.1 * found["grad/fc.weight"])
        torch.testing.assert_close(found["buffer1/bn.running_mean"], 0.1 * found["out/conv#0"].mean((0, 2, 3)))

    def test_outputs_are_what_modules_return_before_anything_works_on_them(self):
        found, _ = self.step()
        self.assertLess(found["out/bn#0"].min(), 0)
        self.assertEqual(found["out/relu#0"].min(), 0)

    def test_gradients_are_those_before_clipping(self):
        found, _ = self.step(clip=1e-3)
        norm = torch.cat([value.flatten() for key, value in found.items() if key.startswith("grad/")]).norm()
        self.assertGreater(norm, 0.01)

    def test_autocast_keeps_its_types(self):
        found, _ = self.step(autocast=True)
        self.assertEqual(found["out/conv#0"].dtype, torch.bfloat16)
        self.assertEqual(found["grad/conv.weight"].dtype, torch.float32)

    def test_what_is_said_of_the_tensors_is_true(self):
        found, _ = self.step()
        about = json.loads((self.folder / "capture.json").read_text())
        self.assertEqual((about["zoo_capture"], about["tensors"].keys()), (1, found.keys()))
        said, weight = about["tensors"]["grad/fc.weight"], found["grad/fc.weight"].double()
        self.assertEqual(said["shape"], [5, 8])
        self.assertAlmostEqual(said["norm"], weight.norm().item(), places=12)
        self.assertEqual((said["max"], said["min"]), (weight.max().item(), weight.min().item()))

    def test_a_number_that_is_not_finite_is_null(self):
        with torch.no_grad():
            self.network.fc.bias[0] = torch.nan
        self.step()
        about = json.loads((self.folder / "capture.json").read_text())
        self.assertIsNone(about["tensors"]["loss/loss"]["norm"])

    def test_two_steps_are_refused(self):
        with self.assertRaisesRegex(RuntimeError, "one step"), Capture(self.folder, self.network):
            self.network(self.image)
            self.network(self.image)
        self.assertFalse(self.folder.exists())

    def test_a_network_that_is_not_called_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "not called"), Capture(self.folder, self.network) as capture:
            capture.loss(torch.tensor(1.0))

    def test_steps_have_folders_of_their_own(self):
        averaged = torch.optim.swa_utils.AveragedModel(self.network)
        for step in range(2):
            self.optimizer.zero_grad()
            with Capture(self.folder, self.network, self.optimizer, step=step, loss_scale=8.0) as capture:
                loss = nn.functional.cross_entropy(self.network(self.image), self.label)
                (8.0 * loss).backward()
                self.optimizer.step()
                averaged.update_parameters(self.network)
                capture.average(averaged)
        first, second = (load_file(self.folder / f"step{step}" / "step.safetensors") for step in range(2))
        self.assertTrue(torch.equal(first["param1/fc.weight"], second["start/fc.weight"]))
        self.assertIn("ema1/module.fc.weight", second)
        about = json.loads((self.folder / "step1" / "capture.json").read_text())
        self.assertEqual(about["loss_scale"], 8.0)

    def test_wrapped_networks_are_recorded_with_the_names_of_the_wrapper(self):
        wrapped = nn.DataParallel(self.network)
        with Capture(self.folder, wrapped, self.optimizer) as capture:
            loss = nn.functional.cross_entropy(wrapped(self.image), self.label)
            capture.loss(loss)
            loss.backward()
            self.optimizer.step()
        found = load_file(self.folder / "step.safetensors")
        self.assertIn("out/module.conv#0", found)
        self.assertIn("momentum1/module.fc.weight", found)

    def test_nothing_stays_behind(self):
        self.step()
        self.assertFalse(self.network._forward_hooks or self.network.conv._forward_hooks)
        self.assertFalse(self.network.fc.weight._post_accumulate_grad_hooks)


if __name__ == "__main__":
    unittest.main()
