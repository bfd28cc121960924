"""Traces a network for `zoo import`: records every call of a module, and inside it every torch function, for one batch.

The network runs on the device `meta`, whose tensors have shapes but no values: value-dependent control flow raises an error, so the
trace does not depend on the numbers of the batch. A TorchFunctionMode records each function in order of execution with all its
arguments, and hooks record where modules begin and end. Tensors are distinguished by identity; a tensor that was modified through a
view, or whose origin is unknown, is an error with file and line.

It runs three times: in training mode, in training mode with another number of samples, and in evaluation mode. Arguments that differ
between the first two depend on the number of samples, and the trace says so (`batch`). The call in evaluation mode is in the trace
beside that in training mode (`evaluation`).

Tensors that depend on neither inputs nor parameters (positions, masks, tables of indices) are computed beside. They are the constants
of the network: the trace has the values of those that other functions take, and not how they are made.
"""

import copy
import inspect
import itertools
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torchvision
from torch import nn
from torch.overrides import TorchFunctionMode, resolve_name

from .networks import OneType, drops_samples

FORMAT = 2
"""Version of the document; goes up when a field changes its meaning or vanishes."""

_METADATA = frozenset(
    "size dim ndimension numel nelement stride storage_offset is_contiguous is_floating_point is_complex is_signed element_size "
    "get_device data_ptr __len__ __hash__ __repr__ __format__ dim_order type_as_tuple is_tensor is_storage is_nested get_default_dtype "
    "finfo iinfo is_autocast_enabled is_grad_enabled result_type promote_types broadcast_shapes __dir__ _is_view has_names".split()
)
"""Functions that say something of a tensor without its numbers."""

_FILLED = {"zeros": 0, "new_zeros": 0, "zeros_like": 0, "ones": 1, "new_ones": 1, "ones_like": 1}
"""Functions that make tensors of one number, and take other tensors for their shape or type alone."""

_SET = "torch.Tensor.__setitem__"
_CHANGES = re.compile(r"__i\w+__|__setitem__|[a-z]\w*_")
"""Functions that change their first argument."""

_WRITTEN = ("zero_", "fill_", "copy_")
"""Of these, those that write a value whatever was there."""

_MADE = frozenset("arange tensor as_tensor linspace eye full".split())
"""Functions that make constants without a tensor."""

_LARGEST = 1 << 22
"""Largest number of elements of a constant that is written down."""

_EXACT = {torch.float32: torch.float64}
"""Types in which constants are computed, where these are not their own: a table of angles is not rounded on the way."""

_TORCH = f"{Path(torch.__file__).parent}/"
_HERE = f"{Path(__file__).parent}/"


class TraceError(Exception):
    """Why a network cannot be traced, with module path, file and line."""


class _Known(NamedTuple):
    """A tensor that was seen. It is kept alive, so that no other can take its identity."""

    tensor: torch.Tensor
    encoded: dict
    version: int
    constant: torch.Tensor | None = None
    """Its values, where they depend on neither inputs nor parameters."""


class _Whole(NamedTuple):
    """A tensor of which a part is written, the key of the part, and both as arguments."""

    tensor: torch.Tensor
    key: Any
    encoded: list


Forward = Callable[[nn.Module, dict[str, torch.Tensor]], Any]


