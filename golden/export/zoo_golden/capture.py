"""Records a training step of a PyTorch network for `zoo judge`: on any device, under autocast, in any code.

    from zoo_golden.capture import Capture

    with Capture("recorded", network, optimizer) as capture:
        loss = criterion(network(image), label)
        capture.loss(loss)
        loss.backward()
        optimizer.step()

    $ zoo judge resnet18 recorded

Several steps are recorded in turn, each with its number; `zoo judge resnet18 recorded` judges them in turn:

    for n in range(3):
        with Capture("recorded", network, optimizer, step=n) as capture:
            ...

Weights and inputs are those that `zoo golden inputs` writes. The recording contains, under the keys of golden/README.md:
parameters and running statistics before the step (`start/`), the arguments of the network (`in/@root#0.N`), the outputs of
modules (`out/MODULE#CALL`), losses, gradients before clipping (`grad/`), and after the step parameters (`param1/`), running
statistics (`buffer1/`) and optimizer state (`momentum1/` and so on).
"""

from collections import Counter
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from .exporter import StateBuffers, _tensors
from .recording import describe, described, of_step


class Capture:
    """A context manager around one step; the folder is written when it ends, unless by an exception.

    network: the module that the step calls. Names that wrappers such as DistributedDataParallel add are recognised.
    optimizer: None if the step ends with the gradients.
    step: the number of the step, from 0, if several are recorded.
    loss_scale: the factor on the loss before `backward` (`scaler.get_scale()`), and so on the recorded gradients.
    """

    def __init__(
        self,
        folder: str | Path,
        network: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        step: int | None = None,
        loss_scale: float = 1.0,
    ):
        self.folder, self.network, self.optimizer, self.loss_scale = of_step(folder, step), network, optimizer, loss_scale
        self.tensors: dict[str, torch.Tensor] = {}
        self.buffers = StateBuffers(network)
        self._hooks: list = []
        self._calls: Counter[str] = Counter()

    def __enter__(self) -> "Capture":  # noqa: PYI034 - Self needs Python 3.11
        self._state("start", "start")
        for name, module in self.network.named_modules():
            if not isinstance(module, nn.Identity):
                self._hooks.append(module.register_forward_hook(self._forward(name or "@root"), with_kwargs=True))
        for name, parameter in self.network.named_parameters():
            if parameter.requires_grad:
                self._hooks.append(parameter.register_post_accumulate_grad_hook(self._gradient(name)))
        return self

    def __exit__(self, kind, *_) -> None:
        for hook in self._hooks:
            hook.remove()
        if kind is not None:
            return
        if not self._calls["@root"]:
            raise RuntimeError("the network was not called inside the capture: call the module itself, not its forward")
        if self.optimizer is not None:
            self._state("param1", "buffer1")
            self._kept()
        self._write()

    def loss(self, loss: torch.Tensor, name: str = "loss") -> None:
        """Records a loss: the total, or a part by its name in the recipe."""
        self._keep(f"loss/{name}", loss)

    def average(self, network: nn.Module) -> None:
        """Records the moving average of the parameters after the step, which another module of the same structure holds, such as
        torch.optim.swa_utils.AveragedModel."""
        for name, parameter in network.named_parameters():
            self._keep(f"ema1/{name}", parameter)

    def _forward(self, name: str):
        def hook(module, arguments, keywords, result):
            call = f"{name}#{self._calls[name]}"
            self._calls[name] += 1
            if name == "@root":
                if self._calls[name] > 1:
                    raise RuntimeError("a second forward pass inside the capture, which records only one step")
                for place, argument in enumerate((*arguments, *keywords.values())):
                    if isinstance(argument, torch.Tensor):
                        self._keep(f"in/{call}.{place}", argument)
            for suffix, tensor in _tensors(result):
                self._keep(f"out/{call}{suffix}", tensor)

        return hook

    def _gradient(self, name: str):
        def hook(parameter):
            self._keep(f"grad/{name}", parameter.grad)

        return hook

    def _state(self, parameters: str, buffers: str) -> None:
        for name, parameter in self.network.named_parameters():
            if parameters == "start" or parameter.grad is not None:
                self._keep(f"{parameters}/{name}", parameter)
        for name, buffer in self.buffers.now():
            self._keep(f"{buffers}/{name}", buffer)

    def _kept(self) -> None:
        """What the optimizer keeps of each parameter, by the golden's names."""
        for name, parameter in self.network.named_parameters():
            for slot, kept in self.optimizer.state.get(parameter, {}).items():
                if slot != "step" and isinstance(kept, torch.Tensor):
                    self._keep(f"{'momentum' if slot == 'momentum_buffer' else slot}1/{name}", kept)

    def _keep(self, key: str, tensor: torch.Tensor) -> None:
        """A copy on the host, before anything works on it in place, in its own element type."""
        self.tensors[key] = tensor.detach().to("cpu", copy=True).contiguous()

    def _write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        save_file(self.tensors, self.folder / "step.safetensors", metadata={"format": "pt"})
        device = str(next((p.device for p in self.network.parameters()), "cpu"))
        tensors = {key: described(tensor.shape, _statistics(tensor)) for key, tensor in self.tensors.items()}
        describe(self.folder, {"torch": torch.__version__}, device, self.loss_scale, tensors)


def _statistics(tensor: torch.Tensor) -> dict[str, float]:
    exact = tensor.double()
    found = {"max": exact.max(), "min": exact.min(), "mean": exact.mean(), "norm": exact.norm()} if exact.numel() else {}
    return {key: value.item() for key, value in found.items()}
