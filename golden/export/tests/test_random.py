"""The generator of random networks: what it draws, how it judges, and how it makes a failing network smaller."""

import contextlib
import io
import json
import os
import random
import shutil
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path

try:
    from zoo_golden.__main__ import run
    from zoo_golden.random.conditioning import MOVED_RUNS, judge
    from zoo_golden.random.coverage import NOT_DRAWN, documented, drawn
    from zoo_golden.random.draw import Source, arguments, draw_case
    from zoo_golden.random.mutate import of_formula, others, same, settings
    from zoo_golden.random.outcome import Kind, Outcome, Planted, of_refusal
    from zoo_golden.random.program import Unfit, generalised
    from zoo_golden.random.shrink import shrink
    from zoo_golden.random.vocabulary import WORDS
except ModuleNotFoundError as missing:
    raise unittest.SkipTest(f"{missing.name} is not installed") from missing

SCHEMA = json.loads((Path(__file__).parents[3] / "recipes/schema/recipe.json").read_text())
ZOO = shutil.which(os.environ.get("ZOO", "zoo"))


class Vocabulary(unittest.TestCase):
    def test_all_that_the_reference_documents_is_drawn_or_has_a_reason(self):
        words, found = documented(SCHEMA), drawn()
        self.assertEqual(sorted(words - found - set(NOT_DRAWN)), [], "documented, and neither drawn nor with a reason in NOT_DRAWN")
        self.assertEqual(sorted(found & set(NOT_DRAWN)), [], "drawn, and in NOT_DRAWN")
        self.assertEqual(sorted((found | set(NOT_DRAWN)) - words), [], "not documented")

    def test_a_case_is_a_function_of_seed_and_number(self):
        sources = [Source(draw_case(7, number)).text for number in (0, 1, 0)]
        self.assertEqual(sources[0], sources[2])
        self.assertNotEqual(sources[0], sources[1])
        self.assertIn("--no-lifted", arguments(draw_case(7, 0)))

    def test_networks_of_all_kinds_are_drawn(self):
        cases = [draw_case(8, number) for number in range(40)]
        self.assertEqual({case.kind for case in cases}, {"image", "tokens"})
        self.assertTrue(any(case.planted for case in cases) and any(node.body for case in cases for node in case.program.nodes))
        self.assertTrue(all(2 <= len(case.program.nodes) <= 15 for case in cases))


class Texts(unittest.TestCase):
    def test_numbers_that_differ_become_arguments(self):
        lines, numbers = generalised([["self.a = nn.Conv2d(3, 8, 3)", "y = x * 0.5"], ["self.a = nn.Conv2d(8, 8, 5)", "y = x * 1e-3"]])
        self.assertEqual(lines, ["self.a = nn.Conv2d(n[0], 8, n[1])", "y = x * n[2]"])
        self.assertEqual(numbers, [["3", "3", "0.5"], ["8", "5", "1e-3"]])
        with self.assertRaises(Unfit):
            generalised([["nn.ReLU()"], ["nn.GELU()"]])


def refusal(line: int, what: str) -> str:
    return f"error: x.json: cannot import `a.b`: {what}\n --> /tmp/net.py:{line}\n  = `torch.Tensor.div`: a hint"


class Outcomes(unittest.TestCase):
    def test_a_refusal_says_where_and_gives_the_true_reason(self):
        planted = Planted("batch", range(7, 9))
        self.assertIs(of_refusal(refusal(7, "it divides by the batch"), planted).kind, Kind.REFUSED)
        self.assertIs(of_refusal(refusal(7, "no such thing"), planted).kind, Kind.UNCLEAR)
        self.assertIs(of_refusal(refusal(3, "another construct"), planted).kind, Kind.REFUSED)
        self.assertIs(of_refusal("error: cannot import it", None).kind, Kind.UNCLEAR)


class FailsWith:
    """A pipeline in which networks with a word fail."""

    def __init__(self, word: str):
        self.word, self.tries = word, 0

    def run(self, case, everything):
        self.tries += 1
        fails = any(node.word == self.word for node in case.program.walk())
        return Outcome(Kind.WRONG if fails else Kind.PASS, "check f64")


class Shrinking(unittest.TestCase):
    def test_a_failing_network_is_reduced_to_what_fails(self):
        number = next(
            n for n in range(100) if sum(node.word == "activation" for node in draw_case(9, n).program.walk()) and len(draw_case(9, n).program.nodes) > 6
        )
        case = draw_case(9, number)
        smaller, outcome = shrink(FailsWith("activation"), replace(case, program=case.program.copy()), Outcome(Kind.WRONG, "check f64"))
        self.assertIs(outcome.kind, Kind.WRONG)
        self.assertLessEqual(len(smaller.program.walk()), 3)
        self.assertLess(len(Source(smaller).text), len(Source(case).text))


