//! Recordings of steps, as `zoo judge` reads them.

use super::program::Program;
use super::real;
use crate::schema::LossScale;

/// Adds the recorder; whether there is one.
pub(super) fn write(program: &mut Program<'_>) {
    if !possible(program) {
        return;
    }
    let recipe = program.recipe;
    program.add(RECORDING);
    let scale = match &recipe.npu.loss_scale {
        LossScale::None => "1.0",
        LossScale::Fixed(_) => "training.scale",
        LossScale::Dynamic(_) => "training.scaler.get_scale()",
    };
    let mixed = match &recipe.preprocess.mix {
        None => "",
        Some(_) => {
            "    shares = torch.ones(len(batch[\"label\"]), device=device)\n    batch = {\"mixed_label\": \
                    batch[\"label\"], \"label_share\": shares, **batch}\n"
        }
    };
    let more = if recipe.train.lookahead.is_some() { ", sys.maxsize" } else { "" };
    let peak = real(recipe.schedule.peak_lr());
    program.add(
        &RECORD.replace("    # mixed\n", mixed).replace("SCALE", scale).replace("PEAK", &peak).replace("MORE", more),
    );
}

/// Whether a step calls the network once, as recordings need it.
pub(super) fn possible(program: &Program<'_>) -> bool {
    program.recipe.npu.accumulate == 1
}

const RECORDING: &str = r#"
class Recording:
    """One step for `zoo judge`: what the tensors are before, in and after it."""

    def __init__(self, folder: Path, network: nn.Module, rule: torch.optim.Optimizer, loss_scale: float) -> None:
        self.folder, self.network, self.rule, self.loss_scale = folder, network, rule, loss_scale
        self.tensors: dict[str, Tensor] = {}
        self.calls: Counter[str] = Counter()
        self.state("start", "start")
        self.hooks = [
            module.register_forward_hook(self.called(name or "@root"))
            for name, module in network.named_modules()
            if not isinstance(module, nn.Identity)
        ]
        for name, parameter in network.named_parameters():
            if parameter.requires_grad:
                self.hooks.append(parameter.register_post_accumulate_grad_hook(self.differentiated(name)))

    def keep(self, key: str, tensor: Tensor) -> None:
        self.tensors[key] = tensor.detach().to("cpu", copy=True).contiguous()

    def called(self, name: str) -> Callable[[nn.Module, tuple, object], None]:
        def hook(_: nn.Module, arguments: tuple, result: object) -> None:
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

    def differentiated(self, name: str) -> Callable[[Tensor], None]:
        return lambda parameter: self.keep(f"grad/{name}", parameter.grad)

    def state(self, parameters: str, buffers: str) -> None:
        for name, parameter in self.network.named_parameters():
            if parameters == "start" or parameter.grad is not None:
                self.keep(f"{parameters}/{name}", parameter)
        for name, buffer in self.network.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                self.keep(f"{buffers}/{name}", buffer)

    def write(self, terms: dict[str, Tensor]) -> None:
        """Ends the recording with the losses, the new parameters and what the optimizer keeps."""
        for hook in self.hooks:
            hook.remove()
        for name, term in terms.items():
            self.keep(f"loss/{name}", term)
        self.state("param1", "buffer1")
        for name, parameter in self.network.named_parameters():
            for slot, kept in self.rule.state.get(parameter, {}).items():
                if slot != "step" and isinstance(kept, Tensor):
                    self.keep(f"{'momentum' if slot == 'momentum_buffer' else slot}1/{name}", kept)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write_tensors(self.folder / "step.safetensors")
        about = {"zoo_capture": 1, "made_with": {"torch": torch.__version__}, "loss_scale": self.loss_scale}
        about["device"] = str(next(self.network.parameters()).device)
        about["tensors"] = {key: described(tensor) for key, tensor in self.tensors.items()}
        (self.folder / "capture.json").write_text(json.dumps(about) + "\n")

    def write_tensors(self, path: Path) -> None:
        kinds = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
        header, end = {}, 0
        for key, tensor in self.tensors.items():
            span = [end, end := end + tensor.nbytes]
            header[key] = {"dtype": kinds.get(tensor.dtype, "I64"), "shape": list(tensor.shape), "data_offsets": span}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with path.open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for tensor in self.tensors.values():
                file.write(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())


def described(tensor: Tensor) -> dict:
    """Shape and statistics of a recorded tensor."""
    exact = tensor.double()
    numbers = {"max": exact.max(), "min": exact.min(), "mean": exact.mean(), "norm": exact.norm()}
    finite = {key: number.item() if number.isfinite() else None for key, number in numbers.items()}
    return {"shape": list(tensor.shape), **finite}
"#;

const RECORD: &str = r#"
def record(options: argparse.Namespace, network: nn.Module, device: torch.device) -> None:
    """Records steps on given inputs without dropout, which `zoo golden inputs --as pth` writes, for `zoo judge`."""
    functional.dropout = lambda value, *_: value
    training = Training(network.to(device), device, options.precision, 1)
    training.enter(0)
    given = torch.load(options.inputs, map_location=device, weights_only=True)
    batch = {name: value.long() if value.dtype == torch.int32 else value for name, value in given.items()}
    # mixed
    for step in range(options.steps or 1):
        recording = Recording(options.record / f"step{step}", network, training.rule, SCALE)
        recording.write(training.step(batch, options.rate or PEAKMORE))
"#;
