//! `zoo bench`: the cost of a training step on this machine.

mod collectives;
mod costs;

use crate::complete;
use crate::console::{Console, DIM, HEADING, paint};
use crate::context::{Context, use_threads};
use crate::memory::{MemoryArgs, beyond_now};
use crate::numbers::{median, percent};
use crate::options::Change;
use crate::simulated::Simulated;
use crate::{Exit, Failure};
use candle_core::{Device, Tensor};
use collectives::Collectives;
use costs::{NodeCost, OpCost};
use serde::Serialize;
use std::io::Write;
use std::time::Instant;
use zoo_datasets::Rng;
use zoo_engine::{Inputs, Kernels, Options, Scalars, Step, StepMemory};
use zoo_graph::{Bytes, Flop, Graph};
use zoo_kernels::{Isa, peak};
use zoo_npu::Work;
use zoo_recipe::{BuildOptions, Recipe, schema::InputShape};

/// Measure a training step on this machine: time, arithmetic, memory, and time by operator.
///
/// Runs the whole step (forward, loss, backward, update) on random inputs. Several processes, started by mpirun, share
/// each batch. In this case the sums over the processes are measured too, and printed as lines for a device file.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo bench resnet50
  zoo bench resnet50 --batch 8 --image 224 --steps 20 --threads 2
  zoo bench resnet50 --nodes | head -40          where the time goes: the slowest nodes
  zoo bench resnet50 --set engine.fusion=false
  zoo bench resnet50 --set engine.kernels=reference --batch 2
  mpirun -n 2 zoo bench resnet50 --batch 16      two processes; also measures the sums over them
  zoo bench resnet50 --format json | jq .step_ms_median")]
pub struct Args {
    /// Name of a recipe, or path of its file
    #[arg(value_name = "RECIPE", add = complete::recipes())]
    recipe: String,
    #[command(flatten)]
    change: Change,
    /// Samples per step, over all processes
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch: u32,
    /// Height and width of the images; by default those of the recipe
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u16).range(1..=8192))]
    image: Option<u16>,
    /// Tokens of a sequence; by default those of the recipe
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    tokens: Option<u32>,
    /// Steps to measure, after two warm-up steps
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Simulate the arithmetic of this device: the name of a file in recipes/devices, or host
    #[arg(long, value_name = "DEV|host", add = complete::devices_or_host())]
    device: Option<String>,
    /// Number of threads; by default all cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// List the time of each node too, the slowest first
    #[arg(long)]
    nodes: bool,
    #[command(flatten)]
    memory: MemoryArgs,
}

/// Steps before the first measured one, until pages, caches and clock frequency have settled.
const WARM_UP: u32 = 2;

#[derive(Serialize)]
struct Report {
    recipe: String,
    device: String,
    kernels: &'static str,
    fusion: bool,
    batch: usize,
    /// Height of the images; 0 if the input is not an image.
    image: usize,
    /// Threads per rank.
    threads: usize,
    ranks: usize,
    step_ms_median: f64,
    step_ms: Vec<f64>,
    images_per_s: f64,
    /// Of the longest sequence of each sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_per_s: Option<f64>,
    /// Work of the graph before all passes, in GFLOP per second of the median step.
    gflops: f64,
    /// The peak of the same threads with multiply-adds in registers only.
    peak_gflops: f64,
    peak_share: f64,
    /// Largest resident set of this process, as reported by Linux.
    peak_rss_bytes: Option<u64>,
    /// Size of the step's tensors by the memory plan of the engine.
    tensor_bytes: u64,
    ops: Vec<OpCost>,
    /// The slowest first, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Vec<NodeCost>>,
    /// Measured sums over the ranks, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    all_reduce: Option<Collectives>,
}

