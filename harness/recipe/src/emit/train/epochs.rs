//! The loop over the steps.

use super::evaluate::{Scored, scored};
use super::program::Program;
use super::{record, shard};

/// The function that opens the data, trains and evaluates.
pub(super) fn main(program: &Program<'_>) -> String {
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
