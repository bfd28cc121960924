"""python -m unittest discover -s tests -t . (in golden/export): the format on small networks, in seconds."""

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path

try:
    import numpy as np
    import torch
    import torchvision
    from safetensors.numpy import load_file
    from torch import nn

    from zoo_golden import Input, cross_entropy, export, gain_rules, image, labels
    from zoo_golden.compare import compare
    from zoo_golden.conditions import fill
    from zoo_golden.document import Recording
    from zoo_golden.exporter import _Exact
    from zoo_golden.goldens import main, parse
    from zoo_golden.hashes import fnv1a64, hashes, sample_positions, signed
    from zoo_golden.networks import load
except ModuleNotFoundError as missing:
    raise unittest.SkipTest(f"{missing.name} is not installed") from missing


class Branches(nn.Module):
    """A ReLU used twice (once in place), a normalisation after a bias, an unused parameter, several outputs."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.bn = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.fc = nn.Linear(8, 5)
        self.unused = nn.Linear(2, 2)
        self.unused_norm = nn.BatchNorm2d(2, affine=False)

    def forward(self, x):
        features = self.relu(self.bn(self.conv(x)))
        return {"logits": self.fc(features.mean((2, 3))), "rest": (self.relu(features - 1),)}


class Conditions(unittest.TestCase):
    def test_a_parameter_may_be_a_number(self):
        network = nn.Module()
        network.scale = nn.Parameter(torch.tensor(2.0))
        self.assertEqual(list(fill(network, "", lambda name: 1.0)), ["scale"])
        self.assertNotEqual(network.scale.item(), 2.0)


def logits_entropy(outputs, inputs, network):
    return cross_entropy()(outputs["logits"], inputs, network)


def sgd(network):
    return torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)


class Hashes(unittest.TestCase):
    def test_vectors_of_the_published_algorithms(self):
        self.assertEqual(fnv1a64(""), 0xCBF29CE484222325)
        self.assertEqual(fnv1a64("a"), 0xAF63DC4C8601EC8C)
        self.assertEqual([f"{h:016x}" for h in hashes("a", 2).tolist()], ["5f29c2aadd9b8527", "ff84f1bdb6d3884f"])
        self.assertEqual(signed("a", (2,)).tolist(), [-0.25653815269470215, 0.9962445497512817])

    def test_a_later_start_continues_the_sequence(self):
        self.assertEqual(hashes("x", 5).tolist()[3:], hashes("x", 2, start=3).tolist())


class Format(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "golden"

    def export(self, optimizer=sgd, network=None, loss=logits_entropy, **options):
        inputs = {"image": image((4, 3, 9, 9)), "label": labels(4, 5)}
        golden = export(self.path, network or Branches(), loss, optimizer, inputs, name="branches", **options)
        self.assertEqual(json.loads(self.path.with_name("golden.json").read_text()), json.loads(json.dumps(golden)))
        return golden, load_file(self.path.with_name("golden.safetensors"))

    def test_buffers_that_no_step_changes_are_left_out(self):
        network = Branches()
        network.register_buffer("filter", torch.ones(3), persistent=False)
        network.register_buffer("table", torch.ones(3))
        network.register_buffer("total", torch.zeros(()))
        network.register_forward_hook(lambda module, *_: (module.total.add_(module.table.sum()), None)[1])
        golden, _ = self.export(network=network)
        kept = {name.split("/", 1)[1] for name in golden["tensors"] if name.startswith("buffer1/")}
        self.assertEqual(kept, {"bn.running_mean", "bn.running_var", "total"})

    def test_outputs_in_call_order_with_keys_of_results(self):
        golden, data = self.export()
        names = ["conv#0", "bn#0", "relu#0", "fc#0", "relu#1", "@root#0.logits", "@root#0.rest.0"]
        self.assertEqual(golden["output_order"], [f"out/{name}" for name in names])
        self.assertLess(golden["tensors"]["out/bn#0"]["mean"], golden["tensors"]["out/relu#0"]["mean"])
        self.assertEqual(data["out/@root#0.logits"].shape, (4, 5))
        self.assertEqual(data["out/@root#0.rest.0"].shape, (4, 8, 7, 7))

    def test_weights_of_attentions_are_left_out_and_softmax_of_other_maps_is_not(self):
        class Network(nn.Module):
            """Softmax of products, and of a map along its rows; a result without numbers."""

            def __init__(self):
                super().__init__()
                self.conv, self.weights, self.along, self.fc = nn.Conv2d(3, 4, 1), nn.Softmax(-1), nn.Softmax(-1), nn.Linear(4, 5)
                self.part, self.scaled = nn.Flatten(0, 0), nn.Hardtanh()

            def forward(self, x):
                x = self.conv(x)
                x = self.weights(self.scaled(x @ x.transpose(2, 3) * 0.5)) @ x
                x = self.weights(torch.einsum("bhid,bhjd->bhij", x, x)) @ x
                self.part(x[:, :0])
                return {"logits": self.fc((self.along(x) * x).sum((2, 3)))}

        network = Network()
        for shown in (["conv#0", "along#0", "fc#0", "@root#0.logits"], ["conv#0", "weights#1", "along#0", "fc#0", "@root#0.logits"]):
            network.shown = frozenset(shown)
            golden, _ = self.export(network=network)
            self.assertEqual([name.removeprefix("out/") for name in golden["output_order"]], shown)

    def test_what_a_module_passes_on_beside_its_result_is_left_out_unless_the_recipe_has_it(self):
        class Biased(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(9, 9)

            def forward(self, x, bias):
                return self.fc(x) + bias, bias

        class Network(nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.layer, self.fc = nn.Parameter(torch.zeros(1, 9, 9)), Biased(), nn.Linear(9, 5)

            def forward(self, x):
                return {"logits": self.fc(self.layer(x.mean(1), self.table)[0].mean(1))}

        network = Network()
        for more in ([], ["layer#0.1"]):
            network.shown = frozenset(["layer.fc#0", "layer#0.0", *more, "fc#0", "@root#0.logits"])
            golden, _ = self.export(network=network)
            self.assertEqual({name.removeprefix("out/") for name in golden["output_order"]}, network.shown)

    def test_parameters_without_gradient_are_listed_and_not_recorded(self):
        golden, data = self.export()
        self.assertEqual(golden["parameters_without_gradient"], ["unused.bias", "unused.weight"])
        self.assertFalse([key for key in data if "unused" in key and not key.startswith("init_head/")])
        self.assertFalse([key for key in (*golden["tensors"], *golden["init"]) if "unused_norm" in key])

    def test_a_bias_before_a_normalisation_is_degenerate(self):
        golden, _ = self.export()
        flagged = [key for key, entry in golden["tensors"].items() if entry.get("degenerate")]
        self.assertEqual(flagged, ["grad/conv.bias"])
        self.assertEqual(golden["noise_floor"]["grad"]["count"], 5)

    def test_lifted_variant_moves_every_normalisation_bias(self):
        golden, data = self.export(gain=gain_rules([("bn.*", 0.5)]))
        main, lifted = golden["tensors"]["out/bn#0"], golden["variants"]["lifted"]["tensors"]["out/bn#0"]
        self.assertAlmostEqual(lifted["mean"] - main["mean"], 2.0, places=6)
        self.assertIn("variant.lifted/grad/conv.weight", data)
        self.assertFalse([key for key in golden["variants"]["lifted"]["tensors"] if key.startswith("param")])

    def test_samples_follow_the_unprefixed_key(self):
        for name, count in (("out/conv#0", 16), ("out/@root#0.rest.0", 4096)):
            tensor = torch.arange(4097.0, dtype=torch.float64)
            recording = Recording(samples=16)
            recording.add(name, tensor, [tensor.float()])
            expected = sample_positions(name, 4097, count)
            self.assertEqual(recording.data[name].tolist(), expected.tolist())
        recording.add("grad/small", tensor[:64], [tensor[:64].float()])
        self.assertEqual(recording.data["grad/small"].tolist(), list(range(64)))

    def test_statistics_by_hand(self):
        recording = Recording()
        truth, rounded, start = (torch.tensor(v, dtype=torch.float64) for v in ([3.0, -4.0], [3.0, -5.0], [3.0, -2.0]))
        recording.add("param1/p", truth, [truth, rounded], start=start)
        entry = recording.entries["param1/p"]
        expected = {"mean": -0.5, "std": 3.5, "absmax": 4.0, "l2": 5.0, "f32_rel": 0.2, "f32_max": 0.25}
        expected |= {"delta_l2": 2.0, "delta_absmax": 2.0, "delta_mean": -1.0, "delta_f32_rel": 0.5}
        self.assertEqual({key: entry[key] for key in expected}, expected)

    def test_update_of_sgd_by_hand(self):
        def decayed(network):
            return torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)

        golden, data = self.export(decayed)
        start = data["init_head/conv.bias"].astype(np.float64)
        velocity = data["grad/conv.bias"] + 0.01 * start
        np.testing.assert_allclose(data["momentum1/conv.bias"], velocity, rtol=1e-12)
        np.testing.assert_allclose(data["param1/conv.bias"], start - 0.1 * velocity, rtol=1e-12)
        self.assertEqual(golden["optimizer"]["groups"][0]["weight_decay"], 0.01)

    def test_update_of_adam_by_hand(self):
        golden, data = self.export(lambda network: torch.optim.Adam(network.parameters(), lr=1e-3))
        start, gradient = data["init_head/bn.weight"].astype(np.float64), data["grad/bn.weight"]
        expected = start - 1e-3 * gradient / (np.abs(gradient) + 1e-8)
        np.testing.assert_allclose(data["param1/bn.weight"], expected, rtol=1e-12)
        self.assertFalse([key for key in data if key.startswith("momentum1/")])
        self.assertEqual(golden["optimizer"]["betas"], [0.9, 0.999])

    def test_clipping_comes_after_the_recorded_gradient(self):
        golden, data = self.export(clip_grad_norm=0.01)
        clip = golden["losses_f64"][0]["clip_coef"]
        self.assertLess(clip, 1)
        np.testing.assert_allclose(data["momentum1/fc.bias"], clip * data["grad/fc.bias"], rtol=1e-9)

    def test_stored_inputs_are_compact(self):
        inputs = {"image": image((2, 3, 9, 9)), "label": Input(torch.tensor([1, 4])), "mask": Input(torch.tensor([1.0, 0.0]))}
        export(self.path, Branches(), logits_entropy, sgd, inputs, name="branches")
        data = load_file(self.path.with_name("golden.safetensors"))
        self.assertEqual((data["input/label"].dtype, data["input/mask"].dtype), (np.int32, np.int8))

    def test_the_same_conditions_give_the_same_golden(self):
        self.export()
        difference = compare(self.path, self.path)
        self.assertEqual((difference.unequal, difference.samples[0], difference.statistics[0]), ([], 0.0, 0.0))

    def test_compare_sees_a_changed_momentum(self):
        self.export()
        other = self.path.with_name("other")
        inputs = {"image": image((4, 3, 9, 9)), "label": labels(4, 5)}

        def changed(network):
            return torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.8)

        export(other, Branches(), logits_entropy, changed, inputs, name="branches")
        difference = compare(other, self.path)
        self.assertEqual(difference.unequal, ["optimizer"])
        self.assertGreater(difference.samples[0], 1e-4)

    def test_settings_have_the_names_of_recipes(self):
        golden, _ = self.export(lambda network: torch.optim.AdamW(network.parameters(), lr=1e-3, betas=(0.8, 0.99)))
        self.assertEqual(golden["optimizer"]["settings"], {"beta1": 0.8, "beta2": 0.99, "eps": 1e-8})
        self.assertTrue(any(key.startswith("exp_avg_sq1/") for key in golden["tensors"]))

    def test_settings_of_rmsprop_from_the_command_line(self):
        arguments = "--model torchvision:squeezenet1_1 --batch 2 --classes 5 --image-size 32 --gain *.weight=0.7 --lr 0.01"
        rmsprop = "--optimizer rmsprop --alpha 0.9 --eps 0.0316 --momentum 0.9 --weight-decay 1e-3"
        golden = main([*arguments.split(), *rmsprop.split(), "-o", str(self.path)])
        data = load_file(self.path.with_name("golden.safetensors"))
        expected = {"alpha": 0.9, "eps": 0.0316, "momentum": 0.9, "centered": False, "form": "pytorch"}
        self.assertEqual(golden["optimizer"]["settings"], expected)
        start = data["init_head/features.0.bias"].astype(np.float64)
        gradient = data["grad/features.0.bias"] + 1e-3 * start
        step = gradient / (np.sqrt(0.1 * gradient**2) + 0.0316)
        np.testing.assert_allclose(data["momentum1/features.0.bias"], step, rtol=1e-9)
        np.testing.assert_allclose(data["param1/features.0.bias"], start - 0.01 * step, rtol=1e-9)
        golden = main([*arguments.split(), *rmsprop.replace("rmsprop", "rmsprop_tf").split(), "-o", str(self.path)])
        data = load_file(self.path.with_name("golden.safetensors"))
        self.assertEqual(golden["optimizer"]["settings"]["form"], "tensorflow")
        self.assertEqual(golden["init"]["features.0.bias/square_avg"], {"kind": "const", "value": 1.0})
        step = 0.01 * gradient / np.sqrt(0.9 + 0.1 * gradient**2 + 0.0316)
        np.testing.assert_allclose(data["momentum1/features.0.bias"], step, rtol=1e-9)
        np.testing.assert_allclose(data["param1/features.0.bias"], start - step, rtol=1e-9)

    def test_settings_of_another_optimizer_are_refused(self):
        for settings in ("--optimizer adamw --momentum 0.9", "--optimizer rmsprop --nesterov", "--alpha 0.9", "--eps 1e-3"):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                parse(["--model", "torchvision:alexnet", "--lr", "0.1", "-o", "x", *settings.split()])

    def test_chance_is_switched_off(self):
        network = load("torchvision:efficientnet_b0", 5)
        depths = [module.p for module in network.modules() if isinstance(module, (nn.Dropout, torchvision.ops.StochasticDepth))]
        self.assertEqual((len(depths), set(depths)), (17, {0.0}))

    def test_gradients_of_normalisations_do_not_depend_on_the_order_of_elements(self):
        generator = torch.Generator().manual_seed(0)
        for norm in (nn.BatchNorm2d(4), nn.InstanceNorm2d(4, affine=True)):
            for height, width in ((1, 3), (3, 1), (2, 3)):
                given = torch.randn(5, 4, height, width, generator=generator, dtype=torch.float64)
                gradient = torch.randn(given.permute(0, 3, 2, 1).shape, generator=generator, dtype=torch.float64).permute(0, 3, 2, 1)
                scale = norm.double().weight
                with _Exact(torch.float64):
                    found, plain = (torch.autograd.grad(norm(given), scale, g)[0] for g in (gradient, gradient.contiguous()))
                axes = (0, 2, 3) if isinstance(norm, nn.BatchNorm2d) else (2, 3)
                centred = given - given.mean(axes, keepdim=True)
                normal = centred / (centred.square().mean(axes, keepdim=True) + 1e-5).sqrt()
                torch.testing.assert_close(found, (gradient * normal).sum((0, 2, 3)), rtol=1e-12, atol=1e-12)
                torch.testing.assert_close(found, plain, rtol=1e-12, atol=1e-12)

    def test_the_gradient_of_hardsigmoid_is_exact(self):
        class Gate(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc, self.gate = nn.Linear(3, 5), nn.Hardsigmoid()

            def forward(self, x):
                return {"logits": self.gate(self.fc(x.mean((2, 3))))}

        _, data = self.export(network=Gate())
        logits = data["out/@root#0.logits"]
        targets = np.eye(5)[(hashes("input.label", 4) % np.uint64(5)).astype(np.int64)]
        shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        np.testing.assert_allclose(data["grad/fc.bias"], (shares - targets).sum(0) / 4 / 6, rtol=1e-12)

    def test_unknown_optimizers_are_refused(self):
        for optimizer in (
            lambda network: torch.optim.Adadelta(network.parameters()),
            lambda network: torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, dampening=0.1),
        ):
            with self.assertRaises(ValueError):
                self.export(optimizer)

    def test_a_diverging_run_is_refused(self):
        def infinite(outputs, inputs, network):
            return {"loss": outputs["logits"].sum() * torch.inf}

        with self.assertRaises(ValueError):
            self.export(loss=infinite)
        self.assertFalse(self.path.with_name("golden.json").exists())


if __name__ == "__main__":
    unittest.main()