/// Measures and prints.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    context.join()?;
    let mut recipe = context.load(&args.recipe, &args.change)?.recipe;
    if let Some(threads) = args.threads {
        recipe.engine.threads = Some(usize::from(threads));
    }
    use_threads(recipe.engine.threads)?;
    if let (Some(side), Some(shape)) = (args.image, recipe.model.inputs.values_mut().next()) {
        shape.set_side(usize::from(side));
    }
    if let Some(tokens) = args.tokens {
        recipe.model.inputs.values_mut().for_each(|shape| shape.set_tokens(tokens as usize));
    }
    let simulated = Simulated::find(args.device.as_deref(), Work::Train, &mut recipe, context)?;
    let report = measure(&recipe, simulated.as_ref(), args, context)?;
    context.show(&report, |out| print(&report, out))
}

fn measure(recipe: &Recipe, simulated: Option<&Simulated>, args: &Args, context: &Context) -> Result<Report, Failure> {
    let (ranks, batch) = (&context.ranks, args.batch as usize);
    if !batch.is_multiple_of(ranks.size()) {
        return Err(zoo_train::TrainError::Share { batch, ranks: ranks.size() }.into());
    }
    let mut graph = zoo_recipe::build(recipe, &recipe.resolve()?, &BuildOptions::train(batch / ranks.size()))?;
    let work: Flop = costs::of(&graph).map(|cost| cost.flop).sum();
    zoo_recipe::across(ranks.size(), recipe).run(&mut graph, None)?;
    let options = Options::of(recipe);
    let memory = StepMemory::of(graph.clone(), options, simulated.map(|simulated| &simulated.arithmetic))?;
    // Initial values are drawn and then copied to the layout of the kernels.
    let needed = beyond_now(memory.peak() + memory.inputs + memory.largest + memory.largest);
    args.memory.expect("this step", needed, |_| format!("use a --batch smaller than {batch}"))?;
    let inputs = inputs(&graph, recipe.train.seed)?;
    let mut step = match simulated {
        Some(simulated) => Step::simulated(graph, options, &simulated.arithmetic)?,
        None => Step::new(graph, options)?,
    };
    step.join(ranks.clone());
    step.initialize(recipe.train.seed)?;
    let bar = context.progress.bar(u64::from(WARM_UP + args.steps));
    let (mut step_ms, mut node_ms, mut tensor_bytes) = (Vec::new(), Vec::new(), Bytes(0));
    for n in 0..WARM_UP + args.steps {
        // A learning rate that does not change the weights: with random labels the training would diverge.
        let scalars =
            Scalars { learning_rate: 1e-6, step: u64::from(n), seed: recipe.train.seed, ..Scalars::default() };
        ranks.meet()?;
        let begun = Instant::now();
        let result = step.run(&inputs, scalars, &mut ())?;
        let elapsed = begun.elapsed().as_secs_f64();
        bar.advance();
        bar.message(format!("{:.0} ms per step", 1e3 * elapsed));
        if n >= WARM_UP {
            step_ms.push(1e3 * elapsed);
            node_ms.push(step.node_seconds().iter().map(|s| 1e3 * s).collect::<Vec<f64>>());
        }
        tensor_bytes = result.peak_memory;
    }
    drop(bar);
    let threads = recipe.engine.threads.unwrap_or_else(rayon::current_num_threads);
    let step_ms_median = median(step_ms.clone());
    let images_per_s = f64::from(args.batch) * 1e3 / step_ms_median;
    let tokens = recipe.model.inputs.values().filter_map(InputShape::tokens).max();
    let gflops = work.0 as f64 / step_ms_median / 1e6;
    let peak_gflops = peak::gflops(Isa::best(), threads);
    let all_reduce = (ranks.size() > 1).then(|| Collectives::measure(ranks)).transpose()?;
    let (kernels, fusion) = match options.kernels {
        Kernels::Fast { fusion } => ("fast", fusion),
        Kernels::Reference => ("reference", false),
    };
    Ok(Report {
        recipe: recipe.name.clone(),
        device: simulated.map_or(zoo_train::HOST, Simulated::name).to_owned(),
        kernels,
        fusion,
        batch,
        image: recipe.model.inputs.values().next().and_then(|input| input.image()).map_or(0, |[_, height, _]| height),
        threads,
        ranks: ranks.size(),
        step_ms_median,
        step_ms,
        images_per_s,
        tokens_per_s: tokens.map(|tokens| tokens as f64 * images_per_s),
        gflops,
        peak_gflops,
        peak_share: gflops / peak_gflops,
        peak_rss_bytes: zoo_train::memory::peak().map(|bytes| bytes.0),
        tensor_bytes: tensor_bytes.0,
        ops: costs::by_operator(step.graph(), &node_ms),
        nodes: args.nodes.then(|| costs::by_node(step.graph(), &node_ms)),
        all_reduce,
    })
}

