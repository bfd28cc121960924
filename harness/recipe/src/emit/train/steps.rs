//! What trains: the step, the loop over the steps, and what both need.

use super::program::Program;
use super::{epochs, options, profile, record, shard, training};
use crate::diagnostic::Diagnostic;

/// Adds the numbers at the top.
pub(super) fn constants(program: &mut Program<'_>) {
    let train = &program.recipe.train;
    let mut constants = format!("BATCH = {}\n\"\"\"Samples per step, of all processes together.\"\"\"\n", train.batch);
    constants += &format!("EPOCHS = {}\n", train.epochs);
    if let Some(most) = train.max_steps {
        constants += &format!("MAX_STEPS = {most}\n");
    }
    constants += "PRECISIONS = {\"fp32\": None, \"bf16\": torch.bfloat16, \"fp16\": torch.float16}\n";
    program.add(&constants);
}

/// Adds the rest of the program.
pub(super) fn write(program: &mut Program<'_>) -> Result<(), Diagnostic> {
    if !program.prepared {
        program.add(ORDER);
    }
    program.add(SUMMED);
    shard::write(program);
    let training = training::training(program)?;
    program.add(&training);
    record::write(program);
    profile::write(program);
    let options = options::options(program);
    program.add(&options);
    program.add(PLACE);
    program.add(TELL);
    program.add(LOAD);
    let main = epochs::main(program);
    program.add(&main);
    program.add("if __name__ == \"__main__\":\n    sys.exit(main())");
    Ok(())
}

const ORDER: &str = r#"
class Order:
    """Batches of (epoch, index), from a step on: the samples of each epoch in random order, without the rest that is no
    batch. Each process has its share of every batch."""

    def __init__(self, samples: int, seed: int, steps: range, rank: int, ranks: int) -> None:
        self.samples, self.seed, self.steps, self.rank, self.ranks = samples, seed, steps, rank, ranks

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        order: list[int] = []
        for step in self.steps:
            epoch, place = divmod(step, self.samples // BATCH)
            if not order or place == 0:
                generator = torch.Generator().manual_seed(hash((self.seed, epoch)))
                order = torch.randperm(self.samples, generator=generator).tolist()
            batch = order[place * BATCH : (place + 1) * BATCH]
            yield [(epoch, index) for index in batch[self.rank :: self.ranks]]
"#;

const SUMMED: &str = r#"
def summed(sums: Tensor, device: torch.device) -> Tensor:
    """The sum over all processes."""
    if distributed.is_initialized():
        # NPUs have no float64.
        shared = sums.to(device, torch.float32 if device.type == "npu" else sums.dtype, copy=True)
        distributed.all_reduce(shared)
        return shared.double().cpu()
    return sums
"#;

const PLACE: &str = r#"
def place(name: str) -> torch.device:
    """The device of this process; `torchrun` starts several."""
    if name == "npu":
        importlib.import_module("torch_npu")
    if name == "cpu":
        device = torch.device(name)
    else:
        device = torch.device(name, int(os.environ.get("LOCAL_RANK", "0")))
        getattr(torch, name).set_device(device)
    if "RANK" in os.environ:
        distributed.init_process_group({"cpu": "gloo", "cuda": "nccl", "npu": "hccl"}[name])
    return device
"#;

const LOAD: &str = r#"
def load(network: nn.Module, path: Path) -> None:
    """Loads a state_dict, in which a parameter that several modules share has one name."""
    missing, unknown = network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True), strict=False)
    own = [name for name, _ in (*network.named_parameters(), *network.named_buffers())]
    missing = [name for name in missing if name in own and not name.endswith("num_batches_tracked")]
    if missing or unknown:
        raise SystemExit(f"{path} lacks {missing}, and has {unknown} that the network lacks")
"#;

const TELL: &str = r#"
def tell(log: TextIO, event: dict) -> None:
    """Writes an event to the log, and shows it."""
    print(", ".join(f"{key} {value:.5g}" for key, value in event.items()), flush=True)
    log.write(json.dumps(event) + "\n")
    log.flush()
"#;
