//! Options, the step, and the loop over the steps.

use super::evaluate::{Scored, scored};
use super::parts;
use super::program::Program;
use super::{profile, real, record, shard};
use crate::diagnostic::Diagnostic;
use crate::python::Code;
use crate::schema::{Clip, LossScale, Precision, SampleKind, Source};

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
    let training = training(program)?;
    program.add(&training);
    record::write(program);
    profile::write(program);
    let options = options(program);
    program.add(&options);
    program.add(PLACE);
    program.add(TELL);
    program.add(LOAD);
    let main = main(program);
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

/// The class of the training.
fn training(program: &Program<'_>) -> Result<String, Diagnostic> {
    let recipe = program.recipe;
    let (ema, lookahead) = (recipe.train.ema.is_some(), recipe.train.lookahead.is_some());
    let shards = shard::possible(program);
    let (signature, average) = (if shards { SHARDED } else { ALONE }, "copy.deepcopy(network).requires_grad_(False)");
    let mut text = TRAINING.trim().replace("SIGNATURE", signature.trim_matches('\n'));
    text = text.replace(
        "        # average\n",
        &if ema { format!("        self.average = {average}\n") } else { String::new() },
    );
    let divide = match (shards, ema) {
        (false, _) => "",
        (true, false) => "        if divides:\n            divide(network)\n",
        (true, true) => "        if divides:\n            divide(network)\n            divide(self.average)\n",
    };
    let mut lines: Vec<String> = text.replace("        # divide\n", divide).lines().map(str::to_owned).collect();
    let mut add = |line: &str| lines.push(line.to_owned());
    let dynamic = match &recipe.npu.loss_scale {
        LossScale::None | LossScale::Fixed(_) => None,
        LossScale::Dynamic(scale) => Some(format!(
            "init_scale={}, growth_factor={}, backoff_factor={}, growth_interval={}",
            real(scale.init),
            real(scale.factor),
            real(1.0 / scale.factor),
            scale.window
        )),
    };
    let fixed = match &recipe.npu.loss_scale {
        LossScale::None | LossScale::Dynamic(_) => None,
        LossScale::Fixed(scale) => Some(scale),
    };
    if recipe.gradients.clip_scaled {
        let message = "clipping of scaled gradients is not written in PyTorch yet";
        return Err(program.refuse("gradients.clip_scaled", message));
    }
    if let Some(settings) = &dynamic {
        add(&format!(
            "        scaling = {{{}}}",
            settings
                .split(", ")
                .map(|s| {
                    let (key, value) = s.split_once('=').unwrap_or((s, ""));
                    format!("\"{key}\": {value}")
                })
                .collect::<Vec<_>>()
                .join(", ")
        ));
        add("        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == \"fp16\", **scaling)");
    }
    if let Some(scale) = fixed {
        add(&format!("        self.scale = {} if precision == \"fp16\" else 1.0", real(scale.scale)));
    }
    if lookahead {
        add("        self.slow = {name: tensor.clone() for name, tensor in weights(network).items()}");
    }
    add("");
    add("    def enter(self, epoch: int) -> None:");
    add("        \"\"\"Prepares for the steps of an epoch.\"\"\"");
    add("        self.epoch = epoch");
    if parts::change(program) {
        add("        if freeze(self.network, self.rule, epoch):");
        add("            self.model = self.shared()");
    }
    add("        self.network.train()");
    if parts::stored(program) {
        add("        keep_statistics(self.network)");
    }
    add("");
    let steps = if lookahead { ", steps: int" } else { "" };
    add(&format!("    def step(self, batch: dict[str, Tensor], learning_rate: float{steps}) -> dict[str, Tensor]:"));
    add("        \"\"\"One update; returns the terms of the loss.\"\"\"");
    add("        set_rate(self.rule, learning_rate)");
    add("        self.rule.zero_grad()");
    let pieces = recipe.npu.accumulate;
    let depth = if pieces > 1 {
        add(&format!("        for part in range({pieces}):"));
        add(&format!(
            "            piece = {{name: value.tensor_split({pieces})[part] for name, value in batch.items()}}"
        ));
        "            "
    } else {
        "        "
    };
    let batch = if pieces > 1 { "piece" } else { "batch" };
    add(&format!("{depth}with self.autocast, record_function(\"forward\"):"));
    add(&format!("{depth}    outputs = {}", program.call("self.model").replace("batch[", &format!("{batch}["))));
    add(&format!("{depth}if self.half:"));
    add(&match program.graph.outputs.len() {
        1 => format!("{depth}    outputs = outputs.float()"),
        _ => format!("{depth}    outputs = {{name: value.float() for name, value in outputs.items()}}"),
    });
    let network = if program.text().contains("def loss(outputs: Tensor, batch: dict[str, Tensor], network")
        || program.text().contains("def loss(outputs: dict[str, Tensor], batch: dict[str, Tensor], network")
    {
        ", self.network"
    } else {
        ""
    };
    add(&format!("{depth}terms = loss(outputs, {batch}{network})"));
    let share = if pieces > 1 { format!(" / {pieces}") } else { String::new() };
    add(&format!("{depth}with record_function(\"backward\"):"));
    let backward = match (&dynamic, fixed) {
        (Some(_), _) => format!("self.scaler.scale(terms[\"loss\"]{share}).backward()"),
        (None, Some(_)) => format!("(terms[\"loss\"]{share} * self.scale).backward()"),
        (None, None) if pieces > 1 => format!("(terms[\"loss\"]{share}).backward()"),
        (None, None) => "terms[\"loss\"].backward()".to_owned(),
    };
    add(&format!("{depth}    {backward}"));
    if dynamic.is_some() {
        add("        self.scaler.unscale_(self.rule)");
    }
    if fixed.is_some() {
        add("        gradients = [p.grad for p in self.network.parameters() if p.grad is not None]");
        add("        torch._foreach_div_(gradients, self.scale)");
    }
    for clip in &recipe.gradients.clip {
        match clip {
            Clip::Norm(bound) => {
                add(&format!("        nn.utils.clip_grad_norm_(self.network.parameters(), {})", real(*bound)));
            }
            Clip::Value(bound) => {
                add(&format!("        nn.utils.clip_grad_value_(self.network.parameters(), {})", real(*bound)));
            }
        }
    }
    let mut tests = Vec::new();
    if let Some(bound) = recipe.gradients.skip_loss_above {
        tests.push(format!("summed(terms[\"loss\"].detach().cpu(), self.device) <= {} * self.ranks", real(bound)));
    }
    if fixed.is_some_and(|scale| scale.skip_overflow) {
        tests.push("all(gradient.isfinite().all() for gradient in gradients)".to_owned());
    }
    let step = if dynamic.is_some() { "self.scaler.step(self.rule)" } else { "self.rule.step()" };
    if tests.is_empty() {
        add("        with record_function(\"update\"):");
        add(&format!("            {step}"));
    } else {
        add(&format!("        if {}:", tests.join(" and ")));
        add("            with record_function(\"update\"):");
        add(&format!("                {step}"));
    }
    if dynamic.is_some() {
        add("        self.scaler.update()");
    }
    add("        self.done += 1");
    if ema {
        add("        follow(self.average, self.network, self.done)");
    }
    if lookahead {
        add("        pull(self.network, self.slow, self.done, steps)");
    }
    add("        return {name: term.detach() for name, term in terms.items()}");
    let mut state = vec![
        "\"network\": self.network.state_dict()".to_owned(),
        "\"rule\": self.rule.state_dict()".to_owned(),
        "\"done\": self.done".to_owned(),
    ];
    let mut load = match shards {
        true => vec!["        fill(self.network, state[\"network\"])", "        fill_rule(self.rule, state[\"rule\"])"],
        false => vec![
            "        self.network.load_state_dict(state[\"network\"])",
            "        self.rule.load_state_dict(state[\"rule\"])",
        ],
    };
    load.push("        self.done = state[\"done\"]");
    if dynamic.is_some() {
        state.push("\"scaler\": self.scaler.state_dict()".to_owned());
        load.push("        self.scaler.load_state_dict(state[\"scaler\"])");
    }
    if ema {
        state.push("\"average\": self.average.state_dict()".to_owned());
        load.push(match shards {
            true => "        fill(self.average, state[\"average\"])",
            false => "        self.average.load_state_dict(state[\"average\"])",
        });
    }
    if lookahead {
        state.push("\"slow\": self.slow".to_owned());
        load.push(match shards {
            true => {
                "        self.slow = {name: divided(kept, self.slow[name]) for name, kept in state[\"slow\"].items()}"
            }
            false => "        self.slow = state[\"slow\"]",
        });
    }
    if parts::leak(program) {
        let named = "for name, p in self.network.named_parameters() if leaks(name)";
        state.push(format!("\"leaked\": {{name: p.grad {named}}}"));
        load.push("        for name, parameter in self.network.named_parameters():");
        load.push("            parameter.grad = state[\"leaked\"].get(name)");
    }
    if shards && shard::has_statistics(program) {
        let buffers = match ema {
            true => "(*self.network.buffers(), *self.average.buffers())",
            false => "self.network.buffers()",
        };
        add("");
        add("    def agree(self) -> None:");
        add("        \"\"\"Gives all processes the running statistics of the first, as DDP does in each step.\"\"\"");
        add(&format!("        for buffer in {buffers} if self.divides else ():"));
        add("            distributed.broadcast(buffer, 0)");
    }
    add("");
    add("    def save(self, path: Path, writes: bool) -> None:");
    add("        \"\"\"Writes a checkpoint, which one process does; the file is complete or absent.\"\"\"");
    add("        state = {");
    state.iter().for_each(|entry| add(&format!("            {entry},")));
    add("        }");
    if shards {
        add("        state = whole(state)");
    }
    add("        if writes:");
    add("            torch.save(state, path.with_suffix(\".new\"))");
    add("            path.with_suffix(\".new\").replace(path)");
    add("");
    add("    def resume(self, path: Path, per_epoch: int) -> None:");
    add("        \"\"\"Goes on from a checkpoint.\"\"\"");
    add("        state = torch.load(path, map_location=self.device, weights_only=True)");
    add("        self.enter(max(state[\"done\"] - 1, 0) // per_epoch)");
    load.iter().for_each(|line| add(line));
    add("");
    add("    def shared(self) -> nn.Module:");
    add("        \"\"\"The network as the steps call it: with gradients summed over all processes.\"\"\"");
    add(if shards { "        if self.ranks == 1 or self.divides:" } else { "        if self.ranks == 1:" });
    add("            return self.network");
    add("        devices = None if self.device.type == \"cpu\" else [self.device.index]");
    add("        return DistributedDataParallel(self.network, devices)");
    Ok(lines.join("\n"))
}

