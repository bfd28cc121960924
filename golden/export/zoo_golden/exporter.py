"""Three training steps of any torch network, in f64 (the reference) and f32 (the noise floor), written as a golden.

f32 runs twice, with oneDNN's kernels and with torch's own: ReLU inputs near zero flip by chance, and one such flip changes gradients
by far more than rounding does. The larger distance of the two from f64 is the noise floor.

f64 runs again, once or several times, with inputs, parameters and whatever a function rounds, and the gradients of both, perturbed in
their last place. The largest effect after three steps shows how much of a result in f64 is rounding error.
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import torch
import torchvision
from torch import nn
from torch.overrides import TorchFunctionMode

from . import document, hashes
from .conditions import NORMALISATIONS, Gain, Input, fill, lift
from .document import Recording
from .networks import OneType
from .optimizers import describe, starts
from .rounding import LAST_PLACE, Rounding, is_real, moves, operand

T = TypeVar("T")

Loss = Callable[[object, dict[str, torch.Tensor], nn.Module], dict[str, torch.Tensor]]
"""(outputs, inputs, network) -> named scalars with at least `loss`, which is differentiated."""

_STEPS = 3
_ROUNDED = 2
"""Runs in f32."""
_LIFTED_RULE = (
    "every normalisation bias = f32(bias + f32(4*gain)); forward and gradients of one step only: "
    "ReLU inputs stay away from zero, so gradients agree far more tightly"
)


def export(
    path: str | Path,
    network: nn.Module,
    loss: Loss,
    optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    inputs: dict[str, Input],
    *,
    name: str,
    forward: Callable[[nn.Module, dict[str, torch.Tensor]], object] = lambda network, inputs: network(inputs["image"]),
    salt: str = "",
    gain: Gain = lambda name: 1.0,
    clip_grad_norm: float | None = None,
    hyper: dict | None = None,
    samples: int = document.IN_ORDER,
    lifted_variant: bool = True,
    moved_runs: int = 1,
    last_place: float = LAST_PLACE,
    exact: Mapping[str, torch.Tensor] = MappingProxyType({}),
    turned: frozenset[str] = frozenset(),
) -> dict:
    """Writes `path`.json and `path`.safetensors and returns the JSON document.

    network: in the mode (train, eval) to be recorded; its parameters and running statistics are overwritten by the hash.
    optimizer: makes the optimizer, of those in optimizers.py, for a copy of the network. hyper: free facts, for readers only.
    lifted_variant: False for networks that normalise before each ReLU and after it: without a ReLU that cuts, all their
    gradients vanish but for rounding.
    samples: stored values per tensor; noise floors and statistics always come from the whole tensor.
    moved_runs: number of perturbed runs. One may move a tensor by little by chance; each takes as much memory as the f64 run.
    last_place: relative size of the perturbation.
    exact: values of constant buffers in f64, for the runs in f64.
    turned: outputs of modules, `block.attn#0`, whose second axis are the samples; they are recorded with samples first.
    """
    init = fill(network, salt, gain)
    conditions = (network, loss, forward, inputs, optimizer, clip_grad_norm, exact, turned)
    runs = Runs(*conditions, moved_runs=moved_runs, last_place=last_place)
    recording = Recording(samples)
    losses = [runs.gradients(recording)]
    described = describe(runs.truth.optimizer, runs.truth.network, clip_grad_norm)
    init |= starts(runs.truth.optimizer, network)
    for step in range(1, _STEPS + 1):
        if step > 1:
            losses.append(runs.gradients())
        runs.update()
        if step in (1, _STEPS):
            runs.record_state(recording, step, dict(network.named_parameters()))
    left_out = dict(network.named_buffers()).keys() - {name for name, _ in runs.buffers[0].now()}
    init = {name: rule for name, rule in init.items() if name not in left_out}
    without_gradient = sorted(n for n, p in runs.truth.network.named_parameters() if p.grad is None)
    del runs
    recording.mark_degenerate()

    variants, data = {}, dict(recording.data)
    lifted = copy.deepcopy(network)
    if lifted_variant and lift(lifted, gain):
        variant = Recording(samples)
        once = _losses([Runs(lifted, *conditions[1:], moved_runs=moved_runs, last_place=last_place).gradients(variant)])
        variant.mark_degenerate()
        variants["lifted"] = {
            **once,
            "tensors": variant.entries,
            "noise_floor": variant.noise_floor(),
            "rule": _LIFTED_RULE,
        }
        data |= {f"variant.lifted/{key}": values for key, values in variant.data.items()}

    parameters = dict(network.named_parameters())
    # Further names of parameters that several modules share.
    shared = dict(network.named_parameters(remove_duplicate=False)).keys() - parameters.keys()
    for key in [*list(parameters)[:3], *list(parameters)[-2:]]:
        data[f"init_head/{key}"] = parameters[key].detach().flatten()[: document.IN_ORDER].numpy()
    for key, given in inputs.items():
        if given.stored:
            data[f"input/{key}"] = document.compact(given.values)
        else:
            data[f"input_head/{key}"] = given.values.flatten()[: document.IN_ORDER].numpy()

    golden = {
        "model": name,
        "salt": salt,
        "precision": "f64 is the reference; f32_rel = |f32-f64|_2/|f64|_2, the larger of two f32 runs (oneDNN's and torch's own kernels); "
        "f64_rel the same of an f64 run with inputs, parameters, results of functions and their gradients moved by 2^-52, where it is at least "
        "1e-10",
        "made_with": {"torch": _version(torch), "torchvision": _version(torchvision)},
        "optimizer": described,
        "hyper": hyper or {},
        "parameter_count": sum(p.numel() for p in parameters.values()),
        "bn": sorted({(m.eps, m.momentum) for m in network.modules() if isinstance(m, NORMALISATIONS) and hasattr(m, "momentum")}),
        "hash_vectors": hashes.test_vectors(),
        "inputs": {
            key: {
                "shape": list(given.values.shape),
                "dtype": str(given.values.dtype).removeprefix("torch."),
                "rule": given.rule,
                "stored": given.stored,
            }
            for key, given in inputs.items()
        },
        "shapes": {key: list(tensor.shape) for key, tensor in network.state_dict().items() if key not in shared},
        "init": init,
        "running_stats_start": "mean 0, variance 1",
        "parameters_without_gradient": without_gradient,
        **_losses(losses),
        "noise_floor": recording.noise_floor(),
        "variants": variants,
        "output_order": [key for key in recording.entries if key.startswith("out/")],
        "tensors": recording.entries,
    }
    document.write(Path(path), golden, data)
    return golden


def _losses(steps: list[tuple[dict, dict, dict]]) -> dict:
    """Losses by step; those of the moved run where one of them says something of the step's conditioning."""
    truth, rounded, moved = map(list, zip(*steps))
    tells = any(document.tells(other[key] - value, value) for values, other in zip(truth, moved) for key, value in values.items())
    return {"losses_f64": truth, "losses_f32": rounded} | ({"losses_moved": moved} if tells else {})


