"""Records a training step of a MindSpore network for `zoo judge`, in PyNative mode, on any device. Needs no PyTorch.

    from zoo_golden.capture_mindspore import Capture

    step = mindspore.value_and_grad(forward, None, optimizer.parameters)
    with Capture("recorded", network, optimizer) as capture:
        loss, gradients = step(image, label)
        capture.loss(loss)
        capture.gradients(gradients)
        optimizer(gradients)

    $ zoo judge resnet18 recorded

The recording has the same keys as that of zoo_golden.capture, with MindSpore's names of parameters (gamma, moving_mean), which
`zoo judge` knows.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import mindspore
import numpy as np
from mindspore import nn
from safetensors.numpy import save_file

from .recording import describe, described, of_step

_SLOTS = {
    "moments": "momentum", "accum": "momentum",
    "mean_square": "square_avg", "mean_grad": "grad_avg",
    "moment1": "exp_avg", "moment2": "exp_avg_sq", "adam_m": "exp_avg", "adam_v": "exp_avg_sq",
}  # fmt: skip
"""What optimizers of MindSpore call what they keep of a parameter, and what goldens call it."""

_STATISTICS = ("moving_mean", "moving_variance")


class Capture:
    """A context manager around one step; the folder is written when it ends, unless by an exception.

    optimizer: None if the step ends with the gradients.
    step: the number of the step, from 0, if several are recorded, each in its own `Capture`.
    loss_scale: the factor on the loss, and so on the recorded gradients.
    """

    def __init__(
        self,
        folder: str | Path,
        network: nn.Cell,
        optimizer: nn.Optimizer | None = None,
        *,
        step: int | None = None,
        loss_scale: float = 1.0,
    ):
        self.folder, self.network, self.optimizer, self.loss_scale = of_step(folder, step), network, optimizer, loss_scale
        self.tensors: dict[str, np.ndarray] = {}
        self._hooks: list = []
        self._calls: Counter[str] = Counter()

    def __enter__(self) -> "Capture":  # noqa: PYI034 - Self needs Python 3.11
        if mindspore.get_context("mode") != mindspore.PYNATIVE_MODE:
            raise RuntimeError("hooks of cells run in PyNative mode: mindspore.set_context(mode=mindspore.PYNATIVE_MODE)")
        self._state("start", "start")
        for name, cell in self.network.cells_and_names():
            if not isinstance(cell, nn.Identity):
                self._hooks.append(cell.register_forward_hook(self._forward(name or "@root")))
        return self

    def __exit__(self, kind, *_) -> None:
        for hook in self._hooks:
            hook.remove()
        if kind is not None:
            return
        if not self._calls["@root"]:
            raise RuntimeError("the network was not called inside the capture: call the cell itself, not its construct")
        if self.optimizer is not None:
            self._state("param1", "buffer1")
            for parameter in self.optimizer.get_parameters():
                slot, _, name = parameter.name.partition(".")
                if slot in _SLOTS and name:
                    self._keep(f"{_SLOTS[slot]}1/{name}", parameter)
        self._write()

    def loss(self, loss: mindspore.Tensor, name: str = "loss") -> None:
        """Records a loss: the total, or a part by its name in the recipe."""
        self._keep(f"loss/{name}", loss)

    def gradients(self, gradients: Sequence[mindspore.Tensor], parameters: Sequence[mindspore.Parameter] | None = None) -> None:
        """Records gradients, of those parameters, or of the optimizer's; without an optimizer of all that are trained."""
        if parameters is None:
            parameters = self.network.trainable_params() if self.optimizer is None else self.optimizer.parameters
        if len(gradients) != len(parameters):
            raise ValueError(f"{len(gradients)} gradients of {len(parameters)} parameters")
        for parameter, gradient in zip(parameters, gradients):
            self._keep(f"grad/{parameter.name}", gradient)

    def average(self, parameters: Sequence[mindspore.Parameter]) -> None:
        """Records the moving average of the parameters after the step, with the names of the parameters."""
        for parameter in parameters:
            self._keep(f"ema1/{parameter.name}", parameter)

    def _forward(self, name: str):
        def hook(cell, arguments, result):
            call = f"{name}#{self._calls[name]}"
            self._calls[name] += 1
            if name == "@root":
                if self._calls[name] > 1:
                    raise RuntimeError("a second forward pass inside the capture, which records only one step")
                for place, argument in enumerate(arguments):
                    if isinstance(argument, mindspore.Tensor):
                        self._keep(f"in/{call}.{place}", argument)
            for suffix, tensor in _tensors(result):
                self._keep(f"out/{call}{suffix}", tensor)

        return hook

    def _state(self, parameters: str, statistics: str) -> None:
        for parameter in self.network.get_parameters():
            if parameter.name.endswith(_STATISTICS):
                self._keep(f"{statistics}/{parameter.name}", parameter)
            elif parameters == "start" or parameter.requires_grad:
                self._keep(f"{parameters}/{parameter.name}", parameter)

    def _keep(self, key: str, tensor: mindspore.Tensor) -> None:
        """A copy; NumPy has no bfloat16."""
        exact = tensor.float() if tensor.dtype == mindspore.bfloat16 else tensor
        self.tensors[key] = np.array(exact.asnumpy(), copy=True, order="C")

    def _write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        save_file(self.tensors, self.folder / "step.safetensors")
        tensors = {key: described(array.shape, _statistics(array)) for key, array in self.tensors.items()}
        device = mindspore.get_context("device_target")
        describe(self.folder, {"mindspore": mindspore.__version__}, device, self.loss_scale, tensors)


def _statistics(array: np.ndarray) -> dict[str, float]:
    exact = array.astype(np.float64)
    if not exact.size:
        return {}
    found = {"max": exact.max(), "min": exact.min(), "mean": exact.mean(), "norm": np.linalg.norm(exact)}
    return {key: float(value) for key, value in found.items()}


def _tensors(result: object, suffix: str = "") -> Iterator[tuple[str, mindspore.Tensor]]:
    """Floating-point tensors of a result, with `.index` or `.key` for each level of tuple, list or dict."""
    if isinstance(result, mindspore.Tensor):
        if result.is_floating_point():
            yield suffix, result
    elif isinstance(result, (dict, list, tuple)):
        for key, value in result.items() if isinstance(result, dict) else enumerate(result):
            yield from _tensors(value, f"{suffix}.{key}")