def trace(
    network: nn.Module,
    inputs: dict[str, torch.Tensor],
    forward: Forward,
    *,
    name: str,
    classes: int,
    starts: dict[str, float] | None = None,
    spreads: dict[str, float] | None = None,
    buffers: dict[str, torch.Tensor] | None = None,
) -> dict:
    """The JSON document of a call of the network in its present mode, and of one in evaluation mode.

    network, inputs: on the device `meta`, the batch being the first dimension of every input. Dropout keeps its rates: nothing is
    computed. starts: values of parameters all of whose elements start equal. spreads: standard deviations of initial values. buffers: the values of buffers, which are constants
    until the network changes them.
    """
    samples = next(iter(inputs.values())).shape[0]
    extents = {extent for tensor in inputs.values() for extent in tensor.shape}
    another = next(size for size in batch_sizes(network, extents) if size != samples)
    others = {key: torch.empty((another, *tensor.shape[1:]), dtype=tensor.dtype, device="meta") for key, tensor in inputs.items()}
    # A call may change the network: each has its own.
    evaluated, repeated = (copy.deepcopy(network) for _ in range(2))
    call = _recorded(network, inputs, forward, buffers or {})
    try:
        other = _recorded(repeated, others, forward, buffers or {})
    except TraceError as error:
        raise TraceError(f"with {another} samples instead of {samples}: {error}") from error
    _mark_batch(call, other)
    try:
        evaluation = _recorded(evaluated.eval(), inputs, forward, buffers or {})
    except TraceError as error:
        raise TraceError(f"in evaluation mode: {error}") from error
    first = {tensor: key for key, tensor in network.named_parameters()}
    known = starts or {}
    return {
        "format": FORMAT,
        "model": name,
        "made_with": {package.__name__: package.__version__.split("+")[0] for package in _packages(network)},
        "classes": classes,
        "batch": samples,
        "parameters": {
            key: {"shape": list(tensor.shape)}
            | ({} if first[tensor] == key else {"same_as": first[tensor]})
            | ({"start": known[first[tensor]]} if first[tensor] in known else {})
            | ({"spread": spread} if (spread := (spreads or {}).get(key)) is not None else {})
            | ({} if tensor.requires_grad else {"frozen": True})
            for key, tensor in network.named_parameters(remove_duplicate=False)
        },
        "modules": {path: _described(module) for path, module in network.named_modules()},
        **call,
        "evaluation": evaluation,
    }


def batch_sizes(network: nn.Module, extents: set[int]) -> Iterator[int]:
    """Primes that divide no extent of a parameter or buffer, and none of these: a batch of this size is told apart from them. Those below 64
    come first, from where on some networks handle batches in another way."""
    tensors = itertools.chain(network.parameters(), network.buffers())
    known = extents.union(*(tensor.shape for tensor in tensors)) - {0}
    sizes = itertools.chain(range(61, 31, -2), itertools.count(65, 2))
    primes = (size for size in sizes if all(size % factor for factor in range(3, int(size**0.5) + 1, 2)))
    return (size for size in primes if all(extent % size for extent in known))


def _recorded(network: nn.Module, inputs: dict[str, torch.Tensor], forward: Forward, buffers: dict[str, torch.Tensor]) -> dict:
    """One call of the network."""
    recorder = _Recorder(network, buffers)
    encoded = {key: recorder.input(key, tensor) for key, tensor in inputs.items()}
    hooks = recorder.hooks()
    try:
        with torch.device("meta"), recorder:
            result = forward(network, inputs)
    except TraceError:
        raise
    except Exception as error:
        raise TraceError(f"{recorder.running()}: {type(error).__name__} at {_raised(error)}: {error}") from error
    finally:
        for hook in hooks:
            hook.remove()
    (root,) = recorder.body
    outputs = recorder.outputs(result, root["module"])
    return {"inputs": encoded, "outputs": outputs, "constants": recorder.constants, "buffers": recorder.buffers, "root": root}


