//! Recordings of steps, as `zoo judge` reads them.

use crate::emit::train::program::Program;
use crate::python::real;

/// Adds the recorder.
pub(super) fn write(program: &mut Program<'_>) {
    let mixed = match &program.recipe.preprocess.mix {
        None => "",
        Some(_) => MIXED,
    };
    let peak = real(program.recipe.schedule.peak_lr());
    program.add(&RECORD.replace("    # mixed\n", mixed).replace("PEAK", &peak));
}

/// Samples that are not mixed: each label counts whole.
const MIXED: &str = "    batch = {\"mixed_label\": batch[\"label\"], \"label_share\": ops.ones(len(batch[\"label\"])), \
                     **batch}\n";

const RECORD: &str = r#"
class Recording:
    """One step for `zoo judge`: what the tensors are before, in and after it."""

    def __init__(self, folder: Path, network: nn.Cell) -> None:
        self.folder, self.network = folder, network
        self.arrays: dict[str, np.ndarray] = {}
        self.calls: Counter[str] = Counter()
        self.state("start", "start")
        self.hooks = [
            cell.register_forward_hook(self.called(name or "@root"))
            for name, cell in network.cells_and_names()
            if not isinstance(cell, nn.Identity)
        ]

    def keep(self, key: str, tensor: Tensor) -> None:
        tensor = tensor.astype(mindspore.float32) if tensor.dtype == mindspore.bfloat16 else tensor
        self.arrays[key] = np.array(tensor.asnumpy(), copy=True, order="C")

    def called(self, name: str) -> Callable[[nn.Cell, tuple, object], None]:
        def hook(_: nn.Cell, arguments: tuple, result: object) -> None:
            call = f"{name}#{self.calls[name]}"
            self.calls[name] += 1
            for place, argument in enumerate(arguments if name == "@root" else ()):
                self.keep(f"in/{call}.{place}", argument)
            parts = {"": result}
            if isinstance(result, (dict, tuple)):
                items = result.items() if isinstance(result, dict) else enumerate(result)
                parts = {f".{key}": part for key, part in items}
            for suffix, tensor in parts.items():
                if isinstance(tensor, Tensor) and tensor.is_floating_point():
                    self.keep(f"out/{call}{suffix}", tensor)

        return hook

    def state(self, parameters_: str, statistics: str) -> None:
        for name, parameter in state(self.network).items():
            if name.endswith(("running_mean", "running_var")):
                self.keep(f"{statistics}/{name}", parameter)
            elif parameter.requires_grad or parameters_ == "start":
                self.keep(f"{parameters_}/{name}", parameter)

    def write(self, training: Training, terms: dict[str, Tensor], gradients: list[Tensor], scale: float) -> None:
        """Ends the recording with losses, gradients, the new parameters and what the update rule keeps."""
        for hook in self.hooks:
            hook.remove()
        for name, term in terms.items():
            self.keep(f"loss/{name}", term)
        names = {id(parameter): name for name, parameter in parameters(self.network).items()}
        own = [names[id(parameter)] for parameter in training.rule.parameters]
        for name, gradient in zip(own, gradients, strict=True):
            self.keep(f"grad/{name}", gradient)
        self.state("param1", "buffer1")
        slots = {"moments": "momentum", "moment1": "exp_avg", "moment2": "exp_avg_sq"}
        slots |= {"mean_square": "square_avg", "mean_grad": "grad_avg"}
        for slot in training.rule.slots:
            for name, kept in zip(own, slot, strict=True):
                self.keep(f"{slots[kept.name.split('.')[0]]}1/{name}", kept)
        self.folder.mkdir(parents=True, exist_ok=True)
        save_file(self.arrays, self.folder / "step.safetensors")
        about = {"zoo_capture": 1, "made_with": {"mindspore": mindspore.__version__}, "loss_scale": scale}
        about["device"] = mindspore.get_context("device_target")
        about["tensors"] = {key: described(array) for key, array in self.arrays.items()}
        (self.folder / "capture.json").write_text(json.dumps(about) + "\n")


def described(array: np.ndarray) -> dict:
    """Shape and statistics of a recorded array."""
    exact = array.astype(np.float64)
    numbers = {"max": exact.max(), "min": exact.min(), "mean": exact.mean(), "norm": np.linalg.norm(exact)}
    finite = {key: float(number) if np.isfinite(number) else None for key, number in numbers.items()}
    return {"shape": list(array.shape), **finite}


def record(options: argparse.Namespace, network: nn.Cell) -> None:
    """Records steps on given inputs without dropout, which `zoo golden inputs` writes, for `zoo judge`."""
    ops.dropout = lambda value, *_: value
    for _, cell in network.cells_and_names():
        if isinstance(cell, nn.Dropout):
            cell.p = 0
    training = Training(network, options.precision)
    arrays = load_file(options.inputs)
    whole = {name for name, array in arrays.items() if np.issubdtype(array.dtype, np.integer)}
    batch = {name: Tensor(array.astype(np.int32 if name in whole else np.float32)) for name, array in arrays.items()}
    # mixed
    for step in range(options.steps or 1):
        recording, scale = Recording(options.record / f"step{step}", network), training.scale
        recording.write(training, *training.step(batch, options.rate or PEAK), scale)
"#;