const ALONE: &str = "
    def __init__(self, network: nn.Module, device: torch.device, precision: str, ranks: int) -> None:
        self.network, self.device, self.ranks = network, device, ranks
";

const SHARDED: &str = "
    def __init__(
        self, network: nn.Module, device: torch.device, precision: str, ranks: int, divides: bool = False
    ) -> None:
        self.network, self.device, self.ranks, self.divides = network, device, ranks, divides
";

const TRAINING: &str = r#"
class Training:
    """A network in training: what a checkpoint holds, and the step."""

SIGNATURE
        self.done, self.epoch = 0, -1
        # average
        # divide
        self.rule = optimizer(network)
        self.model = self.shared()
        self.half = precision != "fp32"
        self.autocast = torch.autocast(device.type, PRECISIONS[precision], enabled=self.half)
"#;

/// The function that reads the options.
fn options(program: &Program<'_>) -> String {
    let recipe = program.recipe;
    let mut source = recipe.data.source.clone();
    let data = source.location_mut().filter(|_| !program.prepared).map(|path| path.display().to_string());
    let data = data.unwrap_or_else(|| "data".to_owned());
    let workers = match recipe.data.source.kind() {
        SampleKind::Language => "0",
        SampleKind::Image | SampleKind::Text | SampleKind::LabelMap | SampleKind::Boxes | SampleKind::Video => {
            "min(os.cpu_count() or 1, 16)"
        }
    };
    let workers = if program.prepared { "0" } else { workers };
    let precision = match recipe.npu.precision {
        Precision::AllowMixPrecision | Precision::AllowFp32ToFp16 | Precision::ForceFp16 => "fp16",
        Precision::MustKeepOriginDtype | Precision::Fp32 => "fp32",
        Precision::Bf16 => "bf16",
    };
    let what = match recipe.data.source {
        Source::TextFile(_) => "a text, or a folder of texts",
        _ => "the folder of the data",
    };
    let what = if program.prepared { "what `zoo data make` wrote" } else { what };
    let text = |text: String| Code::text(text);
    let option = |name: &str, arguments: Vec<Code>| {
        let name = std::iter::once(Code::text(format!("\"--{name}\"")));
        Code::call("parser.add_argument", name.chain(arguments).collect())
    };
    let help = |help: &str| text(format!("help=\"{help}\""));
    let path = || text("type=Path".into());
    let whole = |default: String| vec![text("type=int".into()), text(format!("default={default}"))];
    let out = format!("default=Path(\"runs/{}\")", recipe.name);
    let mut options = vec![
        option("data", vec![path(), text(format!("default=Path(\"{data}\")")), help(what)]),
        option("out", vec![path(), text(out), help("folder for checkpoint.pt and log.jsonl")]),
        Code::text("parser.add_argument(\"--device\", choices=[\"cpu\", \"cuda\", \"npu\"], default=\"cpu\")"),
        option(
            "precision",
            vec![
                text("choices=list(PRECISIONS)".into()),
                help(&format!("by default {precision} on an NPU, otherwise fp32")),
            ],
        ),
        option("seed", whole(recipe.train.seed.to_string())),
        option("epochs", whole("EPOCHS".into())),
        option("steps", vec![text("type=int".into()), help("stop after this step, without an evaluation")]),
        option("workers", [whole(workers.to_owned()), vec![help("processes that read the data")]].concat()),
        option("weights", vec![path(), help("a state_dict (torch.save) to start from")]),
        option("resume", vec![text("action=\"store_true\"".into()), help("go on from the checkpoint in --out")]),
        option("profile", vec![path(), help("folder for a profile of three steps, after which it ends")]),
    ];
    if shard::possible(program) {
        let divided = help("divide the network among the processes (FSDP2), which otherwise have copies (DDP)");
        options.push(option("shard", vec![text("action=\"store_true\"".into()), divided]));
    }
    if record::possible(program) {
        options.extend([
            option("record", vec![path(), help("folder for steps on --inputs, for `zoo judge`")]),
            option("inputs", vec![path(), help("inputs of recorded steps (torch.save)")]),
            option("rate", vec![text("type=float".into()), help("learning rate of recorded steps")]),
        ]);
    }
    let mut lines = vec![
        "def arguments() -> argparse.Namespace:".to_owned(),
        "    \"\"\"The options of the command line.\"\"\"".to_owned(),
        format!("    parser = argparse.ArgumentParser(description=\"Trains {}.\")", recipe.name),
    ];
    options.iter().for_each(|option| option.lines(4, "", "", &mut lines));
    lines.push("    options = parser.parse_args()".to_owned());
    let default = format!("(\"{precision}\" if options.device == \"npu\" else \"fp32\")");
    lines.push(match precision {
        "fp32" => "    options.precision = options.precision or \"fp32\"".to_owned(),
        _ => format!("    options.precision = options.precision or {default}"),
    });
    if shard::possible(program) {
        lines.push("    if options.shard and options.precision == \"fp16\":".to_owned());
        lines.push("        parser.error(\"--shard needs --precision fp32 or bf16\")".to_owned());
    }
    lines.push("    return options".to_owned());
    lines.join("\n")
}

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

