"""python -m unittest tests.test_ranks (in golden/export): two processes record what each of them has, in half a minute."""

import json
import tempfile
import unittest
from pathlib import Path
from unittest.mock import Mock

try:
    import torch
    from safetensors.torch import load_file
    from torch import distributed, multiprocessing, nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    from torch.distributed.tensor import DTensor, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
    from torch.utils.checkpoint import checkpoint

    from zoo_golden.capture import Capture
    from zoo_golden.ranks import Ranks, _places
except (ImportError, ModuleNotFoundError) as missing:
    raise unittest.SkipTest(f"{missing.name} is not installed") from missing

WORLD = 2


class Named(unittest.TestCase):
    def test_a_place_on_each_axis(self):
        self.assertEqual(_places({"dp": (0, 2), "tensor": (1, 3)}, 6), {"data": (0, 2), "tensor": (1, 3)})
        for mesh, world, message in [
            ({"dp": (0, 2)}, 4, "the mesh has 2 ranks, torch.distributed has 4"),
            ({"dp": (0, 2), "fsdp": (1, 2)}, 4, "`data` twice"),
            ({"tp": (2, 2)}, 2, "place 2 of 2 ranks"),
            ({"rows": (0, 2)}, 2, "unknown dimension `rows`"),
        ]:
            with self.assertRaisesRegex(ValueError, message):
                _places(mesh, world)

    def test_a_rank_alone_says_nothing_of_ranks(self):
        self.assertIsNone(Ranks.here(None, 1).described())
        self.assertEqual(Ranks.here(None, 2).described(), {"rank": 0, "world": 1, "micro_batches": 2})
        with self.assertRaisesRegex(ValueError, "torch.distributed has 1"):
            Ranks.here({"tensor": (0, 2)}, 1)
        with self.assertRaisesRegex(ValueError, "at least one"):
            Ranks.here(None, 0)

    def test_what_is_said_of_a_rank(self):
        self.assertEqual(Ranks(1, 2, None, 1).described(), {"rank": 1, "world": 2, "micro_batches": 1})
        said = Ranks(1, 2, {"tensor": (1, 2)}, 3).described()
        self.assertEqual(said, {"rank": 1, "world": 2, "mesh": {"tensor": {"place": 1, "ranks": 2}}, "micro_batches": 3})

    def test_plain_tensors_have_no_placement(self):
        self.assertIsNone(Ranks(0, 2, None, 1).placed(torch.ones(2)))

    def test_what_fsdp_divides_after_others_comes_last(self):
        mesh = Mock(mesh_dim_names=("dp", "tp"), shape=(2, 2), size=lambda: 4)
        strided = Mock(dim=0, split_factor=2, is_partial=lambda: False, is_replicate=lambda: False)
        both = Mock(device_mesh=mesh, placements=(strided, Shard(0)))
        ranks = Ranks(0, 4, {"data": (0, 2), "tensor": (0, 2)}, 1)
        self.assertEqual(list(ranks.placed(both).items()), [("tensor", 0), ("data", 0)])
        with self.assertRaisesRegex(ValueError, "2 ranks of `data`, the capture's has 4"):
            Ranks(0, 4, {"data": (0, 4)}, 1).placed(both)

    def test_samples_on_a_part_of_the_ranks_may_be_others_elsewhere(self):
        mesh = Mock(mesh_dim_names=("tp",), shape=(2,), size=lambda: 2)
        tokens = Mock(device_mesh=mesh, placements=(Shard(1),))
        ranks = Ranks(0, 4, {"data": (0, 2), "tensor": (0, 2)}, 1)
        self.assertEqual(ranks.placed(tokens), {"tensor": 1})
        self.assertIsNone(ranks.placed(tokens, of_samples=True))
        staged = Ranks(0, 4, {"pipeline": (0, 2), "tensor": (0, 2)}, 1)
        self.assertEqual(staged.placed(tokens, of_samples=True), {"tensor": 1})