def _version(package) -> str:
    return package.__version__.split("+")[0]


class Run:
    """One training run in one precision."""

    def __init__(self, network, loss, forward, inputs, optimizer, clip_grad_norm, exact, turned, *, dtype, onednn=True):
        self.network = copy.deepcopy(network).to(dtype)
        if dtype is torch.float64:
            for key, buffer in self.network.named_buffers():
                if key in exact:
                    buffer.copy_(exact[key])
        self.dtype, self.turned = dtype, turned
        self.optimizer = optimizer(self.network)
        for state in self.optimizer.state.values():
            for kept in state.values():  # starts are f32, as all initial values
                if is_real(kept):
                    kept.copy_(kept.float())
        self.loss, self.forward, self.clip_grad_norm, self.onednn = loss, forward, clip_grad_norm, onednn
        self.inputs = {k: v.values.to(dtype) if v.values.is_floating_point() else v.values for k, v in inputs.items()}
        self.rounding: AbstractContextManager = nullcontext()

    @torch.no_grad()
    def move(self, seed: int, last_place: float) -> None:
        """Moves inputs, parameters and from now on results of functions in their last place, up or down by chance: what one rounding of each
        does."""
        moved = moves(seed, last_place)
        self.inputs = {k: moved(v) if is_real(v) else v for k, v in self.inputs.items()}
        for parameter in self.network.parameters():
            parameter.copy_(moved(parameter))
        self.rounding = Rounding(moved)

    def gradients(self, outputs: dict | None = None) -> dict[str, float]:
        """Forward and backward; fills `outputs` with every module's output and returns the named losses."""
        weights = _Weights()
        hooks = [] if outputs is None else _hooks(self.network, outputs, weights, self.turned)
        self.optimizer.zero_grad(set_to_none=True)
        given = {key: values.clone() for key, values in self.inputs.items()}  # a network may work on its input in place
        with torch.backends.mkldnn.flags(enabled=self.onednn), OneType(self.dtype), _Exact(self.dtype):
            with self.rounding, weights:
                losses = self.loss(self.forward(self.network, given), self.inputs, self.network)
            losses["loss"].backward()
        for hook in hooks:
            hook.remove()
        return {key: value.item() for key, value in losses.items()}

    def clip(self) -> dict[str, float]:
        """Clips the gradients where asked to; returns their norm before and the factor."""
        if self.clip_grad_norm is None:
            return {}
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.clip_grad_norm).item()
        return {"grad_norm": norm, "clip_coef": min(1.0, self.clip_grad_norm / (norm + 1e-6))}