/// The loop.
fn main(program: &Program<'_>) -> String {
    let recipe = program.recipe;
    let train = &recipe.train;
    let mut steps = "options.epochs * per_epoch".to_owned();
    if train.max_steps.is_some() {
        steps = format!("min({steps}, MAX_STEPS)");
    }
    let network = if train.sync_bn {
        format!("nn.SyncBatchNorm.convert_sync_batchnorm({}())", program.network())
    } else {
        format!("{}()", program.network())
    };
    let mut start = vec!["last = min(steps, options.steps or steps)"];
    if program.prepared {
        start.extend([
            "if last > len(trained):",
            "    raise SystemExit(f\"{options.data} has {len(trained)} of {last} batches\")",
        ]);
    } else if train.whiten.is_some() {
        start.extend(["if not (options.weights or options.resume):", "    whiten(network, HeldOut(trained.images))"]);
    }
    start.extend([
        if shard::possible(program) {
            "training = Training(network.to(device), device, options.precision, ranks, options.shard and ranks > 1)"
        } else {
            "training = Training(network.to(device), device, options.precision, ranks)"
        },
        "if options.resume:",
        "    training.resume(options.out / \"checkpoint.pt\", per_epoch)",
        "options.out.mkdir(parents=True, exist_ok=True)",
        "profile = profiler(options.profile, network, device) if options.profile else None",
        "if profile:",
        "    last = min(last, training.done + 5)",
        "    profile.start()",
    ]);
    let arguments = if train.lookahead.is_some() { ", steps" } else { "" };
    let of = if train.ema.is_some() { "training.average" } else { "network" };
    let (evaluation, checkpoint) = (train.eval_every.emit(), train.checkpoint_every.emit());
    let elsewhere = scored(program.recipe) == Scored::Elsewhere;
    let goal = if recipe.target.is_some() && !elsewhere {
        "0 if training.done < steps or not scores or is_reached(scores) else 1"
    } else {
        "0"
    };
    let agree = match shard::possible(program) && shard::has_statistics(program) {
        true => "            training.agree()\n",
        false => "",
    };
    let mixed = recipe.preprocess.mix.is_some() && !program.prepared;
    // One process predicts all: the samples are in their order then.
    let here = if elsewhere { "0, 1" } else { "rank, ranks" };
    let loaders = if program.prepared { LOAD_PREPARED.replace("HERE", here) } else { LOAD_SAMPLES.to_owned() };
    MAIN.replace("    # samples\n", if program.prepared { OPEN_PREPARED } else { OPEN })
        .replace("    # loaders\n", &loaders)
        .replace("    # scores\n", if elsewhere { "" } else { "    scores: dict[str, float] = {}\n" })
        .replace("            # evaluate\n", if elsewhere { PREDICT } else { EVALUATE })
        .replace("            # agree\n", agree)
        .replace("STEPS", &steps)
        .replace("NETWORK", &network)
        .replace("# start", &start.join("\n    "))
        .replace("        # mix\n", if mixed { "        batch = mix(batch)\n" } else { "" })
        .replace("    # record\n", if record::possible(program) { RECORDED } else { "" })
        .replace("ARGUMENTS", arguments)
        .replace("EVALUATED", of)
        .replace("EVALUATION", &evaluation)
        .replace("CHECKPOINT", &checkpoint)
        .replace("GOAL", goal)
}

