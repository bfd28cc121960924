"""Moved runs: what is moved, and by how much."""

import contextlib
import unittest

try:
    import torch
    from torch import nn
    from torch.nn import functional as F

    from zoo_golden.rounding import LAST_PLACE, Rounding, moves
except ModuleNotFoundError as missing:
    raise unittest.SkipTest(f"{missing.name} is not installed") from missing


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def relative(moved: torch.Tensor, exact: torch.Tensor) -> float:
    return ((moved - exact).norm() / exact.norm()).item()


class Results(unittest.TestCase):
    def test_arithmetic_is_moved_in_its_last_place(self):
        x = drawn(7, 5)
        for function in (lambda: x.exp(), lambda: F.gelu(x), lambda: x + 1, lambda: F.linear(x, x), lambda: x.chunk(2, 1)[0] * x[:, :3]):
            exact = function()
            with Rounding(moves(0, LAST_PLACE)):
                moved = function()
            self.assertTrue(0.3 * LAST_PLACE < relative(moved, exact) < 2 * LAST_PLACE)

    def test_the_order_in_memory_stays(self):
        x = drawn(2, 3, 4, 5).permute(0, 3, 1, 2)
        with Rounding(moves(0, LAST_PLACE)):
            moved = x * 2
        self.assertEqual(moved.stride(), (x * 2).stride())

    def test_what_moves_data_rounds_nothing(self):
        x = drawn(2, 4, 6, 6)
        for function in (
            lambda: torch.cat([x, x]),
            lambda: F.pad(x, (1, 2)),
            lambda: F.max_pool2d(x, 2),
            lambda: F.relu(x),
            lambda: x.permute(0, 2, 3, 1).flatten(1, 2).contiguous(),
            lambda: torch.where(x > 0, x, torch.zeros_like(x)),
            lambda: x.clone().clamp_(min=0),
        ):
            with Rounding(moves(0, LAST_PLACE)):
                moved = function()
            self.assertTrue(torch.equal(moved, function()))

    def test_gradients_are_moved_too(self):
        x = drawn(7, 5).requires_grad_()
        with Rounding(moves(0, LAST_PLACE)):
            result = x * 3
        result.sum().backward()
        assert x.grad is not None
        self.assertTrue(0 < (x.grad - 3).abs().max() <= 3 * 2.5 * LAST_PLACE)


class Steps(unittest.TestCase):
    def test_normalisations_are_what_their_functions_compute(self):
        x, w, b, mean, variance = drawn(3, 4, 5, 6), drawn(4), drawn(4, 1)[:, 0], drawn(4, 2)[:, 0], drawn(4, 3)[:, 0].abs()
        for function, rest in (
            (F.layer_norm, ((5, 6), drawn(5, 6), drawn(6, 5).T, 1e-3)),
            (F.layer_norm, ((6,),)),
            (F.rms_norm, ((6,), drawn(6), 1e-3)),
            (F.group_norm, (2, w, b)),
            (F.instance_norm, (None, None, w, b)),
            (F.instance_norm, (mean, variance, w, b, False)),
            (F.batch_norm, (mean, variance, w, b, False)),
            (F.batch_norm, (mean.clone(), variance.clone(), w, b, True)),
        ):
            with Rounding(lambda values: values):
                steps = function(x, *rest)
            torch.testing.assert_close(steps, function(x, *rest), rtol=1e-12, atol=1e-12)

    def test_running_statistics_change_once(self):
        x, means = drawn(3, 4, 5), [torch.zeros(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)]
        variances = [torch.ones(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)]
        F.batch_norm(x, means[0], variances[0], training=True)
        with Rounding(moves(0, LAST_PLACE)):
            F.batch_norm(x, means[1], variances[1], training=True)
        self.assertTrue(torch.equal(*means) and torch.equal(*variances))

    def test_a_constant_row_has_the_rounding_of_its_mean(self):
        """Its exact result is zero; f32 gives an ulp of the mean over the root of eps."""
        x = torch.full((2, 5), -0.208, dtype=torch.float64)
        with Rounding(moves(0, 2.0**-24)):
            moved = F.layer_norm(x, (5,), eps=1e-4)
        self.assertTrue(1e-7 < moved.abs().max() < 1e-5)

    def test_a_loss_near_zero_has_few_digits_in_its_gradient(self):
        def gradient(scale: float, rounding) -> torch.Tensor:
            logits = (scale * torch.tensor([[2.0, 0, 0.1], [0, 1.9, 0], [1, 2, 3]], dtype=torch.float64)).requires_grad_()
            with rounding:
                loss = nn.functional.cross_entropy(logits, torch.tensor([0, 1, -100]))
            loss.backward()
            assert logits.grad is not None
            return logits.grad

        for scale, least, most in ((1, 1e-17, 1e-15), (10, 1e-9, 1e-6)):
            exact, moved = gradient(scale, contextlib.nullcontext()), gradient(scale, Rounding(lambda p: p * (1 + LAST_PLACE)))
            self.assertTrue(least < relative(moved, exact) < most)
            self.assertEqual(moved[2].abs().max(), 0, "an ignored target")


if __name__ == "__main__":
    unittest.main()