def _raised(error: Exception) -> str:
    """File and line of the network's own code that failed."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith((_TORCH, _HERE, "<"))]
    return f"{_short(frames[-1].filename)}:{frames[-1].lineno}" if frames else "its call, with one batch of images, or with --tokens of tokens"


def _mark_batch(call: dict, other: dict) -> None:
    """Marks the arguments of a recorded call that are others with another number of samples."""

    samples, others = (next(iter(of["inputs"].values()))["shape"][0] for of in (call, other))

    def constant(place: int, of: dict) -> dict:
        return of["constants"][place]

    def marked(own: Any, its: Any) -> Any:
        if isinstance(own, list) and isinstance(its, list) and len(own) == len(its):
            return [marked(*both) for both in zip(own, its)]
        if isinstance(own, dict) and isinstance(its, dict) and own.keys() == its.keys() == {"constant"}:
            same = _same_for_all_samples((constant(own["constant"], call), samples), (constant(its["constant"], other), others))
            return own if same else {"batch": "a constant tensor"}
        return own if own == its else {"batch": _python(own)}

    def walk(own: dict, its: dict) -> None:
        module = own.get("module", "")
        for mine, another in itertools.zip_longest(own["body"], its["body"]):
            same = mine and another and all(mine.get(key) == another.get(key) for key in ("module", "function", "at"))
            if not same or mine["outputs"].keys() != another["outputs"].keys():
                raise TraceError(f"{module or 'the network'}: the functions that it calls depend on the number of samples, from {(mine or another)['at']} on")
            mine["args"] = marked(mine["args"], another["args"])
            mine["kwargs"] = {key: marked(value, another["kwargs"].get(key)) for key, value in mine["kwargs"].items()}
            if "body" in mine:
                walk(mine, another)

    walk(call["root"], other["root"])


def _python(value: Any) -> str:
    """An argument as it is written in Python."""
    if isinstance(value, dict) and "slice" in value:
        start, stop, step = ("" if part is None else str(part) for part in value["slice"])
        return f"{start}:{stop}" + (f":{step}" if step else "")
    return str(value)


def _same_for_all_samples(first: tuple[dict, int], second: tuple[dict, int]) -> bool:
    """Whether two constants, each with the number of samples, are the same, or the same rows once for each sample: samples may be one axis
    with what is beside them, as heads."""
    (own, samples), (its, others) = first, second
    if own == its:
        return True
    if own["dtype"] != its["dtype"] or own["shape"][1:] != its["shape"][1:] or not own["shape"]:
        return False
    rows, left = divmod(own["shape"][0], samples)
    if left or its["shape"][0] != rows * others:
        return False

    def of_samples(constant: dict, count: int) -> set[tuple[str, ...]]:
        runs = (run.partition("*") for run in constant["values"].split())
        values = [value for value, _, times in runs for _ in range(int(times or 1))]
        size = len(values) // count
        return {tuple(values[start : start + size]) for start in range(0, len(values), size or 1)}

    return len(of_samples(own, samples)) == 1 and of_samples(own, samples) == of_samples(its, others)


def _packages(network: nn.Module) -> list:
    """PyTorch, torchvision, and the package of the network, if it has a version."""
    own = sys.modules.get(type(network).__module__.partition(".")[0])
    return [torch, torchvision, *([own] if own not in (torch, torchvision) and hasattr(own, "__version__") else [])]


def _described(module: nn.Module) -> dict:
    kind = type(module)
    described = {"class": f"{kind.__module__}.{kind.__qualname__}"}
    if not kind.__module__.startswith("torch.nn."):
        try:
            described["source"] = f"{_short(inspect.getsourcefile(kind) or '')}:{inspect.getsourcelines(kind)[1]}"
        except (OSError, TypeError):
            pass
    return described


def _short(file: str) -> str:
    """A file's path from its package on."""
    parts = Path(file).parts
    return "/".join(parts[parts.index("site-packages") + 1 :]) if "site-packages" in parts else file


def _chance(module: nn.Module) -> dict | None:
    """The rate of a module that drops whole samples; its own code draws random numbers, and has no operator of its own."""
    if isinstance(module, torchvision.ops.StochasticDepth):
        return {"p": module.p if module.training else 0.0, "mode": module.mode}
    if drops_samples(module):
        return {"p": (module.drop_prob or 0.0) if module.training else 0.0, "mode": "row", "scale_by_keep": True}
    return None


