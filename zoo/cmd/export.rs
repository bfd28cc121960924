//! `zoo export`: write a network as an ONNX model for inference.

use crate::console::Console;
use crate::context::Context;
use crate::memory::{MemoryArgs, beyond_now};
use crate::numbers::scaled;
use crate::output;
use crate::output::expect_apart;
use crate::trained::{TrainedArgs, Usual, read};
use crate::{Exit, Failure};
use candle_core::{Device, Tensor};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use zoo_datasets::Rng;
use zoo_engine::{Inputs, Options, Scalars, Step, StepMemory};
use zoo_graph::{Bytes, Graph, Node, Op, ValueId};
use zoo_onnx::{About, Batch, OPSET};
use zoo_recipe::BuildOptions;
use zoo_recipe::Recipe;
use zoo_train::weights;

/// Write a network as an ONNX model for inference.
///
/// The model is the forward pass with stored statistics and without dropout: ONNX opset 18, f32, feature maps in NCHW,
/// weights under their state_dict names, outputs under the names of the recipe. For a recipe without --checkpoint, the
/// weights are initial ones. The model accepts any batch size, unless an operator of the network mixes batch and
/// channels. Preprocessing is not included.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo export resnet50 --checkpoint resnet50.pth --out resnet50.onnx
  zoo export runs/resnet50-mini-1 --out mini.onnx
  zoo export runs/siammask --batch 1 --out siammask.onnx
  zoo export googlenet --out net.onnx --sample net.safetensors     also write an input and output")]
pub struct Args {
    #[command(flatten)]
    trained: TrainedArgs,
    /// ONNX file to write
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Fix the batch size of the model; by default any size is accepted
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch: Option<u32>,
    /// Also write random inputs (`input.NAME`) and the outputs for them (`output.NAME`) to this safetensors file
    #[arg(long, value_name = "FILE")]
    sample: Option<PathBuf>,
    #[command(flatten)]
    memory: MemoryArgs,
}

#[derive(Serialize)]
struct Report<'a> {
    recipe: &'a str,
    out: &'a Path,
    bytes: usize,
    opset: i64,
    /// Batch size of the model; null if any is accepted.
    batch: Option<usize>,
    inputs: Vec<String>,
    outputs: Vec<String>,
    /// Source of the weights; null for initial ones.
    weights: Option<PathBuf>,
    sample: Option<&'a Path>,
}

/// Writes the model.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let trained = args.trained.load(Usual::AsWritten, context)?;
    let recipe = trained.loaded.recipe;
    let samples = args.batch.map_or(1, |batch| batch as usize);
    let graph = graph_for(&recipe, samples)?;
    let any = if args.batch.is_some() { None } else { for_any_batch(&recipe, &graph)? };
    let (written, batch) = any.as_ref().map_or((&graph, Batch::Fixed), |any| (any, Batch::Any));
    let memory = StepMemory::of(graph.clone(), Options::of(&recipe), None)?;
    // The weights in row-major order, in the model, and in the bytes of its file.
    let needed = beyond_now(memory.peak() + Bytes(3 * memory.variables.0));
    args.memory.expect("this model", needed, |_| "its weights alone exceed this".to_owned())?;
    let mut step = Step::new(graph.clone(), Options::of(&recipe))?;
    step.initialize(recipe.train.seed)?;
    let entry = args.trained.entry();
    let weights = trained.checkpoint.as_deref().map(|path| load(path, entry, &graph, &mut step)).transpose()?;
    expect_apart(weights.as_deref().into_iter().chain([args.out.as_path()]).chain(args.sample.as_deref()))?;
    args.sample.iter().chain([&args.out]).try_for_each(|file| output::expect_folder(file))?;
    let values = |name: &str| step.variable(name).ok()?.flatten_all().ok()?.to_vec1::<f32>().ok();
    let model = zoo_onnx::export(written, batch, &about(&recipe), values)?;
    weights::replace(&args.out, &model.bytes)?;
    if let Some(path) = &args.sample {
        weights::write(path, &sample(&graph, &mut step, &model.outputs)?)?;
    }
    let report = Report {
        recipe: &recipe.name,
        out: &args.out,
        bytes: model.bytes.len(),
        opset: OPSET,
        batch: (batch == Batch::Fixed).then_some(samples),
        inputs: graph.inputs.iter().map(|input| input.name.clone()).collect(),
        outputs: model.outputs,
        weights,
        sample: args.sample.as_deref(),
    };
    context.show(&report, |out| print(&report, out))
}