class Recorded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        multiprocessing.spawn(_record, (cls.folder,), WORLD)

    def read(self, name: str, rank: int) -> tuple[dict, dict]:
        folder = self.folder / name / f"rank{rank}"
        return load_file(folder / "step.safetensors"), json.loads((folder / "capture.json").read_text())

    def test_parts_of_fsdp_are_local_and_placed(self):
        whole = torch.full((5, 3), 2.0)  # two micro-batches of a one, whose mean over two ranks is one
        for rank, rows in enumerate((3, 2)):
            found, about = self.read("fsdp", rank)
            mesh = {"data": {"place": rank, "ranks": 2}}
            run = self.read("fsdp", 1 - rank)[1]["ranks"]["run"]
            self.assertEqual(about["ranks"], {"rank": rank, "world": 2, "run": run, "mesh": mesh, "micro_batches": 2})
            for key in ("start/weight", "grad/weight", "param1/weight", "exp_avg1/weight"):
                self.assertEqual((found[key].shape, about["tensors"][key]["placed"]), ((rows, 3), {"data": 0}), key)
            self.assertTrue(torch.equal(found["grad/weight"], whole[:rows]))
            outputs = {key for key in found if key.endswith("out/@root#0")}
            self.assertEqual(outputs, {"micro0/out/@root#0", "micro1/out/@root#0"})
            self.assertNotIn("placed", about["tensors"]["micro1/out/@root#0"])
            self.assertTrue(torch.equal(found["micro1/in/@root#0.0"], torch.ones(1, 3)))

    def test_tensor_ranks_have_columns_rows_and_tokens(self):
        placed = {"start/0.weight": {}, "start/1.weight": {"tensor": 0}, "start/3.weight": {"tensor": 1}, "out/0#0": {"tensor": 1}}
        for rank in range(WORLD):
            found, about = self.read("tensor", rank)
            self.assertEqual({key: about["tensors"][key]["placed"] for key in placed}, placed)
            self.assertEqual(about["tensors"]["grad/0.weight"]["placed"], {"tensor": "sum"})
            self.assertEqual((found["start/1.weight"].shape, found["out/0#0"].shape), ((3, 4), (1, 2, 4)))

    def test_stages_have_names_of_the_whole_network(self):
        for rank, module in enumerate(("first", "second")):
            found, about = self.read("pipeline", rank)
            self.assertEqual(about["ranks"]["mesh"], {"pipeline": {"place": rank, "ranks": 2}})
            outputs = {key for key in found if "/out/" in key and "@root" not in key}
            self.assertEqual(outputs, {f"micro{micro}/out/{module}#0" for micro in range(3)})
            self.assertEqual({key for key in found if key.startswith("grad/")}, {f"grad/{module}.weight"})
            self.assertEqual("loss/loss" in found, rank == 1)
            own = {key.partition("/")[2] for key in found if "@root" in key}
            self.assertEqual(own, {"in/@root#0.0"} if rank == 0 else {"out/@root#0"})

    def test_gradients_are_those_when_all_are_summed(self):
        for name in ("told", "untold"):
            for rank in range(WORLD):
                found, _ = self.read(name, rank)
                self.assertTrue(torch.equal(found["grad/weight"], torch.full((2, 3), 3.0)), name)

    def test_each_rank_has_its_part_of_the_state(self):
        kept = [{key for key in self.read("zero", rank)[0] if key.startswith("exp_avg1/")} for rank in range(WORLD)]
        self.assertEqual(kept[0] ^ kept[1], {"exp_avg1/first.weight", "exp_avg1/second.weight"})

    def test_a_forward_pass_that_is_repeated_to_save_memory_is_recorded_once(self):
        found, _ = self.read("again", 0)
        self.assertEqual({key for key in found if "out/" in key}, {"out/inner#0", "out/@root#0"})

    def test_what_cannot_be_recorded_is_refused(self):
        refused = json.loads((self.folder / "refused0.json").read_text())
        self.assertRegex(refused["no step"], "call capture.gradients")
        self.assertRegex(refused["scaled"], "before the gradients are unscaled")
        self.assertRegex(refused["passes"], "1 forward passes of @root inside a capture of 2 micro-batches")
        self.assertRegex(refused["names"], "mesh_dim_names")


class Chain(nn.Module):
    """Layers by name, one after the other."""

    def __init__(self, **layers: nn.Module):
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x):
        for layer in self.children():
            x = layer(x)
        return x