/// Random numbers and indices for the inputs of a step.
fn inputs(graph: &Graph, seed: u64) -> Result<Inputs, Failure> {
    let mut rng = Rng::new(seed, 0, 0);
    graph
        .inputs
        .iter()
        .map(|input| {
            let shape = graph.ty(input.value).shape.clone();
            let tensor = if !graph.ty(input.value).dtype.is_float() {
                let count = graph.numbers(input.value).unwrap_or(1);
                let numbers: Vec<u32> = (0..shape.numel()).map(|_| rng.below(count) as u32).collect();
                Tensor::from_vec(numbers, shape.to_vec(), &Device::Cpu)
            } else {
                let pixels: Vec<f32> = (0..shape.numel()).map(|_| rng.uniform(-2.0, 2.0) as f32).collect();
                Tensor::from_vec(pixels, shape.to_vec(), &Device::Cpu)
            };
            Ok((input.name.clone(), tensor.map_err(zoo_engine::EngineError::from)?))
        })
        .collect()
}

fn print(report: &Report, out: &mut Console) -> Result<(), Failure> {
    let (batch, image, threads) = (report.batch, report.image, report.threads);
    let size = if image > 0 { format!(", {image}x{image}") } else { String::new() };
    let fusion = if report.fusion { ", fused" } else { "" };
    let ranks = if report.ranks > 1 { format!("{} ranks of ", report.ranks) } else { String::new() };
    writeln!(
        out,
        "{}  batch {batch}{size}, {ranks}{threads} threads, {} kernels{fusion}\n",
        paint(HEADING, &report.recipe),
        report.kernels
    )?;
    let (least, most) = report.step_ms.iter().fold((f64::MAX, 0.0f64), |(l, m), ms| (l.min(*ms), m.max(*ms)));
    let spread = paint(DIM, format!("({least:.1} to {most:.1} in {} steps)", report.step_ms.len()));
    writeln!(out, "step      {:.1} ms {spread}", report.step_ms_median)?;
    match report.tokens_per_s {
        Some(tokens) => writeln!(out, "samples   {:.1} per second, {tokens:.0} tokens", report.images_per_s)?,
        None => writeln!(out, "images    {:.1} per second", report.images_per_s)?,
    }
    let (gflops, share, peak) = (report.gflops, percent(report.peak_share), report.peak_gflops);
    writeln!(out, "work      {gflops:.0} GFLOP/s, {share} of the {peak:.0} that these threads reach in registers")?;
    let resident = report.peak_rss_bytes.map(|bytes| format!("{} resident, ", Bytes(bytes))).unwrap_or_default();
    writeln!(out, "memory    {resident}{} of it tensors\n", Bytes(report.tensor_bytes))?;
    write!(out, "{}", OpCost::table(&report.ops))?;
    if let Some(nodes) = &report.nodes {
        write!(out, "\n{}", NodeCost::table(nodes))?;
    }
    if let Some(all_reduce) = &report.all_reduce {
        all_reduce.print(report.ranks, out)?;
    }
    Ok(())
}
