//! `train.py`: the training as a program of MindSpore.

use super::{data, record};
use crate::diagnostic::Diagnostic;
use crate::emit::train::evaluate;
use crate::emit::train::options::expect_files;
use crate::emit::train::program::Program;
use crate::python::Code;
use crate::python::real;
use crate::schema::{LossScale, Precision, SampleKind};

/// Adds what is behind the rules.
pub(super) fn write(program: &mut Program<'_>) -> Result<(), Diagnostic> {
    possible(program)?;
    data::write(program)?;
    let image = match program.recipe.data.source.kind() {
        SampleKind::Image => true,
        SampleKind::Language => false,
        SampleKind::Text | SampleKind::LabelMap | SampleKind::Boxes | SampleKind::Video => {
            let message = "the evaluation of such samples is not written in MindSpore yet: `--no-data` writes rules.py";
            return Err(program.refuse("data.source", message));
        }
    };
    let logits = program.first_output(&program.call("network"));
    program.add(&(if image { IMAGES } else { TOKENS }).replace("CALL", &logits));
    evaluate::target(program)?;
    program.add(&training(program));
    record::write(program);
    program.add(TELL);
    program.add(&options(program));
    program.add(&main(program));
    program.add("if __name__ == \"__main__\":\n    sys.exit(main())");
    Ok(())
}

/// Refuses what the loop does not have.
fn possible(program: &Program<'_>) -> Result<(), Diagnostic> {
    let (train, recipe) = (&program.recipe.train, program.recipe);
    for (is_there, path) in [
        (train.ema.is_some(), "train.ema"),
        (train.lookahead.is_some(), "train.lookahead"),
        (train.whiten.is_some(), "train.whiten"),
        (train.sync_bn, "train.sync_bn"),
        (recipe.npu.accumulate != 1, "npu.accumulate"),
        (recipe.preprocess.tta.is_some(), "preprocess.tta"),
        (recipe.gradients.clip_scaled, "gradients.clip_scaled"),
        (recipe.gradients.skip_loss_above.is_some(), "gradients.skip_loss_above"),
    ] {
        if is_there {
            let message = format!("{} is not written in MindSpore yet", path.rsplit('.').next().unwrap_or(path));
            return Err(program.refuse(path, message).with_hint("`--no-data` writes rules.py, for a loop of your own"));
        }
    }
    Ok(())
}

const IMAGES: &str = r#"
def evaluate(network: nn.Cell, held_out: HeldOut, workers: int) -> dict[str, float]:
    """Top-1, top-5 and cross entropy of the held-out images."""
    network.set_train(False)
    sums = np.zeros(4)
    places = ([(0, index) for index in range(start, min(start + 256, len(held_out)))] for start in starts(held_out))
    for arrays in batches(held_out, places, workers):
        batch = tensors(arrays)
        logits, label = CALL.astype(mindspore.float32), batch["label"]
        entropy = float(ops.cross_entropy(logits, label, reduction="sum"))
        scores, truth = logits.asnumpy(), label.asnumpy()
        above = (scores > np.take_along_axis(scores, truth[:, None], 1)).sum(1)
        sums += [(above < 1).sum(), (above < 5).sum(), entropy, len(truth)]
    return dict(zip(("top1", "top5", "cross_entropy"), (sums[:3] / sums[3]).tolist(), strict=True))


def starts(held_out: HeldOut) -> range:
    """The first indices of batches for evaluation."""
    return range(0, len(held_out), 256)
"#;

const TOKENS: &str = r#"
def evaluate(network: nn.Cell, held_out: HeldOut, workers: int) -> dict[str, float]:
    """Cross entropy and perplexity of the held-out windows."""
    network.set_train(False)
    sums = np.zeros(2)
    places = ([(0, index) for index in range(start, min(start + 64, len(held_out)))] for start in starts(held_out))
    for arrays in batches(held_out, places, workers):
        batch = tensors(arrays)
        logits, label = CALL.astype(mindspore.float32), batch["label"].flatten()
        entropy = ops.cross_entropy(logits.reshape((-1, logits.shape[-1])), label, reduction="sum")
        sums += [float(entropy), label.size]
    entropy = float(sums[0] / sums[1])
    return {"cross_entropy": entropy, "perplexity": math.exp(entropy)}


