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

Under torch.distributed, every rank records what it has (a DTensor's local part) into a folder of its own, `rank0` and so on. The mesh
tells which part that is, by the names of ranks.NAMES:

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))  # or {"data": (place, 2), "tensor": (place, 2)}
    with Capture("recorded", network, optimizer, mesh=mesh, micro_batches=4) as capture:
        ...                                      # four forward and backward passes, or a schedule of torch.distributed.pipelining
        capture.loss(loss)                       # of the whole step, on the ranks that have it
        capture.gradients()                      # when all ranks have summed them, before clipping
        clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()

    $ zoo judge llama recorded --parallel data=2,tensor=2,micro_batch=1

A stage of a pipeline is a module that has its own part of the whole network, with the whole network's names. A PipelineStage of
torch.distributed needs its input_args and output_args, or it makes a forward pass of its own to learn their shapes.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file
from torch import nn

from .exporter import StateBuffers, _tensors
from .ranks import Ranks, local
from .recording import describe, described, of_step

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class Capture:
    """A context manager around one step; the folder is written when it ends, unless by an exception.

    network: the module that the step calls. Names that wrappers such as DistributedDataParallel add are recognised.
    optimizer: None if the step ends with the gradients.
    step: the number of the step, from 0, if several are recorded.
    loss_scale: the factor on the loss before `backward` (`scaler.get_scale()`), and so on the recorded gradients.
    mesh: the places of this rank under torch.distributed, with the names of ranks.NAMES.
    micro_batches: the number of forward passes, one after the other, whose gradients the step accumulates.
    """

    def __init__(
        self,
        folder: str | Path,
        network: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        step: int | None = None,
        loss_scale: float = 1.0,
        mesh: "DeviceMesh | Mapping[str, tuple[int, int]] | None" = None,
        micro_batches: int = 1,
    ):
        self.ranks = Ranks.here(mesh, micro_batches)
        self.folder, self.network, self.optimizer, self.loss_scale = of_step(folder, step), network, optimizer, loss_scale
        if self.ranks.world > 1:
            self.folder /= f"rank{self.ranks.rank}"
        self.tensors: dict[str, torch.Tensor] = {}
        self.placed: dict[str, dict[str, int | str]] = {}
        self.buffers = StateBuffers(network)
        self._hooks: list = []
        self._calls: Counter[str] = Counter()
        self._passes: Counter[str] = Counter()
        self._outermost = ""
        self._reduced = False

    def __enter__(self) -> "Capture":  # noqa: PYI034 - Self needs Python 3.11
        self._state("start", "start")
        for name, module in self.network.named_modules():
            if not isinstance(module, nn.Identity):
                self._hooks.append(module.register_forward_pre_hook(self._called(name or "@root")))
                self._hooks.append(module.register_forward_hook(self._forward(name or "@root"), with_kwargs=True))
        if self.ranks.world > 1:
            if self.optimizer is not None:
                self._hooks.append(self.optimizer.register_step_pre_hook(self._before_update))
            return self
        for name, parameter in self.network.named_parameters():
            if parameter.requires_grad:
                self._hooks.append(parameter.register_post_accumulate_grad_hook(self._gradient(name)))
        return self

    def __exit__(self, kind, *_) -> None:
        for hook in self._hooks:
            hook.remove()
        if kind is not None:
            return
        # A rank with several stages of a pipeline calls them, and not what holds them.
        if not (self._passes if self.ranks.world > 1 else self._passes["@root"]):
            raise RuntimeError("the network was not called inside the capture: call the module itself, not its forward")
        if missing := [name for name, passes in self._passes.items() if passes != self.ranks.micro_batches]:
            passes = f"{self._passes[missing[0]]} forward passes of {missing[0]}"
            raise RuntimeError(f"{passes} inside a capture of {self.ranks.micro_batches} micro-batches")
        if self.ranks.world > 1 and not self._reduced:
            if self.optimizer is not None:
                raise RuntimeError("no step of the optimizer inside the capture: call capture.gradients() when they are summed")
            self.gradients()
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

    def gradients(self) -> None:
        """Records the gradients as they are now. Under torch.distributed, a hook would see them before they are summed over ranks:
        call this when they are, and before they are clipped or unscaled; otherwise those with which the optimizer's step begins are
        recorded."""
        self._reduced = True
        for name, parameter in self.network.named_parameters():
            if parameter.grad is not None:
                self._keep(f"grad/{name}", parameter.grad)

    def _before_update(self, *_) -> None:
        if not self._reduced:
            if self.loss_scale != 1:
                raise RuntimeError("with a loss scale, call capture.gradients() before the gradients are unscaled")
            self.gradients()

    def _called(self, name: str):
        def hook(*_):
            if not _repeats():
                self._outermost = self._outermost or name

        return hook

    def _forward(self, name: str):
        def hook(module, arguments, keywords, result):
            if _repeats():
                return
            micro = self.ranks.micro_batch(self._passes[self._outermost])
            call = f"{name}#{self._calls[micro + name]}"
            self._calls[micro + name] += 1
            if name == self._outermost:
                self._passes[name] += 1
                self._outermost = ""
            if name == "@root":
                if self._passes[name] > self.ranks.micro_batches:
                    passes = "a second forward pass" if self.ranks.micro_batches == 1 else "another forward pass"
                    hint = "; without input_args and output_args, PipelineStage makes one to learn shapes" if self.ranks.world > 1 else ""
                    raise RuntimeError(f"{passes} inside the capture, which records only one step{hint}")
                for place, argument in enumerate((*arguments, *keywords.values()) if self.ranks.first else ()):
                    if isinstance(argument, torch.Tensor):
                        self._keep(f"{micro}in/{call}.{place}", argument, of_samples=True)
            for suffix, tensor in _tensors(result) if self.ranks.last or name != "@root" else ():
                self._keep(f"{micro}out/{call}{suffix}", tensor, of_samples=True)

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
        state = getattr(self.optimizer, "optim", self.optimizer).state  # ZeroRedundancyOptimizer has another one inside
        for name, parameter in self.network.named_parameters():
            for slot, kept in state.get(parameter, {}).items():
                if slot != "step" and isinstance(kept, torch.Tensor):
                    self._keep(f"{'momentum' if slot == 'momentum_buffer' else slot}1/{name}", kept)

    def _keep(self, key: str, tensor: torch.Tensor, *, of_samples: bool = False) -> None:
        """A copy of the local part on the host, before anything works on it in place, in its own element type."""
        tensor = tensor.detach()
        if (placed := self.ranks.placed(tensor, of_samples=of_samples)) is not None:
            self.placed[key] = placed
        self.tensors[key] = local(tensor).to("cpu", copy=True).contiguous()

    def _write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        save_file(self.tensors, self.folder / "step.safetensors", metadata={"format": "pt"})
        device = str(next((p.device for p in self.network.parameters()), "cpu"))
        tensors = {key: described(tensor.shape, _statistics(tensor)) for key, tensor in self.tensors.items()}
        for key, placed in self.placed.items():
            tensors[key]["placed"] = placed
        describe(self.folder, {"torch": torch.__version__}, device, self.loss_scale, tensors, self.ranks.described())


def _repeats() -> bool:
    """Whether the backward pass makes a call again, because its results were not kept."""
    return torch._C._current_graph_task_id() != -1


def _statistics(tensor: torch.Tensor) -> dict[str, float]:
    exact = tensor.double()
    found = {"max": exact.max(), "min": exact.min(), "mean": exact.mean(), "norm": exact.norm()} if exact.numel() else {}
    return {key: value.item() for key, value in found.items()}