class StateBuffers:
    """Which buffers are state, as running statistics: the floating-point ones of normalisations, and those that a step
    changes. The others are no part of a golden: constants, as tables of positions, and statistics of layers that a step
    in training leaves out.
    """

    def __init__(self, network: nn.Module):
        """`network` before the step."""
        self.network = network
        self.before = dict(self._versions())

    def now(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Names and values after the step."""
        versions = dict(self._versions())
        started = versions != self.before
        for path, module in self.network.named_modules():
            # What changes running statistics in place says so of its counter alone.
            counter = f"{path}.num_batches_tracked".removeprefix(".")
            unused = started and module.training and counter in versions and versions[counter] == self.before.get(counter)
            normalises = getattr(module, "running_mean", None) is not None and not unused
            for name, buffer in module.named_buffers(path, recurse=False):
                if buffer.is_floating_point() and (normalises or versions[name] != self.before.get(name)):
                    yield name, buffer

    def _versions(self) -> Iterator[tuple[str, tuple[int, int]]]:
        return ((name, (id(buffer), buffer._version)) for name, buffer in self.network.named_buffers())


class Runs:
    """The same run in f64 (`truth`), twice in f32 (`rounded`) and in f64 moved in its last place (`moved`), in lockstep."""

    def __init__(self, *conditions, moved_runs: int, last_place: float):
        self.truth = Run(*conditions, dtype=torch.float64)
        self.rounded = [Run(*conditions, dtype=torch.float32, onednn=onednn) for onednn in (True, False)]  # as many as _ROUNDED
        self.moved = [Run(*conditions, dtype=torch.float64) for _ in range(moved_runs)]
        for seed, run in enumerate(self.moved):
            run.move(seed, last_place)
        self.buffers = [StateBuffers(run.network) for run in self._all()]

    def gradients(self, recording: Recording | None = None) -> tuple[dict, dict, dict]:
        """Losses in f64, in f32 and of the moved runs (the values farthest off); with `recording`, module outputs and unclipped gradients go into it.

        Gradients are left clipped.
        """
        outputs = [{} if recording else None for _ in self._all()]
        losses = [run.gradients(out) for run, out in zip(self._all(), outputs)]
        if recording:
            for key, (tensor, kind) in outputs[0].items():
                recording.add(key, tensor, *_others([others[key][0] for others in outputs[1:]]), kind=kind)
            for name, parameter, others in self._parameters():
                recording.add(f"grad/{name}", parameter.grad, *_others([other.grad for other in others]))
        truth, *others = (values | run.clip() for values, run in zip(losses, self._all()))

        def farther(runs: list[dict]) -> dict:
            return {key: max((losses[key] for losses in runs), key=lambda v: abs(v - value)) for key, value in truth.items()}

        rounded, moved = _others(others)
        return truth, farther(rounded), farther(moved)

    def update(self) -> None:
        for run in self._all():
            run.optimizer.step()

    def record_state(self, recording: Recording, step: int, start: dict[str, torch.Tensor]) -> None:
        """Parameters (with their change since `start`), the optimizer's state after the first step, and running statistics."""
        for name, truth, others in self._parameters():
            recording.add(f"param{step}/{name}", truth, *_others(others), start=start[name])
            states = [run.optimizer.state[p] for run, p in zip(self._all(), (truth, *others))] if step == 1 else [{}]
            for slot, kept in states[0].items():
                if slot != "step" and isinstance(kept, torch.Tensor):
                    key = "momentum" if slot == "momentum_buffer" else slot
                    recording.add(f"{key}1/{name}", kept, *_others([state[slot] for state in states[1:]]))
        for (name, truth), *others in zip(*(buffers.now() for buffers in self.buffers)):
            recording.add(f"buffer{step}/{name}", truth, *_others([other for _, other in others]))

    def _all(self) -> tuple[Run, ...]:
        return (self.truth, *self.rounded, *self.moved)

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter, list[nn.Parameter]]]:
        """Name, f64 value and the other runs' values of every parameter that has a gradient."""
        others = zip(*(run.network.parameters() for run in self._all()[1:]))
        for (name, truth), rest in zip(self.truth.network.named_parameters(), others):
            if truth.grad is not None:
                yield name, truth, list(rest)