def starts(held_out: HeldOut) -> range:
    """The first indices of batches for evaluation."""
    return range(0, len(held_out), 64)
"#;

/// The class of the training.
fn training(program: &Program<'_>) -> String {
    let network = if program.text().contains(", network: nn.Cell)") { ", self.network" } else { "" };
    let outputs = match program.graph.outputs.len() {
        1 => "outputs.astype(mindspore.float32)",
        _ => "{name: value.astype(mindspore.float32) for name, value in outputs.items()}",
    };
    let (start, grow) = match &program.recipe.npu.loss_scale {
        LossScale::None => ("1.0".to_owned(), String::new()),
        LossScale::Fixed(scale) => (real(scale.scale), String::new()),
        LossScale::Dynamic(scale) => (
            real(scale.init),
            DYNAMIC.replace("FACTOR", &real(scale.factor)).replace("WINDOW", &scale.window.to_string()),
        ),
    };
    let skips = match &program.recipe.npu.loss_scale {
        LossScale::None => false,
        LossScale::Fixed(scale) => scale.skip_overflow,
        LossScale::Dynamic(_) => true,
    };
    let clipped = if program.text().contains("def clipped(") { "clipped(gradients)" } else { "gradients" };
    let update = match skips {
        true => format!(
            "        finite = self.scale == 1.0 or all(bool(ops.isfinite(gradient).all()) for gradient in gradients)\n        \
             if finite:\n            self.rule({clipped})\n"
        ),
        false => format!("        self.rule({clipped})\n"),
    };
    TRAINING
        .replace("OUTPUTS", outputs)
        .replace("NETWORK", network)
        .replace("CALL", &program.call("self.model").replace("batch[", "self.batch["))
        .replace("START", &start)
        .replace("        # update\n", &(update + &grow))
}

/// Grows the scale while nothing overflows.
const DYNAMIC: &str = r#"        if self.scale != 1.0:
            self.calm = self.calm + 1 if finite else 0
            if not finite or self.calm == WINDOW:
                self.scale, self.calm = self.scale * (FACTOR if finite else 1 / FACTOR), 0
"#;

const TRAINING: &str = r#"
class Training:
    """A network in training: what a checkpoint holds, and the step."""

    def __init__(self, network: nn.Cell, precision: str) -> None:
        self.network, self.half = network, precision != "fp32"
        self.done, self.calm = 0, 0
        self.scale = START if precision == "fp16" else 1.0
        self.rule = optimizer(network)
        self.model = network
        if self.half:
            self.model = mindspore.amp.auto_mixed_precision(network, "auto", PRECISIONS[precision])
        self.batch: dict[str, Tensor] = {}
        self.names: list[str] = []
        self.differentiate = mindspore.value_and_grad(self.forward, None, self.rule.parameters, has_aux=True)

    def forward(self) -> tuple[Tensor, ...]:
        """The scaled loss, and its terms."""
        outputs = CALL
        if self.half:
            outputs = OUTPUTS
        terms = loss(outputs, self.batchNETWORK)
        self.names = list(terms)
        return terms["loss"] * self.scale, *terms.values()

    def step(self, batch: dict[str, Tensor], learning_rate: float) -> tuple[dict[str, Tensor], list[Tensor]]:
        """One update; returns the terms of the loss, and the gradients."""
        self.network.set_train()
        self.batch = batch
        (_, *terms), gradients = self.differentiate()
        raw = gradients
        if self.scale != 1.0:
            gradients = [gradient / self.scale for gradient in gradients]
        set_rate(self.rule, learning_rate)
        # update
        self.done += 1
        return dict(zip(self.names, terms, strict=True)), raw

    def state(self) -> dict[str, Parameter]:
        """Parameters, running statistics, and what the update rule keeps."""
        kept = {f"rule/{parameter.name}": parameter for parameter in self.rule.get_parameters()}
        return {**state(self.network), **kept}

    def save(self, path: Path) -> None:
        """Writes a checkpoint; the file is complete or absent."""
        arrays = {name: parameter.asnumpy() for name, parameter in self.state().items()}
        with path.with_suffix(".new").open("wb") as file:
            np.savez(file, **arrays, done=self.done, updates=self.rule.done, scale=self.scale, calm=self.calm)
        path.with_suffix(".new").replace(path)

    def resume(self, path: Path) -> None:
        """Goes on from a checkpoint."""
        with np.load(path) as values:
            for name, parameter in self.state().items():
                parameter.set_data(Tensor(values[name], parameter.dtype))
            self.done, self.rule.done = int(values["done"]), int(values["updates"])
            self.scale, self.calm = float(values["scale"]), int(values["calm"])
