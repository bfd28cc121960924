"""Profiles training steps of a PyTorch network for `zoo profile --measured`: on any device, in any code.

    from zoo_golden.profile import Profile

    with Profile("profiled", network) as profile:
        for image, label in batches:
            loss = criterion(network(image), label)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            profile.step()

    $ zoo profile resnet18 --measured profiled

The profile has ranges with the names that programs of `zoo emit` give them: `forward/NAME` for each call of a module, `loss` from
the end of the network to the start of `backward`, `clip` from there to the optimizer. The optimizer's own range is PyTorch's.
"""

import importlib
from pathlib import Path

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.profiler import record_function


class Profile:
    """A context manager around several steps; `step` ends each of them.

    folder: None marks the ranges only, for a profiler that is open already.
    network: the module that the steps call. Names that wrappers such as DistributedDataParallel add are recognised.
    device: the device of the network by default.
    skip: steps that are not recorded, because they allocate memory and choose kernels.
    steps: steps that are recorded.
    """

    def __init__(self, folder: str | Path | None, network: nn.Module, device: str | None = None, *, skip: int = 2, steps: int = 3):
        parameter = next(network.parameters(), None)
        self.network, self.device = network, device or (parameter.device.type if parameter is not None else "cpu")
        self._between: record_function | None = None
        self._hooks: list = []
        self._backward = torch.autograd.backward
        self._profiler = None
        if folder is not None:
            tools = importlib.import_module("torch_npu.profiler" if self.device == "npu" else "torch.profiler")
            self._profiler = tools.profile(
                activities=[getattr(tools.ProfilerActivity, kind) for kind in sorted({"CPU", self.device.upper()})],
                schedule=tools.schedule(wait=max(skip - 1, 0), warmup=min(skip, 1), active=steps, repeat=1),
                on_trace_ready=tools.tensorboard_trace_handler(str(folder)),
                record_shapes=True,
            )

    def __enter__(self) -> "Profile":  # noqa: PYI034 - Self needs Python 3.11
        for name, module in self.network.named_modules():
            self._mark(name or "@root", module)
        self._hooks.append(register_optimizer_step_pre_hook(lambda *_: self._next(None)))
        torch.autograd.backward = self._marked_backward
        if self._profiler:
            self._profiler.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._next(None)
        torch.autograd.backward = self._backward
        for hook in self._hooks:
            hook.remove()
        if self._profiler:
            self._profiler.__exit__(*error)

    def step(self) -> None:
        """Ends a step."""
        self._next(None)
        if self._profiler:
            self._profiler.step()

    def _mark(self, name: str, module: nn.Module) -> None:
        calls: list[record_function] = []

        def begin(*_: object) -> None:
            # Marks inside of a network that is compiled would divide it, and compile it again for each of them.
            if torch.compiler.is_compiling():
                return
            if module is self.network:
                self._next(None)
            calls.append(record_function(f"forward/{name}"))
            calls[-1].__enter__()

        def end(*_: object) -> None:
            if torch.compiler.is_compiling():
                return
            calls.pop().__exit__(None, None, None)
            if module is self.network:
                self._next("loss")

        self._hooks += [module.register_forward_pre_hook(begin), module.register_forward_hook(end)]

    def _marked_backward(self, *args: object, **named: object) -> None:
        self._next(None)
        with record_function("backward"):
            self._backward(*args, **named)
        self._next("clip")

    def _next(self, name: str | None) -> None:
        """Ends the range between parts of the step, and begins the next one."""
        if self._between:
            self._between.__exit__(None, None, None)
        self._between = record_function(name) if name else None
        if self._between:
            self._between.__enter__()