def _others(results: list[T]) -> tuple[list[T], list[T]]:
    """Results of the runs beside the truth: of those in f32, and of the moved ones."""
    return results[:_ROUNDED], results[_ROUNDED:]


class _Exact(TorchFunctionMode):
    """Functions of torch 2.15 (CPU) with wrong gradients, by others with right ones.

    The gradient of hardsigmoid has the 1/6 of f32, 3e-8 off, in f64 too. Those of batch_norm and instance_norm are wrong for some
    orders of the elements of their result's gradient, as behind a permutation of maps of one row: they get and give the usual order, in
    which a `view` of the network may need a copy.
    """

    def __init__(self, dtype: torch.dtype):
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is nn.functional.hardsigmoid and self.dtype is torch.float64:
            x = args[0] if args else kwargs["input"]
            return nn.functional.relu6(x + 3) / 6
        if function in (nn.functional.batch_norm, nn.functional.instance_norm):
            x, rest, named = operand(args, kwargs)
            result = function(x.contiguous(), *rest, **named)
            if result.requires_grad:
                result.register_hook(torch.Tensor.contiguous)
            return result
        try:
            return function(*args, **kwargs)
        except RuntimeError:
            if function is not torch.Tensor.view:
                raise
            return args[0].reshape(*args[1:], **kwargs)


def _is_empty(module: nn.Module) -> bool:
    return isinstance(module, nn.Identity) or type(module) is nn.Sequential and not len(module)


def around_nothing(module: nn.Module) -> bool:
    """Whether all modules inside are empty ones, as those of options that a network does not use."""
    inside = list(module.modules())[1:]
    return bool(inside) and all(_is_empty(part) for part in inside)


def _is_row_of_others(module: nn.Module, paths: dict[nn.Module, str]) -> bool:
    """Whether it only calls modules that have their names elsewhere, so that it gives what the last of them gives; or computes a weight."""
    own = paths[module]
    if isinstance(module, nn.utils.parametrize.ParametrizationList) or ".parametrizations." in own:
        return True
    return type(module) is nn.Sequential and not all(paths[child].startswith(f"{own}.") for child in module if own)


