//! `zoo judge`: judge a training step that ran elsewhere.

mod print;
mod split;

use crate::ci::Suite;
use crate::context::Context;
use crate::memory::{MemoryArgs, beyond_now};
use crate::options::{Format, JunitArgs, RecipeArgs};
use crate::output;
use crate::proof::{
    self,
    cases::{self, Checked},
    split::SplitArgs,
};
use crate::simulated::Simulated;
use crate::{Exit, Failure, complete};
use clap::ValueEnum;
use std::path::PathBuf;
use std::time::Instant;
use zoo_engine::Options;
use zoo_golden::{
    Stage, Verdict,
    facts::rates,
    foreign::{Names, Recording},
    judge::{Declared, JudgeOptions, JudgeReport, PHASES, StepsReport, judge, memory},
};
use zoo_graph::DType;
use zoo_npu::{NpuError, Work};
use zoo_recipe::Recipe;
use zoo_train::LossScale;

/// Find the first module that differs in a training step that ran elsewhere: on an NPU, in another framework, or in a
/// port.
///
/// The step must start from the weights and inputs that `zoo golden inputs RECIPE` writes. Record it with
/// zoo_golden.capture, with msprobe, or as named tensors. Each module output, loss, gradient and update is compared
/// with the result that f64 computes from the recorded operands. In this way an error shows only in the module that
/// made it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo judge resnet18 recorded                         a folder of zoo_golden.capture, or .npy files
  zoo judge resnet18 recorded.npz                     or .safetensors, or a file of torch.save
  zoo judge resnet18 dump/step0/rank0                 a dump of msprobe, tensors or statistics
  zoo judge resnet18 recorded --arithmetic bf16       recorded with automatic mixed precision
  zoo judge resnet18 dump/step0 --arithmetic ascend910 --loss-scale 1024
  zoo judge resnet18 dump                             several steps in turn: dump/step0, dump/step1, ...
  zoo judge resnet18 recorded --names names.yaml      maps other names to those of the golden
  zoo judge resnet18 dump/step0 --allow-missing=update    msprobe does not see the update
  zoo judge llama recorded --parallel data=2          folders of ranks: recorded/step0/rank0, rank1, ...
  zoo judge resnet18 recorded --format json | jq .first_divergence

Tensors of a recording are named by the keys of the golden: out/MODULE#CALL, loss, grad/NAME,
param1/NAME, buffer1/NAME, momentum1/NAME, start/NAME, input/NAME. names.yaml maps other names:
  names: {logits: 'out/fc#0'}      a name
  modules: {backbone.stem: conv1}  a module and everything inside; '' removes the prefix
  ignore: ['aux.*']                not compared
What wrappers add (module., _orig_mod., _fsdp_wrapped_module., the name of the network) is recognised.

Exit codes: 0 everything compared passes, and all of the step was compared or --allow-missing names
what was not; 1 something differs (fail), or is not recorded (partial); 3 the recording cannot be read.")]
pub struct Args {
    #[command(flatten)]
    recipe: RecipeArgs,
    /// The recording: a file or a folder
    #[arg(value_name = "RECORDING")]
    recording: PathBuf,
    /// Judge against this golden instead of the one that the recipe names
    #[arg(long, value_name = "FILE.json")]
    golden: Option<PathBuf>,
    /// Arithmetic of the recorded step: f32, f16, bf16, or the name of a device in recipes/devices
    #[arg(long, value_name = "TYPE|DEV", default_value = "f32", add = complete::devices())]
    arithmetic: String,
    /// Loss scale of the recording: recorded gradients are multiplied by it
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = positive)]
    loss_scale: f64,
    /// File that maps names of the recording to names of the golden; by default names.yaml in its folder, if it exists
    #[arg(long, value_name = "FILE.yaml")]
    names: Option<PathBuf>,
    /// Write a proposal for --names to this file, if the recording has names that the step does not have
    #[arg(long, value_name = "FILE.yaml")]
    propose_names: Option<PathBuf>,
    /// Do not fail if the recording has names that the step does not have
    #[arg(long)]
    allow_unmatched: bool,
    /// Accept that the recording lacks tensors, of any stage or of those named: the verdict is then `partial`, with
    /// exit code 0, if everything else passes
    #[arg(
        long,
        value_name = "STAGES",
        value_enum,
        value_delimiter = ',',
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all"
    )]
    allow_missing: Vec<Part>,
    /// The recorded steps have the learning rates of the recipe's schedule, and not all that of the golden
    #[arg(long, conflicts_with = "parallel")]
    schedule: bool,
    #[command(flatten)]
    split: SplitArgs,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    junit: JunitArgs,
}

/// What a recording may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Parts of all stages.
    All,
    /// Outputs of modules.
    Forward,
    /// The loss.
    Loss,
    /// Gradients.
    Backward,
    /// Parameters, state of the optimizer and statistics after the step.
    Update,
}

impl Part {
    fn stages(self) -> Vec<Stage> {
        match self {
            Self::All => vec![Stage::Forward, Stage::Loss, Stage::Backward, Stage::Update],
            Self::Forward => vec![Stage::Forward],
            Self::Loss => vec![Stage::Loss],
            Self::Backward => vec![Stage::Backward],
            Self::Update => vec![Stage::Update],
        }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    if number.is_finite() && number > 0.0 { Ok(number) } else { Err("a loss scale must be above 0".to_owned()) }
}

/// Judges; missed if something differs.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    output::judged("judge", &args.junit, context, |context| judged(args, context))
}