class Changes(unittest.TestCase):
    def test_settings_given_and_by_default_are_changed(self):
        recipe = {
            "model": {
                "body": [{"conv": {"name": "c", "out": 4, "kernel": 3}}, "leaky_relu", {"map": "0.5 * x + sin(x)"}],
                "blocks": {"b": {"body": [{"bn": {}}]}},
            },
            "loss": {"softmax_cross_entropy": {}},
            "optimizer": {"sgd": {"momentum": 0.9}},
        }
        changes = list(settings(recipe, SCHEMA))
        for expected in (
            ("model.body[0].conv.dilation", "2"),
            ("model.body[0].conv.bias", "false"),
            ("model.body[1]", "{leaky_relu: {slope: 0.005}}"),
            ("model.body[2].map", '"0.5 * x + cos(x)"'),
            ("model.blocks.b.body[0].bn.eps", "0.0001"),
            ("optimizer.sgd.momentum", "0.45"),
            ("optimizer.sgd.nesterov", "true"),
            ("gradients.clip", "[norm: 1e-3]"),
        ):
            self.assertIn(expected, changes)
        self.assertFalse([path for path, _ in changes if path.endswith((".name", ".init"))])

    def test_a_change_without_effect_differs_by_rounding(self):
        def step(loss: float, gradient: float, moved: float) -> dict:
            facts = {"grad/w": gradient, "param1/w": 1.0 + moved, "out/a#0": loss}
            return {
                "losses_f64": [{"loss": loss}],
                "tensors": {key: dict.fromkeys(("l2", "absmax", "mean", "std"), value) for key, value in facts.items()},
            }

        own = step(2.0, 0.3, 0.0)
        self.assertTrue(same(own, step(2.0 + 1e-15, 0.3 + 1e-16, 1e-9), "model.body[0].map"))
        self.assertFalse(same(own, step(2.0, 0.3, 1e-9), "optimizer.sgd.momentum"))
        self.assertFalse(same(own, step(2.0, 0.3 + 1e-9, 0.0), "model.body[0].map"))
        self.assertFalse(same(own, step(2.0 + 1e-9, 0.3, 0.0), "model.body[0].map"))

    def test_other_values(self):
        self.assertEqual((others(True), others(2), others(1)), (["false"], ["3", "1"], ["2"]))
        self.assertEqual((others("nearest"), others([1, 2])), (["bilinear"], ["[2, 1]", "[2, 2]"]))
        self.assertIn('"1.0 * x^2"', of_formula("0.5 * x^2"))


@unittest.skipUnless(ZOO, "the command zoo is not there")
class Command(unittest.TestCase):
    def test_two_networks_go_through_everything(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
            run(["random", "--seed", "1", "--count", "2", "--zoo", str(ZOO), "-o", folder])
            rows = [json.loads(line) for line in (Path(folder) / "seed-1.jsonl").read_text().splitlines()]
            self.assertEqual([row["number"] for row in rows], [0, 1])
            self.assertRegex(said.getvalue(), r"pass +\d")


class Conditioning(unittest.TestCase):
    def judged(self, error: float, moved: float) -> Kind:
        golden = {"tensors": {"buffer3/bn.running_mean": {"l2": 0.1, "f32_rel": 0.01, "f64_rel": moved}}}
        failed = [{"stage": "trajectory", "worst": {"name": "bn.running_mean", "error": error}}]
        return judge(failed, golden)[0]

    def test_an_error_is_explained_by_movements_of_its_size_alone(self):
        self.assertIs(self.judged(9.1e-8, 1e-8), Kind.ILL)
        self.assertIs(self.judged(1.1e-7, 1e-8), Kind.WRONG)
        self.assertIs(self.judged(1e-8, 0.0), Kind.WRONG)

    def test_right_steps_are_excused_and_faults_are_not(self):
        """Movements with the heaviest tails (1 / uniform), and steps that fail the check: more than ten times the largest of three."""
        chance = random.Random(5)
        right = faults = excused = accepted = 0
        for _ in range(20000):
            moved = [1e-9 / (1 - chance.random()) for _ in range(MOVED_RUNS)]
            step = 1e-9 / (1 - chance.random())
            if step > 10 * max(moved[:3]):
                right += 1
                excused += self.judged(step, max(moved)) is Kind.ILL
            if 1e-3 > 10 * max(moved[:3]):
                faults += 1
                accepted += self.judged(1e-3, max(moved)) is Kind.ILL
        self.assertGreater(right, 300)
        self.assertGreater(excused, 0.8 * right)
        self.assertLess(accepted, 0.002 * faults)


class Words(unittest.TestCase):
    def test_planted_words_have_a_reason(self):
        self.assertGreaterEqual(sum(entry.refused is not None for entry in WORDS.values()), 8)


if __name__ == "__main__":
    unittest.main()