class Repeated(nn.Module):
    """Computes its layer again in the backward pass."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)


def ones(*shape: int) -> nn.Linear:
    layer = nn.Linear(*shape, bias=False)
    nn.init.ones_(layer.weight)
    return layer


def _record(rank: int, folder: Path) -> None:
    """What a process of two records."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    _fsdp(folder / "fsdp")
    _tensor(folder / "tensor")
    _pipeline(folder / "pipeline", rank)
    _summed(folder, rank)
    _zero(folder / "zero")
    repeated = Repeated()
    with Capture(folder / "again", repeated):
        repeated(torch.ones(1, 3)).sum().backward()
    (folder / f"refused{rank}.json").write_text(json.dumps(_refused(folder / "refused")))
    distributed.destroy_process_group()


def _fsdp(folder: Path) -> None:
    mesh = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("dp",))
    layer = ones(3, 5)
    fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(layer.parameters())
    with Capture(folder, layer, optimizer, mesh=mesh, micro_batches=2):
        for _ in range(2):
            layer(torch.ones(1, 3)).sum().backward()
        optimizer.step()


def _tensor(folder: Path) -> None:
    mesh = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("tp",))
    network = nn.Sequential(nn.RMSNorm(4), ones(4, 6), nn.ReLU(), ones(6, 4))
    plan = {"0": SequenceParallel(), "1": ColwiseParallel(), "3": RowwiseParallel()}
    parallelize_module(network, mesh, plan)
    with Capture(folder, network, mesh=mesh):
        network(torch.ones(1, 2, 4)).sum().backward()


def _pipeline(folder: Path, rank: int) -> None:
    mesh = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("pp",))
    network = Chain(**{("first", "second")[rank]: ones(3, 3)})
    taken, sent = torch.ones(1, 3, requires_grad=rank > 0), torch.ones(1, 3, requires_grad=True)
    stage = PipelineStage(network, rank, WORLD, torch.device("cpu"), input_args=taken, output_args=sent)
    schedule = Schedule1F1B(stage, 3, loss_fn=lambda output, target: (output - target).square().sum(), scale_grads=False)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    losses: list[torch.Tensor] = []
    with Capture(folder, network, optimizer, mesh=mesh, micro_batches=3) as capture:
        given = torch.arange(9.0).view(3, 3)
        schedule.step(*([given] if rank == 0 else []), target=given if rank == 1 else None, losses=losses)
        if losses:
            capture.loss(torch.stack(losses).sum())
        optimizer.step()


def _summed(folder: Path, rank: int) -> None:
    """Gradients of one and two, and clipping; the optimizer of the second run steps without it."""
    for name in ("told", "untold"):
        layer = ones(3, 2)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        with Capture(folder / name, layer, optimizer, mesh={"dp": (rank, WORLD)}) as capture:
            ((rank + 1) * layer(torch.ones(1, 3))).sum().backward()
            distributed.all_reduce(layer.weight.grad)
            if name == "told":
                capture.gradients()
                nn.utils.clip_grad_norm_(layer.parameters(), 0.1)
            optimizer.step()


def _zero(folder: Path) -> None:
    network = Chain(first=ones(3, 3), second=ones(3, 3))
    optimizer = ZeroRedundancyOptimizer(network.parameters(), torch.optim.AdamW, lr=0.1)
    with Capture(folder, network, optimizer):
        network(torch.ones(1, 3)).sum().backward()
        optimizer.step()


def _refused(folder: Path) -> dict[str, str]:
    layer = ones(3, 2)
    unnamed = nn.Linear(2, 2, bias=False)
    unnamed.weight = nn.Parameter(DTensor.from_local(torch.ones(1, 2), init_device_mesh("cpu", (WORLD,))))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def once(step: bool, **given) -> None:
        with Capture(folder, given.pop("network", layer), optimizer, **given):
            layer(torch.ones(1, 3)).sum().backward()
            if step:
                optimizer.step()

    said: dict[str, str] = {}
    for name, step, given in [
        ("no step", False, {}),
        ("scaled", True, {"loss_scale": 8.0}),
        ("passes", True, {"micro_batches": 2}),
        ("names", True, {"network": unnamed}),
    ]:
        try:
            once(step, **given)
        except (RuntimeError, ValueError) as error:
            said[name] = str(error)
    return said


if __name__ == "__main__":
    unittest.main()