"#;

const TELL: &str = r#"
def tell(log: TextIO, event: dict) -> None:
    """Writes an event to the log, and shows it."""
    print(", ".join(f"{key} {value:.5g}" for key, value in event.items()), flush=True)
    log.write(json.dumps(event) + "\n")
    log.flush()
"#;

/// The function that reads the options.
fn options(program: &Program<'_>) -> String {
    let recipe = program.recipe;
    let mut source = recipe.data.source.clone();
    let data = source.location_mut().map(|path| path.display().to_string()).unwrap_or_default();
    let precision = match recipe.npu.precision {
        Precision::AllowMixPrecision | Precision::AllowFp32ToFp16 | Precision::ForceFp16 => "fp16",
        Precision::MustKeepOriginDtype | Precision::Fp32 => "fp32",
        Precision::Bf16 => "bf16",
    };
    let text = |text: &str| Code::text(text.to_owned());
    let option = |name: &str, arguments: Vec<Code>| {
        let name = std::iter::once(Code::text(format!("\"--{name}\"")));
        Code::call("parser.add_argument", name.chain(arguments).collect())
    };
    let help = |help: &str| Code::text(format!("help=\"{help}\""));
    let (path, whole) = (|| text("type=Path"), || text("type=int"));
    let default = |value: String| Code::text(format!("default={value}"));
    let device = default("\"cpu\"".to_owned());
    let options = [
        option("data", vec![path(), default(format!("Path(\"{data}\")")), help("where the data is")]),
        option(
            "out",
            vec![path(), default(format!("Path(\"runs/{}\")", recipe.name)), help("for checkpoint.npz and log.jsonl")],
        ),
        option("device", vec![text("choices=[\"cpu\", \"ascend\"]"), device]),
        option(
            "precision",
            vec![
                text("choices=list(PRECISIONS)"),
                help(&format!("by default {precision} on an Ascend, otherwise fp32")),
            ],
        ),
        option("seed", vec![whole(), default(recipe.train.seed.to_string())]),
        option("epochs", vec![whole(), default("EPOCHS".to_owned())]),
        option("steps", vec![whole(), help("stop after this step, without an evaluation")]),
        option(
            "workers",
            vec![whole(), default("min(os.cpu_count() or 1, 16)".to_owned()), help("threads that read the data")],
        ),
        option("weights", vec![path(), help("a state_dict (safetensors) to start from")]),
        option("resume", vec![text("action=\"store_true\""), help("go on from the checkpoint in --out")]),
        option("record", vec![path(), help("folder for steps on --inputs, for `zoo judge`")]),
        option("inputs", vec![path(), help("inputs of recorded steps (safetensors)")]),
        option("rate", vec![text("type=float"), help("learning rate of recorded steps")]),
    ];
    let mut lines = vec![
        "PRECISIONS = {\"fp32\": mindspore.float32, \"bf16\": mindspore.bfloat16, \"fp16\": mindspore.float16}"
            .to_owned(),
        String::new(),
        String::new(),
        "def arguments() -> argparse.Namespace:".to_owned(),
        "    \"\"\"The options of the command line.\"\"\"".to_owned(),
        format!("    parser = argparse.ArgumentParser(description=\"Trains {}.\")", recipe.name),
    ];
    options.iter().for_each(|option| option.lines(4, "", "", &mut lines));
    lines.push("    options = parser.parse_args()".to_owned());
    lines.push(match precision {
        "fp32" => "    options.precision = options.precision or \"fp32\"".to_owned(),
        _ => {
            format!("    options.precision = options.precision or (\"{precision}\" if options.device == \"ascend\" else \"fp32\")")
        }
    });
    expect_files(program, "checkpoint.npz", true, &mut lines);
    lines.push("    return options".to_owned());
    lines.join("\n")
}

