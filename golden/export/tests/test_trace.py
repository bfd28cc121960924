"""Traces: what is written down of a network, and what is refused."""

import contextlib
import io
import json
import math
import tempfile
import unittest
import warnings
from pathlib import Path

try:
    import torch
    import torchvision
    from torch import nn
    from torch.nn import functional as F

    from zoo_golden.__main__ import run
    from zoo_golden.networks import OneType, StillFunctions, exact_buffers, still
    from zoo_golden.port import constant, constant_modules, fitted, parse, trace_network, training
    from zoo_golden.trace import TraceError, batch_sizes, trace
except ModuleNotFoundError as missing:
    raise unittest.SkipTest(f"{missing.name} is not installed") from missing


def traced(network: nn.Module) -> dict:
    image = torch.empty(61, 3, 8, 8, device="meta")
    return trace(network.to("meta").train(), {"image": image}, lambda n, i: n(i["image"]), name="net", classes=5)


def weight_normed(num_classes: int) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.Sequential(torch.nn.utils.weight_norm(nn.Conv2d(3, num_classes, 1)))


def two_images(num_classes: int) -> nn.Module:
    class Network(nn.Module):
        def forward(self, x, y):
            return x + y

    return Network()


class Angles(nn.Module):
    """Multiplies by cosines of angles that grow with the position."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rates", 1.0 / 10000.0 ** (torch.arange(0, 4, dtype=torch.int64).to(torch.float32) / 4), persistent=False)

    def forward(self, x):
        rates = self.rates.to(x.device)
        positions = torch.arange(x.shape[1], device=x.device)
        return x * (positions[:, None].float() * rates).cos().to(x.dtype)


def functions(call: dict) -> list[str]:
    """Names of the functions of a call, in order of execution."""
    if "function" in call:
        return [call["function"].rpartition(".")[2]]
    return [name for inner in call["body"] for name in functions(inner)]


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.conv(x))
        y += x
        return self.relu(y)


class Calls(unittest.TestCase):
    def test_modules_and_functions_come_in_order_with_edges(self):
        root = traced(Residual())["root"]
        self.assertEqual(functions(root), ["conv2d", "relu", "add_", "relu"])
        conv, first, add, second = root["body"]
        self.assertEqual([call.get("module") for call in root["body"]], ["conv", "relu", None, "relu"])
        self.assertEqual([first["call"], second["call"]], [0, 1])
        self.assertEqual(conv["body"][0]["args"][1], {"parameter": "conv.weight"})
        self.assertEqual(add["args"], [first["outputs"][""], {"value": 0}])
        self.assertEqual(second["args"], [{"value": add["outputs"][""]["value"]}])
        self.assertRegex(add["at"], r"test_trace\.py:\d+$")

    def test_arguments_of_python_functions_have_their_names_and_defaults(self):
        norm = traced(nn.Sequential(nn.BatchNorm2d(3, momentum=0.3)))["root"]["body"][0]["body"][-1]["kwargs"]
        self.assertEqual((norm["momentum"], norm["eps"], norm["training"]), (0.3, 1e-5, True))
        self.assertEqual(norm["running_mean"], {"buffer": "0.running_mean"})

    def test_a_shared_parameter_has_the_name_of_the_first(self):
        with torch.device("meta"):
            network = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
        network[1].weight = network[0].weight
        parameters = traced(network)["parameters"]
        self.assertEqual(parameters["1.weight"], {"shape": [8, 8], "same_as": "0.weight"})

    def test_rates_of_dropout_are_kept_and_the_golden_has_none(self):
        network = nn.Sequential(nn.Dropout(0.3), torchvision.ops.StochasticDepth(0.2, "row"))
        dropout, depth = (call["body"][0]["kwargs"] for call in traced(network)["root"]["body"])
        self.assertEqual((dropout["p"], depth), (0.3, {"p": 0.2, "mode": "row"}))
        self.assertEqual([module.p for module in still(network)], [0.0, 0.0])

    def test_modules_that_give_constants_alone_are_known(self):
        class Time(nn.Module):
            def forward(self, t):
                return torch.sin(t[:, None] * torch.arange(8.0))

        class Network(nn.Module):
            def __init__(self):
                super().__init__()
                self.time, self.linear = Time(), nn.Linear(8, 8)

            def forward(self, x):
                return x + self.linear(self.time(torch.full(x.shape[:1], 7)))[:, :, None, None].mean(1, keepdim=True)

        self.assertEqual(constant_modules(traced(Network())["root"]), {"time"})

    def test_what_a_function_gives_back_as_it_is_is_another_tensor_in_its_module_alone(self):
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Sequential(nn.Dropout(0.0), nn.ReLU())

            def forward(self, x):
                return self.inner(x) + x

        inner, add = traced(Block())["root"]["body"]
        dropout, relu = inner["body"]
        dropped = dropout["body"][0]["outputs"][""]["value"]
        self.assertEqual((relu["args"], add["args"][1]), ([{"value": dropped}], {"value": 0}))

    def test_functions_that_drop_are_still_in_goldens(self):
        x = torch.ones(2, 3, 4, 8)
        with StillFunctions():
            self.assertTrue(torch.equal(F.dropout(x, 0.5, True), x))
            self.assertTrue(torch.equal(F.dropout2d(x, p=0.5), x))
            self.assertTrue(torch.equal(nn.Dropout(0.9)(x), x))
            self.assertTrue(torch.equal(F.scaled_dot_product_attention(x, x, x, None, 0.9, True), x))
        self.assertFalse(torch.equal(F.dropout(x, 0.5, True), x))

    def test_frozen_parameters_and_calls_without_gradients_are_marked(self):
        class Network(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(8, 8, bias=False).requires_grad_(False)

            def forward(self, x):
                with torch.no_grad():
                    y = x.sigmoid()
                return y + x

        document = traced(Network())
        self.assertTrue(document["parameters"]["head.weight"]["frozen"])
        self.assertEqual([call.get("no_grad", False) for call in document["root"]["body"]], [True, False])

    def test_a_network_may_name_the_type_of_its_numbers(self):
        x = torch.full((2, 3), 1 / 3, dtype=torch.float64)
        narrow = x.float()
        with OneType(torch.float64):
            for same in (
                x.float(),
                x.to(torch.float32),
                x.to("cpu", torch.float32),
                x.to(dtype=torch.float32),
                x.to(narrow),
                x.type_as(narrow),
                x.type(torch.float32),
                x.type("torch.FloatTensor"),
                x.softmax(-1, dtype=torch.float32) * 3 * x,
                x.sum(0, dtype=torch.float32) / 2,
            ):
                self.assertEqual(same.dtype, torch.float64)
                self.assertTrue(torch.allclose(same, x, rtol=1e-15))
            self.assertEqual(x.half().dtype, torch.float16)
            self.assertEqual(narrow.float().dtype, torch.float32)
        with OneType(torch.float32):
            self.assertEqual(narrow.to(torch.float32).dtype, torch.float32)

    def test_tables_of_angles_are_constants_in_f64(self):
        network = Angles()
        exact = exact_buffers(network, Angles)
        rate = 10000.0 ** (-1 / 4)
        self.assertEqual(exact["rates"].dtype, torch.float64)
        self.assertAlmostEqual(exact["rates"][1].item(), rate, delta=1e-16)
        self.assertNotAlmostEqual(network.rates[1].item(), rate, delta=1e-12)
        network.register_buffer("rates", network.rates)
        self.assertEqual(exact_buffers(network, Angles), {})
        with torch.device("meta"):
            without_numbers = Angles()
        x = torch.empty(61, 7, 4, device="meta")
        forward = lambda network, inputs: network(*inputs.values())
        document = trace(without_numbers, {"x": x}, forward, name="a", classes=2, buffers=exact)
        self.assertEqual(functions(document["root"]), ["mul"])
        (table,) = (document["constants"][call["args"][1]["constant"]] for call in document["root"]["body"])
        self.assertEqual((table["shape"], table["dtype"]), ([7, 4], "float32"))
        self.assertAlmostEqual(float(table["values"].split()[-3]), math.cos(6 * rate), delta=1e-15)

    def test_torchvisions_resnet_is_traced_without_moving_it(self):
        network = torchvision.models.resnet18(num_classes=10)
        options = parse(["torchvision:resnet18", "--classes", "10", "--size", "64", "-o", "x"])
        document = trace_network(network, options)
        self.assertEqual(functions(document["root"]).count("conv2d"), 20)
        self.assertEqual(document["parameters"]["bn1.weight"], {"shape": [64], "start": 1.0})
        self.assertEqual(next(network.parameters()).device.type, "cpu")
        self.assertEqual(document["modules"]["layer1.0"]["source"].rpartition(":")[0], "torchvision/models/resnet.py")


class Modes(unittest.TestCase):
    """The call in evaluation mode, and the one with another number of samples."""

    def test_evaluation_is_beside_training(self):
        network = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Dropout(0.5))
        document = traced(network)
        self.assertEqual(document["format"], 2)
        trained, evaluated = (of["root"]["body"] for of in (document, document["evaluation"]))
        self.assertEqual([body[2]["body"][0]["kwargs"]["training"] for body in (trained, evaluated)], [True, False])
        self.assertEqual(functions(document["root"]), ["conv2d", "add_", "batch_norm", "dropout"])
        self.assertEqual(functions(document["evaluation"]["root"]), ["conv2d", "batch_norm", "dropout"])
        self.assertTrue(network.training)

    def test_numbers_that_depend_on_the_batch_are_marked(self):
        def forward(x):
            n, rows = x.shape[0], torch.arange(x.shape[0], device="meta")
            mask = torch.zeros(n, 1, 8, 8)
            return (x.view(n, -1)[:n] / n + (x.view(n * 3, 64) + 61).sum() + rows.sum(), x + mask)

        document = traced_forward(forward)
        view, part, divided, scaled, plus, *_ = document["root"]["body"]
        self.assertEqual(view["args"][1:], [{"batch": "61"}, -1])
        self.assertEqual(part["args"][1], {"batch": ":61"})
        self.assertEqual(divided["args"][1], {"batch": "61"})
        self.assertEqual(scaled["args"][1:], [{"batch": "183"}, 64])
        self.assertEqual(plus["args"][1], 61)
        constants = [call["args"][1] for call in document["root"]["body"] if call["function"].endswith("add") and isinstance(call["args"][1], dict)]
        self.assertIn({"batch": "a constant tensor"}, constants)
        # Equal rows, one for each sample.
        self.assertIn("constant", constants[-1])

    def test_what_depends_on_the_batch_otherwise_is_refused(self):
        for forward in (
            lambda x: torch.stack([x[i] * 2 for i in range(x.shape[0])]),
            lambda x: x if x.shape[0] == 61 else 2 * x,
            lambda x: x.unbind(0)[0],
            lambda x: x.view(61, -1),
        ):
            with self.assertRaisesRegex(TraceError, "number of samples|instead of 61") as caught:
                traced_forward(forward)
            self.assertRegex(str(caught.exception), r"test_trace\.py:\d+")

    def test_a_batch_is_no_other_extent(self):
        sizes = batch_sizes(nn.Linear(122, 67), {0, 213})
        self.assertEqual([next(sizes), next(sizes)], [59, 53])

    def test_a_network_that_fails_says_where(self):
        for forward, reason in (
            (lambda self, x: x.view(7, 11), r"the network: RuntimeError at .*test_trace\.py:"),
            (lambda self, x: x if self.training else x.unknown, r"in evaluation mode: the network: AttributeError at .*test_trace\.py:"),
        ):
            with self.assertRaisesRegex(TraceError, reason):
                traced(type("Network", (nn.Module,), {"forward": forward})())


class Refusals(unittest.TestCase):
    def refused(self, forward, reason: str):
        class Network(nn.Module):
            def forward(self, x):
                return forward(x)

        with self.assertRaisesRegex(TraceError, reason) as caught:
            traced(Network())
        self.assertRegex(str(caught.exception), r"test_trace\.py:\d+")

    def test_a_decision_on_numbers(self):
        self.refused(lambda x: x if (x > 0).any() else -x, "needs the values of a tensor")

    def test_a_number_taken_out(self):
        self.refused(lambda x: x * x.max().item(), "needs the values of a tensor")

    def test_a_view_of_what_was_changed_in_place(self):
        def forward(x):
            y = x * 2
            view = y[:, 0]
            y.add_(1)
            return view

        with self.assertRaisesRegex(TraceError, r"changed in place by torch.Tensor.add_ at \S*test_trace.py:\d+, through another"):
            traced_forward(forward)

    def test_zeros_written_through_a_part_are_written_to_the_whole(self):
        def forward(x):
            y = x * 2
            y[:, 1:].zero_()
            return y

        *_, part, written = traced_forward(forward)["root"]["body"]
        self.assertEqual(part["function"], "torch.Tensor.__getitem__")
        self.assertEqual(written["function"], "torch.Tensor.__setitem__")
        self.assertEqual(written["args"][1:], [part["args"][1], 0.0])
        self.assertEqual(written["outputs"][""]["shape"], [61, 3, 8, 8])

    def test_what_is_changed_through_a_part_is_written_to_the_whole(self):
        def add(x):
            y = x * 2
            y[:, 1:] += 1  # the sum of the part, and that in the place of the part
            return y

        def multiply(x):
            y = x * 2
            y[:, 1:][:, :1].mul_(3)
            return y

        def copy(x):
            y = torch.empty_like(x)
            y[:, 1:].copy_(x[:, 1:])
            y[:, :1].fill_(2)
            return y

        def rectify(x):
            y = x * 2
            nn.functional.relu(y[:, 1:], inplace=True)
            return y

        set_item, get_item = "torch.Tensor.__setitem__", "torch.Tensor.__getitem__"
        for forward, expected in (
            (add, [get_item, "torch.Tensor.add_", set_item]),
            (multiply, [get_item, get_item, "torch.Tensor.mul_", set_item, set_item]),
            (copy, [get_item, get_item, set_item, get_item, set_item]),
            (rectify, [get_item, "torch.nn.functional.relu", set_item]),
        ):
            _, *calls = traced_forward(forward)["root"]["body"]
            self.assertEqual([call["function"] for call in calls], expected)
            # The whole, as it was before, with the part.
            self.assertEqual(calls[-1]["outputs"][""]["shape"], [61, 3, 8, 8])

    def test_a_constant_of_which_a_part_is_changed_stays_one(self):
        def forward(x):
            mask = torch.zeros(2, 3)
            mask[1:].fill_(1)
            mask[:, :2] += 1
            return x * mask[1, 2] + mask[0, 0] - mask.sum()

        document = traced_forward(forward)
        given = [call["args"][1]["constant"] for call in document["root"]["body"]]
        self.assertEqual([document["constants"][constant]["values"] for constant in given], ["1.0", "1.0", "7.0"])

    def test_a_tensor_from_nowhere(self):
        hidden = torch.ones(3, 1, 1, device="meta")
        self.refused(lambda x: x + hidden, "not an input, parameter or buffer")


def traced_forward(forward) -> dict:
    class Network(nn.Module):
        def forward(self, x):
            return forward(x)

    return traced(Network())


class Command(unittest.TestCase):
    def test_port_writes_a_trace_and_says_where_zoo_is_missing(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()) as said:
            words = ["port", "torchvision:squeezenet1_1", "--classes", "5", "--size", "64", "-o", folder]
            self.assertEqual(run([*words, "--trace-only"]), 0)
            document = json.loads((Path(folder) / "squeezenet1_1.trace.json").read_text())
            self.assertEqual(document["training"]["optimizer"], {"sgd": {"momentum": 0.9, "weight_decay": 0}})
            self.assertEqual(run([*words, "--zoo", "no-such-command"]), 3)
            self.assertIn("no-such-command is not there", said.getvalue())

    def test_the_recipe_gets_every_setting_of_the_optimizer_that_makes_the_golden(self):
        moments = {"beta1": 0.9, "beta2": 0.999}
        for given, expected in (
            ("sgd", {"sgd": {"momentum": 0.9, "weight_decay": 0}}),
            ("sgd --momentum 0 --weight-decay 0.1", {"sgd": {"momentum": 0, "weight_decay": 0.1}}),
            ("rmsprop", {"rmsprop": {"alpha": 0.99, "eps": 1e-8, "momentum": 0.9, "centered": False, "form": "pytorch", "weight_decay": 0}}),
            (
                "rmsprop_tf --alpha 0",
                {"rmsprop": {"alpha": 0, "eps": 1e-10, "momentum": 0.9, "centered": False, "form": "tensorflow", "weight_decay": 0}},
            ),
            ("adam --beta2 0.5", {"adam": {"beta1": 0.9, "beta2": 0.5, "eps": 1e-8, "weight_decay": 0}}),
            ("adamw --eps 1e-6", {"adamw": {**moments, "eps": 1e-6, "weight_decay": 0.01}}),
            ("adagrad", {"adagrad": {"lr_decay": 0, "initial_accumulator_value": 0, "eps": 1e-10, "weight_decay": 0}}),
            ("lamb", {"lamb": {**moments, "eps": 1e-6, "weight_decay": 0.01}}),
        ):
            if given.startswith(("rmsprop_tf", "lamb")):
                try:
                    import timm  # noqa: F401
                except ModuleNotFoundError:
                    continue
            options = parse(["torchvision:resnet18", "-o", "x", "--optimizer", *given.split()])
            self.assertEqual(training(options, nn.Linear(2, 2), "step.json")["optimizer"], expected)

    def test_parameters_without_decay_are_named(self):
        class Network(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.norm, self.rms = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.RMSNorm(4)
                self.attention, self.fc = nn.MultiheadAttention(4, 2), nn.Linear(4, 2)
                self.relative_position_bias_table = nn.Parameter(torch.zeros(9, 2))

        norms, attention = {"norm.weight", "norm.bias", "rms.weight"}, {"attention.in_proj_bias", "attention.out_proj.bias"}
        for words, expected in (
            ("bn", norms),
            ("bias", {"conv.bias", "norm.bias", "fc.bias"} | attention),
            ("dense", {"fc.weight", "fc.bias", "attention.out_proj.weight", "attention.out_proj.bias"}),
            ("positions", {"relative_position_bias_table"}),
            ("bn,positions", norms | {"relative_position_bias_table"}),
        ):
            options = parse(["x:y", "-o", "x", "--weight-decay", "0.1", "--no-decay", words])
            self.assertEqual(set(training(options, Network(), "step.json")["undecayed"]), expected, words)
        self.assertEqual(training(parse(["x:y", "-o", "x", "--no-decay", "bn"]), Network(), "step.json")["undecayed"], [])

    def test_what_recipes_do_not_get_is_refused(self):
        for given, reason in (
            (["--l2-in-loss", "1e-4"], "--weight-decay is"),
            (["--optimizer", "adam", "--momentum", "0.9"], "--momentum is for"),
            (["--optimizer", "adam", "--eps", "0"], "above 0"),
        ):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as said:
                parse(["torchvision:resnet18", "-o", "x", *given])
            self.assertIn(reason, said.getvalue())

    def test_what_cannot_be_traced_ends_with_a_reason(self):
        for network, reason in (
            ("NoSuch", "the factory fails"),
            ("two_images", "needs `y` too: `--input y="),
        ):
            with contextlib.redirect_stderr(io.StringIO()) as said, tempfile.TemporaryDirectory() as folder:
                words = ["port", f"{__name__}:{network}", "--classes", "5", "--size", "8", "-o", folder]
                self.assertEqual(run([*words, "--trace-only"]), 2)
            self.assertRegex(said.getvalue(), f"^error: .*{reason}")

    def test_a_weight_that_a_hook_computes_is_traced(self):
        with contextlib.redirect_stderr(io.StringIO()), tempfile.TemporaryDirectory() as folder:
            words = ["port", f"{__name__}:weight_normed", "--classes", "5", "--size", "8", "-o", folder, "--trace-only"]
            self.assertEqual(run(words), 0)
            document = json.loads(next(Path(folder).glob("*.json")).read_text())
        self.assertIn("_weight_norm", " ".join(functions(document["root"])))

    def test_a_loss_fits_what_the_network_gives_or_there_is_a_reason(self):
        def fit(shapes: dict[str, list[int]], *words: str):
            made = [{"function": "f", "outputs": {"": {"value": n, "shape": shape, "dtype": "float32"}}} for n, shape in enumerate(shapes.values())]
            document = {
                "inputs": {"image": {"shape": [61, 3, 8, 8], "dtype": "float32"}},
                "batch": 61,
                "root": {"body": made},
                "outputs": {key: {"value": n} for n, key in enumerate(shapes)},
            }
            return fitted(document, parse(["x:y", "-o", "x", "--classes", "5", *words]))

        image = [61, 3, 8, 8]
        for shapes, words, kinds, target in (
            ({"": [61, 5]}, (), ["cross_entropy"], "label"),
            ({"logits": [61, 9, 5], "hidden": [61, 9, 7]}, (), ["cross_entropy"], "label"),
            ({"out": [61, 5, 8, 8]}, (), ["cross_entropy"], "label"),
            ({"out": [61, 5, 8, 8], "aux": [61, 5, 8, 8], "boxes": [61, 4], "scale": [61]}, (), ["cross_entropy", "cross_entropy", "mse", "mse"], "label"),
            ({"logits": [61, 7], "hidden": [61, 9, 7]}, (), ["mse", "mse"], "logits_target"),
            ({"": [61, 192]}, (), ["mse"], "target"),
            ({"": [9, 61, 5]}, (), ["cross_entropy"], "label"),
            ({"": [61]}, ("--loss", "bce"), ["bce"], "target"),
            ({"": image}, ("--loss", "mae", "--target", "image"), ["mae"], "image"),
            ({"0": [61, 5], "1": [61, 4]}, ("--loss", "0=nll", "--loss", "1=mse"), ["nll", "mse"], "label"),
            ({"0": [61, 4], "1": [61, 4], "2": [61, 4]}, ("--loss", "triplet"), ["triplet"], None),
        ):
            terms = fit(shapes, *words)
            self.assertEqual([term.kind for term in terms], kinds)
            self.assertEqual(terms[0].target, target)
            self.assertEqual(len({term.name for term in terms}), len(terms))
        for shapes, words, reason in (
            ({"": [61, 192]}, ("--loss", "cross_entropy"), r"\[192\] for each sample, and the loss wants scores of 5"),
            ({"": [61, 8, 8, 5]}, ("--loss", "nll"), "wants scores of 5"),
            ({"0": [61, 5], "1": [61, 4]}, ("--loss", "mse"), "`--loss KEY=KIND` says"),
            ({"0": [61, 5], "1": [61, 5]}, ("--loss", "0=nll", "--loss", "1=nll"), "has one term `nll`"),
            ({"0": [61, 5]}, ("--loss", "0=mse", "--loss", "0=mse"), "of each output"),
            ({"": [61, 5]}, ("--loss", "boxes=mse"), "`--loss KEY=KIND` says"),
            ({"": [61, 5]}, ("--loss", "triplet"), "three tensors"),
            ({"": []}, (), "a loss inside a network"),
            ({"": [61, 5]}, ("--loss", "mse", "--target", "image"), "`image` is"),
        ):
            self.assertRegex(fit(shapes, *words), reason)

    def test_constants_are_found(self):
        self.assertEqual(constant(torch.full((3, 2), 0.5)), 0.5)
        self.assertIsNone(constant(torch.tensor([1.0, 2.0, 1.0])))


if __name__ == "__main__":
    unittest.main()
