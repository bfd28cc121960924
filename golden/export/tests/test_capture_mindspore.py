"""python -m unittest tests.test_capture_mindspore (in golden/export): what a capture of a MindSpore network records."""

import json
import tempfile
import unittest
from pathlib import Path

try:
    import mindspore
    import numpy as np
    from mindspore import nn, ops
    from safetensors.numpy import load_file

    from zoo_golden.capture_mindspore import Capture
except ModuleNotFoundError as missing:
    raise unittest.SkipTest(f"{missing.name} is not installed") from missing


class Small(nn.Cell):
    """A ReLU used twice."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, pad_mode="valid")
        self.bn = nn.BatchNorm2d(8)
        self.relu = nn.ReLU()
        self.fc = nn.Dense(8, 5)

    def construct(self, x):
        return self.relu(self.fc(ops.mean(self.relu(self.bn(self.conv(x))), (2, 3))))


class Captures(unittest.TestCase):
    def setUp(self):
        mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "recorded"
        mindspore.set_seed(0)
        self.network = Small().set_train()
        self.optimizer = nn.Momentum(self.network.trainable_params(), 0.1, 0.9)
        random = np.random.default_rng(0)
        self.image = mindspore.Tensor(random.normal(size=(4, 3, 9, 9)).astype(np.float32))
        self.label = mindspore.Tensor(np.arange(4, dtype=np.int32))
        criterion = nn.CrossEntropyLoss()
        forward = lambda image, label: criterion(self.network(image), label)
        self.step = mindspore.value_and_grad(forward, None, self.optimizer.parameters)

    def record(self) -> dict:
        with Capture(self.folder, self.network, self.optimizer) as capture:
            loss, gradients = self.step(self.image, self.label)
            capture.loss(loss)
            capture.gradients(gradients)
            self.optimizer(gradients)
        return load_file(self.folder / "step.safetensors")

    def test_keys_are_those_of_the_golden_with_mindspores_names(self):
        found = self.record()
        calls = {"conv#0", "bn#0", "relu#0", "fc#0", "relu#1", "@root#0"}
        self.assertEqual({key.removeprefix("out/") for key in found if key.startswith("out/")}, calls)
        trained = {"conv.weight", "bn.gamma", "bn.beta", "fc.weight", "fc.bias"}
        for kind in ("start", "grad", "param1", "momentum1"):
            self.assertLessEqual({f"{kind}/{name}" for name in trained}, found.keys(), kind)
        self.assertLessEqual({"buffer1/bn.moving_mean", "buffer1/bn.moving_variance", "in/@root#0.0", "loss/loss"}, found.keys())

    def test_numbers_are_of_before_and_after_the_step(self):
        found = self.record()
        moved = found["start/fc.weight"] - np.float32(0.1) * found["grad/fc.weight"]
        np.testing.assert_allclose(found["param1/fc.weight"], moved, rtol=1e-6, atol=1e-7)
        np.testing.assert_array_equal(found["start/bn.moving_mean"], np.zeros(8, np.float32))
        self.assertGreater(np.abs(found["buffer1/bn.moving_mean"]).max(), 0)
        about = json.loads((self.folder / "capture.json").read_text())
        self.assertEqual(about["tensors"].keys(), found.keys())
        self.assertAlmostEqual(about["tensors"]["grad/fc.bias"]["norm"], float(np.linalg.norm(found["grad/fc.bias"])), places=6)

    def test_hooks_are_removed_and_nothing_is_written_after_an_error(self):
        with self.assertRaises(ValueError), Capture(self.folder, self.network) as capture:
            capture.gradients([self.image])
        self.assertFalse(self.folder.exists())
        with self.assertRaisesRegex(RuntimeError, "was not called"), Capture(self.folder, self.network):
            pass
        self.record()

    def test_graph_mode_is_refused(self):
        mindspore.set_context(mode=mindspore.GRAPH_MODE)
        with self.assertRaisesRegex(RuntimeError, "PyNative"):
            Capture(self.folder, self.network).__enter__()


if __name__ == "__main__":
    unittest.main()