const OPEN: &str = "    trained, held_out = samples(options.data, options.seed)
    per_epoch = len(trained) // BATCH
";

const OPEN_PREPARED: &str = "    trained = Prepared(options.data / \"train\", BATCH, rank, ranks)
    per_epoch = json.loads((options.data / \"data.json\").read_text())[\"steps_per_epoch\"]
";

const LOAD_SAMPLES: &str = "    batches = DataLoader(
        trained,
        batch_sampler=Order(len(trained), options.seed, range(training.done, last), rank, ranks),
        num_workers=options.workers,
        pin_memory=device.type == \"cuda\",
    )
    tests = DataLoader(held_out, 256, sampler=range(rank, len(held_out), ranks), num_workers=options.workers)
";

const LOAD_PREPARED: &str =
    "    batches = DataLoader(trained, None, sampler=range(training.done, last), num_workers=options.workers)
    tests = DataLoader(Prepared(options.data / \"held_out\", BATCH, HERE), None, num_workers=options.workers)
";

const EVALUATE: &str = "            scores = evaluate(EVALUATED, tests, training.autocast, device)
            training.epoch = -1
            if log:
                tell(log, {\"step\": done, **scores})
";

const PREDICT: &str =
    "            predict(EVALUATED, tests, training.autocast, device, options.out / \"predictions\", rank == 0)
            training.epoch = -1
";

const RECORDED: &str = "    if options.record:
        record(options, network, device)
        return 0
";

const MAIN: &str = r#"
def main() -> int:
    """Trains the network; 1 if it misses its target."""
    options = arguments()
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = place(options.device)
    torch.manual_seed(options.seed)
    network = NETWORK
    if options.weights:
        load(network, options.weights)
    # record
    # samples
    steps = STEPS
    # start
    # loaders
    evaluation, checkpoint = max(EVALUATION, 1), max(CHECKPOINT, 1)
    # scores
    began, before = time.perf_counter(), training.done
    log = (options.out / "log.jsonl").open("a" if options.resume else "w") if rank == 0 else None
    for batch in batches:
        epoch = training.done // per_epoch
        if epoch != training.epoch:
            training.enter(epoch)
        batch = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
        torch.manual_seed(hash((options.seed, training.done, rank)))
        # mix
        learning_rate = rate(training.done, per_epoch, steps)
        terms = training.step(batch, learning_rateARGUMENTS)
        done = training.done
        if done % 50 == 0 or done == last or done == 1:
            speed = (done - before) * BATCH / (time.perf_counter() - began)
            losses = {name: summed(term.double().cpu(), device).item() / ranks for name, term in terms.items()}
        if log and (done % 50 == 0 or done == last or done == 1):
            tell(log, {"step": done, "epoch": epoch, **losses, "rate": learning_rate, "samples_per_s": round(speed, 1)})
        if done == steps or (done % evaluation == 0 and done < last):
            # agree
            # evaluate
        if done == last or done % checkpoint == 0:
            # agree
            training.save(options.out / "checkpoint.pt", rank == 0)
        if profile:
            profile.step()
    if profile:
        profile.stop()
    return GOAL
"#;
