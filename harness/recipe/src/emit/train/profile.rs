//! The profile of some steps (`--profile`).

use super::program::Program;

/// Adds its functions.
pub(super) fn write(program: &mut Program<'_>) {
    program.add(RANGED);
    program.add(PROFILER);
}

const RANGED: &str = r#"
def ranged(name: str, module: nn.Module) -> None:
    """Shows the calls of a module as ranges of a profile."""
    calls: list[record_function] = []

    def begin(*_: object) -> None:
        calls.append(record_function(f"forward/{name}"))
        calls[-1].__enter__()

    def end(*_: object) -> None:
        calls.pop().__exit__(None, None, None)

    module.register_forward_pre_hook(begin)
    module.register_forward_hook(end)
"#;

const PROFILER: &str = r#"
def profiler(folder: Path, network: nn.Module, device: torch.device) -> torch.profiler.profile:
    """Profiles three steps after two others, with a range for each module."""
    for name, module in network.named_modules():
        ranged(name or "network", module)
    tools = importlib.import_module("torch_npu.profiler" if device.type == "npu" else "torch.profiler")
    kinds = {"CPU", device.type.upper()}
    return tools.profile(
        activities=[getattr(tools.ProfilerActivity, kind) for kind in sorted(kinds)],
        record_shapes=True,
        schedule=tools.schedule(wait=1, warmup=1, active=3),
        on_trace_ready=tools.tensorboard_trace_handler(str(folder)),
    )
"#;