fn judged(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let mut loaded = context.load(&args.recipe.recipe, &args.recipe.change)?;
    let beside = args.recording.join("names.yaml");
    let names = match &args.names {
        Some(file) => Names::read(file)?,
        None if beside.is_file() => Names::read(&beside)?,
        None => Names::default(),
    };
    let allow_missing: Vec<Stage> = args.allow_missing.iter().flat_map(|part| part.stages()).collect();
    if let Some((parallel, batch)) = args.split.of(&loaded)? {
        let wanted = split::Wanted {
            recording: &args.recording,
            arithmetic: &args.arithmetic,
            golden: args.golden.as_deref(),
            loss_scale: args.loss_scale,
            allow_unmatched: args.allow_unmatched,
            memory: args.memory,
            sets: &args.recipe.change.sets,
            parallel: &parallel,
            batch,
            names: &names,
            allow_missing: &allow_missing,
        };
        return split::run(&wanted, &loaded, context);
    }
    let (golden, folder) = proof::golden(&loaded, args.golden.as_deref(), context)?;
    let half = match args.arithmetic.as_str() {
        "f32" | "fp32" => Some(Declared::F32),
        "f16" | "fp16" => Some(Declared::Half { dtype: DType::F16, loss_scale: args.loss_scale }),
        "bf16" => Some(Declared::Half { dtype: DType::Bf16, loss_scale: args.loss_scale }),
        _ => None,
    };
    let simulated = match half {
        Some(_) => None,
        None => device(&args.arithmetic, &mut loaded.recipe, context)?,
    };
    let recipe = &loaded.recipe;
    let declared = match &simulated {
        Some(device) => Declared::Device {
            name: device.name(),
            arithmetic: &device.arithmetic,
            loss_scale: LossScale::start(&recipe.npu.loss_scale).scale,
        },
        None => half.unwrap_or(Declared::F32),
    };
    let steps = Recording::steps(&args.recording, &names)?;
    let rates = match args.schedule {
        true => Some(rates(recipe, &golden, &folder, steps.len())?),
        false => None,
    };
    let options = JudgeOptions {
        declared,
        loss_scale: args.loss_scale,
        allow_unmatched: args.allow_unmatched,
        allow_missing: &allow_missing,
        rates: rates.as_deref(),
        engine: Options::of(recipe),
    };
    if let Ok(more) = memory(recipe, &golden, options.engine) {
        let what = format!("judging a recording of {}", recipe.name);
        args.memory.expect(&what, beyond_now(more), |_| "the batch is given by the golden".to_owned())?;
    }
    let begun = Instant::now();
    let mut bar = context.progress.phases(PHASES * steps.len());
    let mut progress = |what: &str| bar.next(format!("{}: {what}", recipe.name));
    let reports = judge(recipe, &golden, &steps, &options, &mut progress)?;
    drop(bar);
    if let Some(file) = &args.propose_names
        && let Some(proposal) = reports.iter().map(|report| &report.proposal).find(|proposal| !proposal.is_empty())
    {
        output::write_beside(file, &print::names_yaml(proposal), context)?;
    }
    let sets = &args.recipe.change.sets;
    let time = begun.elapsed() / u32::try_from(reports.len()).unwrap_or(1).max(1);
    for report in &reports {
        let step = if reports.len() > 1 { format!(", step {}", report.step) } else { String::new() };
        let name = format!("{} recorded in {}{step}", report.recipe, report.arithmetic);
        let checked = Checked { name, file: &loaded.path, sets, time };
        context.ci.record(suite(checked, report)?);
    }
    let accepted = reports.iter().all(JudgeReport::is_accepted);
    match (context.format, <[JudgeReport; 1]>::try_from(reports)) {
        (Format::Json, Ok([report])) => context.out.json(&report)?,
        (Format::Json, Err(reports)) => context.out.json(&StepsReport::of(reports))?,
        (Format::Text, Ok([report])) => print::report(&report, sets, &mut context.out)?,
        (Format::Text, Err(reports)) => print::steps(&StepsReport::of(reports), sets, &mut context.out)?,
    }
    Ok(if accepted { Exit::Pass } else { Exit::Missed })
}

/// A test case per stage, one for the names of the recording, and one for its coverage.
fn suite(checked: Checked<'_>, report: &JudgeReport) -> Result<Suite, Failure> {
    let mut suite = cases::suite(checked, &report.stages, report.first_divergence.as_ref())?;
    let first = report.stages.iter().all(|stage| stage.verdict != Verdict::Fail);
    let lacking: Vec<_> = report.incomplete().collect();
    suite.cases.push(print::names_case(&report.unmatched, report.unmatched_allowed, first));
    suite.cases.push(print::coverage_case(&lacking, report.coverage_accepted, report.verdict));
    Ok(suite)
}

/// The device whose arithmetic was named.
fn device(name: &str, recipe: &mut Recipe, context: &Context) -> Result<Option<Simulated>, Failure> {
    match Simulated::find(Some(name), Work::Train, recipe, context) {
        Err(Failure::Npu(NpuError::UnknownDevice { name, hint, known })) => {
            let hint = hint.map(|hint| format!(", did you mean `{hint}`?")).unwrap_or_default();
            let message = format!("there is no type or device `{name}`{hint}; known: f32, f16, bf16, {known}");
            Err(Failure::Usage(message))
        }
        found => found,
    }
}
