"""The rank of torch.distributed that records a step: which part of the step and of its tensors it has, in zoo's words.

A grid of ranks has the axes `pipeline`, `data`, `expert`, `context` and `tensor`. [`NAMES`] gives what the dimensions of a DeviceMesh
are usually called.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import distributed

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

AXES = ("pipeline", "data", "expert", "context", "tensor")
"""Layers, samples, samples and experts, tokens of each sample, heads and hidden units: what the ranks of an axis share."""

NAMES: Mapping[str, str] = {axis: axis for axis in AXES} | {
    "pp": "pipeline",
    "dp": "data",
    "ddp": "data",
    "fsdp": "data",
    "dp_shard": "data",
    "dp_replicate": "data",
    "ep": "expert",
    "cp": "context",
    "tp": "tensor",
}
"""The axis of a name: of torch's documentation and torchtitan, beside zoo's own."""


@dataclass(frozen=True)
class Ranks:
    """A rank among `world`, its place on each axis and the ranks of the axis, if they are known, and the micro-batches of a step."""

    rank: int
    world: int
    mesh: Mapping[str, tuple[int, int]] | None
    micro_batches: int
    run: str | None = None
    """A word that the ranks of one run share, and no others."""

    @classmethod
    def here(cls, mesh: "DeviceMesh | Mapping[str, tuple[int, int]] | None", micro_batches: int) -> "Ranks":
        """The rank of this process; all ranks call this. Raises ValueError if the mesh has unknown dimensions, or another number of
        ranks."""
        if micro_batches < 1:
            raise ValueError(f"{micro_batches} micro-batches: a step has at least one")
        several = distributed.is_available() and distributed.is_initialized()
        rank, world = (distributed.get_rank(), distributed.get_world_size()) if several else (0, 1)
        places = None if mesh is None else _places(mesh, world)
        return cls(rank, world, places, micro_batches, _run(distributed.group.WORLD) if world > 1 else None)

    def described(self) -> dict | None:
        """What capture.json says of the rank; None if it has the whole step."""
        if self.world == self.micro_batches == 1:
            return None
        axes = {axis: {"place": place, "ranks": ranks} for axis, (place, ranks) in (self.mesh or {}).items()}
        known = {"run": self.run, "mesh": axes}
        said = {"rank": self.rank, "world": self.world} | {key: value for key, value in known.items() if value}
        return said | {"micro_batches": self.micro_batches}

    @property
    def first(self) -> bool:
        """Whether the inputs of its network are those of the whole network."""
        return self._stage()[0] == 0

    @property
    def last(self) -> bool:
        """Whether the outputs of its network are those of the whole network."""
        place, stages = self._stage()
        return place == stages - 1

    def _stage(self) -> tuple[int, int]:
        return (self.mesh or {}).get("pipeline", (0, 1))

    def micro_batch(self, number: int) -> str:
        """What the names of a micro-batch begin with."""
        return f"micro{number}/" if self.micro_batches > 1 else ""

    def placed(self, tensor: torch.Tensor, *, of_samples: bool = False) -> dict[str, int | str] | None:
        """What of the whole tensor is local: by axis the dimension that the ranks share, in the order in which they divide it, or
        `sum` if it is the sum of what all have. Axes on which it is replicated are left out.

        None if not all is known: of plain tensors, of other operations over what all have, and `of_samples` if its mesh has tensor ranks alone, while data ranks have other
        samples. A parameter is the same there.
        """
        if not is_distributed(tensor) or of_samples and tensor.device_mesh.size() * self._stage()[1] != self.world:
            return None
        # Of one dimension, FSDP divides what others have divided before; a _StridedShard says into how many parts.
        axes = zip(self._axes(tensor.device_mesh), tensor.placements, strict=True)
        order = sorted(axes, key=lambda each: getattr(each[1], "split_factor", 1))
        if any(how.is_partial() and how.reduce_op != "sum" for _, how in order):
            return None
        return {axis: how.reduce_op if how.is_partial() else how.dim for axis, how in order if axis is not None and not how.is_replicate()}

    def _axes(self, mesh: "DeviceMesh") -> list[str | None]:
        """The axis of each dimension of a mesh, None if it has one rank."""
        if mesh.mesh_dim_names is not None:
            found = [None if size == 1 else _axis(name) for name, size in zip(mesh.mesh_dim_names, mesh.shape, strict=True)]
        else:
            shared = [axis for axis, (_, ranks) in (self.mesh or {}).items() if ranks > 1]
            if len(shared) != 1 or mesh.ndim != 1:
                raise ValueError("the mesh of a DTensor has no names of dimensions: give init_device_mesh(..., mesh_dim_names=...)")
            found = list(shared)
        for axis, size in zip(found, mesh.shape, strict=True):
            if axis is not None and self.mesh is not None and self.mesh.get(axis, (0, 1))[1] != size:
                raise ValueError(f"the mesh of a DTensor has {size} ranks of `{axis}`, the capture's has {self.mesh.get(axis, (0, 1))[1]}")
        return found


def is_distributed(tensor: torch.Tensor) -> bool:
    """Whether it is a DTensor, which older versions of torch keep in another module."""
    return hasattr(tensor, "to_local") and hasattr(tensor, "placements")


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank has of a tensor."""
    return tensor.to_local() if is_distributed(tensor) else tensor


@cache
def _run(group: "distributed.ProcessGroup") -> str:
    """Drawn by the first rank of the group."""
    word = [uuid.uuid4().hex]
    distributed.broadcast_object_list(word, src=0, group=group)
    return word[0]


def _places(mesh: "DeviceMesh | Mapping[str, tuple[int, int]]", world: int) -> dict[str, tuple[int, int]]:
    places: dict[str, tuple[int, int]] = {}
    for name, (place, ranks) in (mesh if isinstance(mesh, Mapping) else _dimensions(mesh)).items():
        axis = _axis(name)
        if axis in places:
            raise ValueError(f"the mesh has `{axis}` twice")
        if not 0 <= place < ranks:
            raise ValueError(f"place {place} of {ranks} ranks of `{name}`: places are counted from 0")
        places[axis] = place, ranks
    if (held := prod(ranks for _, ranks in places.values())) != world:
        raise ValueError(f"the mesh has {held} ranks, torch.distributed has {world}")
    return places


def _dimensions(mesh: "DeviceMesh") -> dict[str, tuple[int, int]]:
    coordinate = mesh.get_coordinate()
    if mesh.mesh_dim_names is None or coordinate is None:
        raise ValueError("the mesh needs names of its dimensions, init_device_mesh(..., mesh_dim_names=('dp', 'tp')), and this rank")
    return {name: (place, ranks) for name, place, ranks in zip(mesh.mesh_dim_names, coordinate, mesh.shape, strict=True)}


def _axis(name: str) -> str:
    if name not in NAMES:
        raise ValueError(f"unknown dimension `{name}` of a mesh: known are {', '.join(NAMES)}")
    return NAMES[name]