class _Recorder(TorchFunctionMode):
    """Writes down calls. `body` is that of the module that is running."""

    def __init__(self, network: nn.Module, buffers: dict[str, torch.Tensor]):
        super().__init__()
        self.network = network
        self.paths = {module: path for path, module in network.named_modules()}
        self.calls: Counter[str] = Counter()
        self.known: dict[int, _Known] = {}
        self.parts: dict[int, tuple[torch.Tensor, Any]] = {}
        self.writers: dict[int, str] = {}
        """Function and place of the last change of a memory in place."""
        self.count = 0
        self.body: list[dict] = []
        self.open: list[tuple[dict, list[dict]]] = []
        self.renamed: list[list[_Known]] = []
        """By open module, what tensors were that a function gave back as they are, as dropout of rate 0: they are that again outside of it."""
        self.muted: nn.Module | None = None
        self.constants: list[dict] = []
        self.places: dict[str, int] = {}
        self.buffers: dict[str, int] = {}
        for key, tensor in network.named_parameters():
            self._remember(tensor, {"parameter": key})
        for key, tensor in network.named_buffers():
            self._remember(tensor, {"buffer": key}, buffers.get(key))

    def input(self, key: str, tensor: torch.Tensor) -> dict:
        return {"value": self._new(tensor), "shape": list(tensor.shape), "dtype": _dtype(tensor.dtype)}

    def hooks(self) -> list:
        return [
            hook
            for module in self.paths
            for hook in (
                module.register_forward_pre_hook(self._enter, prepend=True, with_kwargs=True),
                module.register_forward_hook(self._leave, with_kwargs=True),
            )
        ]

    def running(self) -> str:
        """The module that is running."""
        return (self.open[-1][0]["module"] if self.open else "") or "the network"

    def outputs(self, result: Any, path: str) -> dict:
        return {key: self._use(tensor, path) for key, tensor in named_tensors(result)}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.muted is not None:
            return func(*args, **kwargs)
        name = resolve_name(func) or getattr(func, "__name__", repr(func))
        if name.endswith("__get__"):  # shape, dtype, ...: properties
            name = name.removesuffix(".__get__")
            if name.rpartition(".")[2] not in ("T", "mT", "H", "mH", "data", "real", "imag", "grad"):
                return func(*args, **kwargs)
        if name.rpartition(".")[2] in _METADATA:
            return func(*args, **kwargs)
        at = _caller()
        module = self.open[-1][0]["module"] if self.open else ""
        call = {"function": name, "at": at, **self._arguments(func, args, kwargs, module, at)}
        short = name.rpartition(".")[2]
        if short == "__setitem__" and self._is_part(*args):
            return self._again(func, args)
        in_place = bool(_CHANGES.fullmatch(short)) or call["kwargs"].get("inplace") is True
        wholes = self._wholes(next(iter((*args, *kwargs.values())), None), module, at) if in_place else []
        written = None
        if wholes and short in _WRITTEN:
            # Numbers written through a part of a tensor.
            written = wholes.pop(0)
            value = args[1] if len(args) > 1 else 0.0
            call = {"function": _SET, "at": at, "args": [*written.encoded, self._encode(value, module, at)], "kwargs": {}}
        known, values = self._evaluated(func, short, args, kwargs)
        if known and not any(True for _ in named_tensors(values)):
            return values  # a number taken out of a constant, or a decision
        first = args[0] if args else None
        version = first._version if isinstance(first, torch.Tensor) else None
        try:
            result = func(*args, **kwargs)
        except NotImplementedError as error:
            raise TraceError(f"{module or 'the network'}: {name} at {at} needs the values of a tensor: {error}{_advice(name, at)}") from error
        except RuntimeError as error:
            if "meta tensor" in str(error):
                raise TraceError(f"{module or 'the network'}: {name} at {at} needs the values of a tensor: {error}{_advice(name, at)}") from error
            if func is not torch.Tensor.view:
                raise
            # Not all functions keep the order of channels-last maps on the device meta. Real numbers tell whether it is
            # a view.
            result = args[0].reshape(*args[1:], **kwargs)
        results = list(named_tensors(result))
        if version is not None and first._version != version:
            self.writers[_memory(first)] = f"{name} at {at}"
        if not results and isinstance(first, torch.Tensor) and id(first) in self.known and first._version != self.known[id(first)].version:
            results = [("", first)]  # __setitem__
        if written is not None:
            results, values = [("", written.tensor)], self._overwritten(written, value)
            known = values is not None
        if name == "torch.Tensor.__getitem__" and len(args) == 2 and id(first) in self.known:
            self.parts |= {id(tensor): (first, args[1]) for _, tensor in results if _memory(tensor) == _memory(first)}
        if not results and not any(isinstance(value, torch.Tensor) for value in (*args, *kwargs.values())):
            return result  # a setting of torch
        constants = dict(named_tensors(values)) if known else {}
        if short in _FILLED:
            constants = {key: torch.full(tensor.shape, _FILLED[short], dtype=tensor.dtype, device="cpu") for key, tensor in results}
        call["outputs"] = {key: self._made(tensor, constants.get(key)) for key, tensor in results}
        calls = [call] if any(self.known[id(tensor)].constant is None for _, tensor in results) else []
        inner = first if written is None else written.tensor
        for whole in wholes:
            value = self._encode(inner, module, at)
            outputs = {"": self._made(whole.tensor, self._overwritten(whole, inner))}
            if self.known[id(whole.tensor)].constant is None:
                calls.append({"function": _SET, "at": at, "args": [*whole.encoded, value], "kwargs": {}, "outputs": outputs})
            inner = whole.tensor
        if not torch.is_grad_enabled() and not _has_own_gradient():
            calls = [call | {"no_grad": True} for call in calls]
        self.body += calls
        return result

    def _wholes(self, tensor: Any, module: str, at: str) -> list[_Whole]:
        """What a tensor is a part of, and what that is a part of."""
        found = []
        while (part := self.parts.get(id(tensor))) is not None and "value" in self.known[id(part[0])].encoded:
            tensor, key = part
            found.append(_Whole(tensor, key, [self._encode(tensor, module, at), self._encode(key, module, at)]))
        return found

    def _overwritten(self, whole: _Whole, value: Any) -> torch.Tensor | None:
        """The values of a constant of which a part is overwritten; None if they are unknown."""
        before = self.known[id(whole.tensor)].constant
        value = self.known[id(value)].constant if isinstance(value, torch.Tensor) else value
        if before is None or value is None:
            return None
        before = before.clone()
        before[whole.key] = value
        return before

    def _is_part(self, whole: Any, key: Any, value: Any) -> bool:
        """Whether a value is written to where it is: the second half of `x[key] += 1`."""
        part = self.parts.get(id(value))
        return part is not None and part[0] is whole and repr(part[1]) == repr(key)

    def _again(self, func, args: tuple) -> Any:
        """Writes a part to where it is."""
        self._use(args[2], "it")
        result, tensor = func(*args), args[2]
        while tensor is not None:
            self.known[id(tensor)] = self.known[id(tensor)]._replace(version=tensor._version)
            tensor = self.parts.get(id(tensor), (None,))[0]
        return result

    def _evaluated(self, func, name: str, args: tuple, kwargs: dict) -> tuple[bool, Any]:
        """Whether a function has constants as its only tensors, and what it makes of them: for one that changes its first argument, that
        argument. Functions that draw random numbers, or leave their result open, are none."""
        given = [tensor for _, tensor in named_tensors([args, list(kwargs.values())])]
        known = [self.known.get(id(tensor)) for tensor in given]
        if not given and name not in _MADE or name.startswith(("empty", "new_empty")):
            return False, None
        if any(one is None or one.constant is None or "value" in one.encoded and one.version != one.tensor._version for one in known):
            return False, None
        copies = iter([one.constant.clone() for one in known])

        def moved(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return next(copies)
            if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
                return type(value)(moved(item) for item in value)
            return torch.device("cpu") if isinstance(value, torch.device) else value

        args, kwargs = tuple(moved(value) for value in args), {key: moved(value) for key, value in kwargs.items()}
        kwargs |= {} if given else {"device": "cpu"}
        before = torch.get_rng_state()
        try:
            with OneType(torch.float64):
                values = func(*args, **kwargs)
        except (NotImplementedError, RuntimeError, TypeError, ValueError, IndexError):
            return False, None  # the function itself will say
        if not torch.equal(before, torch.get_rng_state()):
            return False, None
        return True, args[0] if name == "__setitem__" else values

    def _enter(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        if self.muted is not None:
            return
        path = self.paths[module]
        # The network itself is called from outside: its place is that of its class.
        at = _caller() if path else _described(module).get("source", "")
        call = {"module": path, "call": self.calls[path], "at": at}
        self.calls[path] += 1
        call |= {"args": [self._encode(value, path, call["at"]) for value in args]}
        call |= {"kwargs": {key: self._encode(value, path, call["at"]) for key, value in kwargs.items()}}
        self.open.append((call, self.body))
        self.renamed.append([])
        self.body = []
        if _chance(module) is not None:
            self.muted = module

    def _leave(self, module: nn.Module, args: tuple, kwargs: dict, result: Any) -> None:
        if self.muted is not None and self.muted is not module:
            return
        call, outer = self.open.pop()
        if self.muted is module:
            self.muted = None
            drop = {"function": "zoo.drop_path", "at": call["at"], "args": call["args"], "kwargs": _chance(module)}
            self.body = [drop | {"outputs": {key: self._made(tensor) for key, tensor in named_tensors(result)}}]
        call["body"] = self.body
        call["outputs"] = self.outputs(result, call["module"])
        self._restore([id(tensor) for _, tensor in named_tensors(result)])
        self.body = outer
        self.body.append(call)

    def _restore(self, given: list[int]) -> None:
        """Tensors that the functions of a module gave back as they are get their numbers back, unless the module gives them."""
        for known in reversed(self.renamed.pop()):
            if id(known.tensor) in given and self.renamed:
                self.renamed[-1].insert(0, known)
            elif id(known.tensor) not in given and known.tensor._version == known.version:
                self.known[id(known.tensor)] = known

    def _arguments(self, func, args: tuple, kwargs: dict, module: str, at: str) -> dict:
        """Arguments by name where the signature is known, defaults included; otherwise as they were given."""
        if inspect.isfunction(func):
            try:
                bound = inspect.signature(func).bind(*args, **kwargs)
            except (TypeError, ValueError):
                pass
            else:
                bound.apply_defaults()
                if not any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in bound.signature.parameters.values()):
                    args, kwargs = (), bound.arguments
        encode = lambda value: self._encode(value, module, at)
        return {"args": [encode(value) for value in args], "kwargs": {key: encode(value) for key, value in kwargs.items()}}

    def _encode(self, value: Any, module: str, at: str) -> Any:
        if isinstance(value, torch.Tensor):
            used = self._use(value, f"{module or 'the network'} at {at}")
            if "buffer" in used and used["buffer"] not in self.buffers and (constant := self.known[id(value)].constant) is not None:
                self.buffers[used["buffer"]] = self._constant(constant)
            return used
        if isinstance(value, (list, tuple)):
            return [self._encode(item, module, at) for item in value]
        if isinstance(value, dict) and any(True for _ in named_tensors(value)):
            return [self._encode(item, module, at) for item in value.values()]
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if abs(value) < float("inf") else {"other": repr(value)}
        if isinstance(value, slice):
            return {"slice": [self._encode(part, module, at) for part in (value.start, value.stop, value.step)]}
        if value is Ellipsis:
            return {"ellipsis": None}
        if isinstance(value, torch.dtype):
            return {"dtype": _dtype(value)}
        return {"other": type(value).__name__}

    def _use(self, tensor: torch.Tensor, where: str) -> dict:
        known = self.known.get(id(tensor))
        if known is None:
            raise TraceError(f"{where}: a tensor of unknown origin: not an input, parameter or buffer, and not computed by a recorded function")
        if "value" in known.encoded and tensor._version != known.version:
            writer = self.writers.get(_memory(tensor), "a function that was not recorded")
            raise TraceError(f"{where}: this tensor was changed in place by {writer}, through another tensor that shares its memory (`clone` it before)")
        if "value" in known.encoded and known.constant is not None:
            return {"constant": self._constant(known.constant)}
        return known.encoded

    def _made(self, tensor: torch.Tensor, constant: torch.Tensor | None = None) -> dict:
        return {"value": self._new(tensor, constant), "shape": list(tensor.shape), "dtype": _dtype(tensor.dtype)}

    def _new(self, tensor: torch.Tensor, constant: torch.Tensor | None = None) -> int:
        known = self.known.get(id(tensor))
        if known is None or "value" in known.encoded:
            if known is not None and known.version == tensor._version and self.renamed:
                self.renamed[-1].append(known)
            fits = constant is not None and constant.shape == tensor.shape and constant.dtype in (tensor.dtype, _EXACT.get(tensor.dtype))
            self._remember(tensor, {"value": self.count}, constant if fits and constant.numel() <= _LARGEST else None)
        elif tensor._version != known.version:
            # A parameter or buffer that was changed in place: a running statistic.
            self.known[id(tensor)] = known._replace(constant=None)
        self.count += 1
        return self.count - 1

    def _constant(self, values: torch.Tensor) -> int:
        """The place of a constant among those that are written down."""
        with torch._C.DisableTorchFunction():
            numbers = values.flatten().tolist()
        runs = ((value, sum(1 for _ in same)) for value, same in itertools.groupby(numbers))
        text = " ".join(f"{+value!r}" if count == 1 else f"{+value!r}*{count}" for value, count in runs)
        dtype = next((own for own, exact in _EXACT.items() if exact is values.dtype), values.dtype)
        written = {"shape": list(values.shape), "dtype": _dtype(dtype), "values": text}
        place = self.places.setdefault(repr(written), len(self.constants))
        if place == len(self.constants):
            self.constants.append(written)
        return place

    def _remember(self, tensor: torch.Tensor, encoded: dict, constant: torch.Tensor | None = None) -> None:
        self.known[id(tensor)] = _Known(tensor, encoded, tensor._version, constant)


def _memory(tensor: torch.Tensor) -> int:
    """Which memory a tensor and its views share."""
    with torch._C.DisableTorchFunction():
        return tensor.untyped_storage()._cdata


def _caller() -> str:
    """File and line of the first frame outside torch and this package."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((_TORCH, _HERE, "<")):
        frame = frame.f_back
    return "" if frame is None else f"{_short(frame.f_code.co_filename)}:{frame.f_lineno}"


def _advice(name: str, at: str) -> str:
    """How not to need the values of a tensor."""
    if name.endswith("__contains__") and at.startswith("transformers/modeling_utils.py"):
        return "; it looks for padding, to warn of it: a configuration with pad_token_id=None does not"
    return ""


def _has_own_gradient() -> bool:
    """Whether the running function is part of a torch.autograd.Function: gradients are switched off in it, because it has its own, which the
    golden compares with that of what it computes."""
    frame = sys._getframe(2)
    while frame is not None and "torch.nn.modules.module" != frame.f_globals.get("__name__"):
        if any(isinstance(value, torch.autograd.function.FunctionCtx) for value in frame.f_locals.values()):
            return True
        frame = frame.f_back
    return False


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def named_tensors(result: Any, key: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of a result by key, `0.key` for each level of dict, list or tuple; `` for one tensor."""
    if isinstance(result, torch.Tensor):
        yield key, result
    elif isinstance(result, (dict, list, tuple)):
        for part, value in result.items() if isinstance(result, dict) else enumerate(result):
            yield from named_tensors(value, f"{key}.{part}" if key else str(part))