/// The loop.
fn main(program: &Program<'_>) -> String {
    let train = &program.recipe.train;
    let (bound, most) = match train.max_steps {
        Some(most) => ("min(options.epochs * per_epoch, MAX_STEPS)", Some(most)),
        None => ("options.epochs * per_epoch", None),
    };
    let goal = match program.recipe.target {
        Some(_) => "0 if training.done < steps or not scores or is_reached(scores) else 1",
        None => "0",
    };
    let mix = "            arrays = mix(arrays, np.random.default_rng((options.seed, training.done, 1)))\n";
    let text = MAIN
        .replace("            # mix\n", if program.recipe.preprocess.mix.is_some() { mix } else { "" })
        .replace("STEPS", bound)
        .replace("NETWORK", &program.network())
        .replace("EVALUATION", &train.eval_every.emit())
        .replace("CHECKPOINT", &train.checkpoint_every.emit())
        .replace("GOAL", goal);
    most.map_or(text.clone(), |most| text.replace("MAX_STEPS", &most.to_string()))
}

const MAIN: &str = r#"
def main() -> int:
    """Trains the network; 1 if it misses its target."""
    options = arguments()
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    mindspore.set_device({"cpu": "CPU", "ascend": "Ascend"}[options.device])
    mindspore.set_seed(options.seed + 1)
    network = NETWORK()
    if options.weights:
        load(network, options.weights)
    if options.record:
        record(options, network)
        return 0
    trained, held_out = samples(options.data, options.seed)
    per_epoch = len(trained) // BATCH
    steps = STEPS
    last = min(steps, options.steps or steps)
    training = Training(network, options.precision)
    if options.resume:
        training.resume(options.out / "checkpoint.npz")
    options.out.mkdir(parents=True, exist_ok=True)
    places = order(len(trained), options.seed, range(training.done, last))
    evaluation, checkpoint = max(EVALUATION, 1), max(CHECKPOINT, 1)
    scores: dict[str, float] = {}
    began, before = time.perf_counter(), training.done
    with (options.out / "log.jsonl").open("a" if options.resume else "w") as log:
        for arrays in batches(trained, places, options.workers):
            # mix
            epoch = training.done // per_epoch
            learning_rate = rate(training.done, per_epoch, steps)
            terms, _ = training.step(tensors(arrays), learning_rate)
            done = training.done
            if done % 50 == 0 or done == last or done == 1:
                speed = round((done - before) * BATCH / (time.perf_counter() - began), 1)
                losses = {name: float(term) for name, term in terms.items()}
                tell(log, {"step": done, "epoch": epoch, **losses, "rate": learning_rate, "samples_per_s": speed})
            if done == steps or (done % evaluation == 0 and done < last):
                scores = evaluate(network, held_out, options.workers)
                tell(log, {"step": done, **scores})
            if done == last or done % checkpoint == 0:
                training.save(options.out / "checkpoint.npz")
                save(network, options.out / "weights.safetensors")
    return GOAL
"#;