class _Weights(TorchFunctionMode):
    """Knows the weights of attentions: what softmax makes of rows of products, `[.., queries, keys]`, and dropout of that. And those of
    the experts of a token: the largest of its scores, their numbers, and what is computed of them element by element; and the rows
    that experts compute."""

    def __init__(self) -> None:
        super().__init__()
        self.known: list[torch.Tensor] = []
        self.of_products: dict[int, torch.Tensor] = {}
        """By identity, products of two values and what is computed of them, until values are weighted or a layer with parameters takes it."""

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return any(tensor is other for other in self.known)

    def is_of_products(self, tensor: torch.Tensor) -> bool:
        return self.of_products.get(id(tensor)) is tensor

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = getattr(function, "__name__", "")
        first = args[0] if args else (kwargs or {}).get("input")
        if name == "topk" or isinstance(result, (tuple, list)) and name in _OF_WEIGHTS and first in self:
            self.known += result
        given = [one for one in (*args, *(kwargs or {}).values()) if isinstance(one, torch.Tensor)]
        of_products = any(map(self.is_of_products, given))
        is_product = name in _PRODUCTS and not any(one in self for one in given)
        if isinstance(result, torch.Tensor) and (is_product or of_products and not name.endswith((*_PRODUCTS, *_WITH_PARAMETERS))):
            self.of_products[id(result)] = result
        if not isinstance(result, torch.Tensor) or not isinstance(first, torch.Tensor):
            return result
        axis = args[1] if len(args) > 1 else (kwargs or {}).get("dim")
        is_weights = of_products and name == "softmax" and result.dim() > 3 and axis in (-1, result.dim() - 1)
        of_numbers = name == "gather" and any(other in self for other in given[1:])
        of_groups = name in ("grouped_mm", "_grouped_mm")
        if is_weights or of_numbers or of_groups or name in _OF_WEIGHTS and first in self:
            self.known.append(result)
        return result


_OF_WEIGHTS = (
    "dropout",
    "to",
    "type_as",
    "contiguous",
    "div",
    "div_",
    "__truediv__",
    "mul",
    "mul_",
    "__mul__",
    "softmax",
    "chunk",
    "split",
    "silu",
    "gelu",
    "relu",
)

_PRODUCTS = ("matmul", "__matmul__", "bmm", "baddbmm", "einsum")
_WITH_PARAMETERS = ("linear", "conv1d", "conv2d", "conv3d", "norm")


def _hooks(network: nn.Module, outputs: dict, weights: _Weights | None = None, turned: frozenset[str] = frozenset()) -> list:
    """Keeps a copy of what each module returns, before anything works on it in place; what passes on what it is given has nothing to show.
    Scores and weights of an attention are no output of a layer of recipes, unless the recipe shows them (`shown`): who returns them shows the rest. Neither are constants, and what is passed on
    beside a result and is the same for all samples, as a bias of attentions, whose module shows it."""
    calls = Counter()
    known = _Weights() if weights is None else weights
    constant, shown = getattr(network, "constant_modules", frozenset()), getattr(network, "shown", frozenset())

    def keep(name: str):
        def hook(module, arguments, named, result):
            key = f"out/{name}#{calls[name]}"
            calls[name] += 1
            if isinstance(module, nn.MultiheadAttention) and result[1] is not None:
                known.known.append(result[1])
            given = [tensor for _, tensor in _tensors([*arguments, *named.values()])]
            samples = {tensor.shape[:1] for tensor in given}
            passes_on = around_nothing(module) and any(result is tensor for tensor in given)
            for place, (suffix, tensor) in enumerate(_tensors(result)):
                is_constant = (not tensor.requires_grad or place > 0) and samples and tensor.shape[:1] not in samples
                own = (key + suffix).removeprefix("out/")
                is_scores = tensor in known or bool(shown) and known.is_of_products(tensor)
                # A bias of scores, as it was given.
                is_given = bool(shown) and place > 0 and any(tensor is one for one in given)
                if (not (is_scores or is_given) or own in shown) and not is_constant and not passes_on:
                    is_turned = own in turned
                    outputs[key + suffix] = ((tensor.transpose(0, 1) if is_turned else tensor).detach().clone(), type(module).__name__)

        return hook

    paths = {module: name for name, module in network.named_modules()}
    kept = ((name, module) for name, module in network.named_modules() if name not in constant)
    modules = ((name, module) for name, module in kept if not _is_empty(module) and not _is_row_of_others(module, paths))
    return [module.register_forward_hook(keep(name or "@root"), with_kwargs=True) for name, module in modules]


def _tensors(result, suffix: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Floating-point tensors of a result that have numbers, with `.key` or `.index` for each level of dict, list or tuple."""
    if isinstance(result, torch.Tensor):
        if result.is_floating_point() and result.numel():
            yield suffix, result
    elif isinstance(result, (dict, list, tuple)):
        for key, value in result.items() if isinstance(result, dict) else enumerate(result):
            yield from _tensors(value, f"{suffix}.{key}")