fn graph_for(recipe: &Recipe, samples: usize) -> Result<Graph, Failure> {
    Ok(zoo_recipe::build(recipe, &recipe.resolve()?, &BuildOptions::eval(samples))?)
}

/// The graph whose model accepts any batch size; `None` if the network has none. `graph`: the graph for one sample.
fn for_any_batch(recipe: &Recipe, graph: &Graph) -> Result<Option<Graph>, Failure> {
    let graph = graph_for(recipe, zoo_onnx::distinct_batch(graph))?;
    Ok((zoo_onnx::batch(&graph) == Batch::Any).then_some(graph))
}

fn about(recipe: &Recipe) -> About {
    let normalised = "pixels come as the recipe's `preprocess.eval` leaves them";
    About {
        name: recipe.name.clone(),
        description: recipe.description.clone().unwrap_or_default(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        metadata: vec![("zoo.recipe".into(), recipe.name.clone()), ("zoo.input".into(), normalised.into())],
    }
}

/// Loads the weights of a file into the network, or their averages if the file has them; returns the file.
fn load(path: &Path, entry: Option<&str>, graph: &Graph, step: &mut Step) -> Result<PathBuf, Failure> {
    let weights = read(path, entry, graph)?;
    for name in &weights.fit.taken {
        if let Some(tensor) = weights.for_variable(name) {
            step.set_variable(name, tensor)?;
        }
    }
    Ok(weights.file)
}

/// Random inputs (values between -1 and 1, or valid indices), and the network's outputs for them under the model's
/// names.
fn sample(graph: &Graph, step: &mut Step, names: &[String]) -> Result<Vec<(String, Tensor)>, Failure> {
    let candle = |error: candle_core::Error| Failure::Train(error.into());
    let mut tensors = Vec::new();
    let mut inputs = Inputs::new();
    for (index, input) in graph.inputs.iter().enumerate() {
        let ty = graph.ty(input.value);
        let mut noise = Rng::new(0, 0, index as u64);
        let (elements, dims) = (0..ty.shape.numel(), ty.shape.to_vec());
        let tensor = if ty.dtype.is_float() {
            let values = elements.map(|_| noise.uniform(-1.0, 1.0) as f32).collect();
            Tensor::from_vec(values, dims, &Device::Cpu)
        } else {
            let rows = rows_of_table(graph, input.value);
            let values = elements.map(|_| noise.below(rows) as u32).collect();
            Tensor::from_vec(values, dims, &Device::Cpu)
        };
        let tensor = tensor.map_err(candle)?;
        tensors.push((format!("input.{}", input.name), tensor.clone()));
        inputs = inputs.with(&input.name, tensor);
    }
    let result = step.run(&inputs, Scalars::default(), &mut ())?;
    let outputs = names.iter().zip(result.outputs);
    tensors.extend(outputs.map(|(name, (_, tensor))| (format!("output.{name}"), tensor)));
    Ok(tensors)
}

/// Rows of the smallest table that is indexed by an input.
fn rows_of_table(graph: &Graph, indices: ValueId) -> usize {
    let looks_up = |node: &&Node| matches!(node.op, Op::Gather(_)) && node.inputs.get(1) == Some(&indices);
    let tables = graph.nodes.iter().filter(looks_up).filter_map(|node| node.inputs.first());
    tables.filter_map(|table| graph.ty(*table).shape.first().copied()).min().unwrap_or(1)
}

fn print(report: &Report<'_>, out: &mut Console) -> Result<(), Failure> {
    let batch = report.batch.map_or("any".to_owned(), |batch| batch.to_string());
    let weights = report.weights.as_ref().map_or("initial".to_owned(), |file| file.display().to_string());
    let rows = [
        ("operator set", report.opset.to_string()),
        ("batch", batch),
        ("inputs", report.inputs.join(", ")),
        ("outputs", report.outputs.join(", ")),
        ("weights", weights),
    ];
    writeln!(out, "{}  {}B", report.out.display(), scaled(report.bytes as u64, 2))?;
    for (what, value) in rows {
        writeln!(out, "  {what:<14}{value}")?;
    }
    if let Some(sample) = report.sample {
        writeln!(out, "{}  inputs and outputs of one step", sample.display())?;
    }
    Ok(())
}
