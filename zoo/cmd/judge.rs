//! `zoo judge`: judge a training step that ran elsewhere.

use super::{
    Context,
    check::{
        self,
        cases::{self, Checked},
        report,
    },
    output,
    simulated::Simulated,
};
use crate::ci::{Case, Fault, JunitArgs, Outcome};
use crate::cli::{Format, RecipeArgs};
use crate::console::{BAD, Console, DIM, HEADING, WARN, paint};
use crate::memory::{MemoryArgs, beyond_now};
use crate::numbers::{Small, counted};
use crate::{Exit, Failure, complete};
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;
use zoo_engine::Options;
use zoo_golden::{
    Verdict,
    foreign::{Names, Recording},
    judge::{Declared, JudgeOptions, JudgeReport, PHASES, judge, memory},
};
use zoo_graph::DType;
use zoo_npu::{NpuError, Work};
use zoo_recipe::Recipe;
use zoo_train::LossScale;

/// Number of unknown names to list.
const LISTED: usize = 12;

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
  zoo judge resnet18 recorded --names names.yaml      maps other names to those of the golden
  zoo judge resnet18 recorded --format json | jq .first_divergence

Tensors of a recording are named by the keys of the golden: out/MODULE#CALL, loss, grad/NAME,
param1/NAME, buffer1/NAME, momentum1/NAME, start/NAME, input/NAME. names.yaml maps other names:
  names: {logits: 'out/fc#0'}      a name
  modules: {backbone.stem: conv1}  a module and everything inside; '' removes the prefix
  ignore: ['aux.*']                not compared")]
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
    /// Do not fail if the recording has names that the step does not have
    #[arg(long)]
    allow_unmatched: bool,
    /// Do not fail if the recording has only a part of a stage
    #[arg(long)]
    allow_missing: bool,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    junit: JunitArgs,
}

fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    if number.is_finite() && number > 0.0 { Ok(number) } else { Err("a loss scale must be above 0".to_owned()) }
}

/// Judges; missed if something differs.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    if let Some(file) = &args.junit.junit {
        output::expect_folder(file)?;
    }
    let end = judged(args, context);
    if let Some(file) = &args.junit.junit {
        context.ci.write_junit("judge", file, &end)?;
    }
    end
}

fn judged(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let catalog = context.catalog()?;
    let mut loaded = context.load(&catalog, &args.recipe.recipe, &args.recipe.change)?;
    let (golden, _) = check::golden(&catalog, &loaded, args.golden.as_deref())?;
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
    let beside = args.recording.join("names.yaml");
    let names = match &args.names {
        Some(file) => Names::read(file)?,
        None if beside.is_file() => Names::read(&beside)?,
        None => Names::default(),
    };
    let recording = Recording::open(&args.recording, &names)?;
    let options = JudgeOptions {
        declared,
        loss_scale: args.loss_scale,
        allow_unmatched: args.allow_unmatched,
        allow_missing: args.allow_missing,
        engine: Options::of(recipe),
    };
    if let Ok(more) = memory(recipe, &golden, options.engine) {
        let what = format!("judging a recording of {}", recipe.name);
        args.memory.expect(&what, beyond_now(more), |_| "the batch is given by the golden".to_owned())?;
    }
    let begun = Instant::now();
    let mut bar = context.progress.phases(PHASES);
    let mut progress = |what: &str| bar.next(format!("{}: {what}", recipe.name));
    let report = judge(recipe, &golden, &recording, &options, &mut progress)?;
    drop(bar);
    let sets = &args.recipe.change.sets;
    let name = format!("{} recorded in {}", report.recipe, report.arithmetic);
    let checked = Checked { name, file: &loaded.path, sets, time: begun.elapsed() };
    let mut suite = cases::suite(checked, &report.stages, report.first_divergence.as_ref())?;
    suite.cases.push(names_case(&report));
    context.ci.record(suite);
    match context.format {
        Format::Json => context.out.json(&report)?,
        Format::Text => print(&report, sets, &mut context.out)?,
    }
    Ok(if report.verdict == Verdict::Fail { Exit::Missed } else { Exit::Pass })
}

/// The test case of the names of the recording.
fn names_case(report: &JudgeReport) -> Case {
    let unmatched = &report.unmatched;
    let outcome = match unmatched.is_empty() || report.unmatched_allowed {
        true => Outcome::Pass,
        false => Outcome::Fail(Fault {
            message: format!(
                "{} of the recording that the step does not have",
                counted(unmatched.len() as u64, "name")
            ),
            details: unmatched.join("\n"),
            place: None,
            first: report.stages.iter().all(|stage| stage.verdict != Verdict::Fail),
        }),
    };
    Case { name: "names".to_owned(), outcome }
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

fn print(report: &JudgeReport, sets: &[String], out: &mut Console) -> Result<(), Failure> {
    let (recipe, arithmetic) = (paint(HEADING, &report.recipe), &report.arithmetic);
    writeln!(out, "{recipe}  {} ({}) in {arithmetic} against {}\n", report.recording, report.format, report.golden)?;
    write!(out, "{}", report::stages(&report.stages, ["compared", "floor"]))?;
    if !report.end_to_end.is_empty() {
        let off = report
            .end_to_end
            .iter()
            .map(|item| format!("{} {}", item.name.replace("@root#0", "output"), Small(item.error)));
        writeln!(out, "off the golden: {}", off.collect::<Vec<_>>().join(", "))?;
    }
    let not_compared: Vec<String> = report.not_compared.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    if !not_compared.is_empty() {
        writeln!(out, "{}", paint(DIM, format!("not compared: {}", not_compared.join(", "))))?;
    }
    if report.statistics_only > 0 {
        let note = format!(
            "{}: only maximum, minimum, mean and norm are compared. They cannot detect elements that changed places, \
             or an error that leaves all four unchanged. Errors are inherited, because operands are not known",
            counted(report.statistics_only as u64, "tensor") + " by statistics only"
        );
        writeln!(out, "{}", paint(WARN, note))?;
    }
    for stage in report.stages.iter().filter(|stage| stage.verdict == Verdict::Fail) {
        report::failures(stage, out)?;
    }
    if let Some(divergence) = &report.first_divergence {
        report::first_divergence(divergence, sets, out)?;
    }
    if !report.unmatched.is_empty() {
        let how = if report.unmatched_allowed { paint(DIM, "allowed") } else { paint(BAD, "not allowed") };
        let what = counted(report.unmatched.len() as u64, "name");
        writeln!(out, "\n{what} of the recording that the step does not have ({how}; names.yaml can map them):")?;
        for name in report.unmatched.iter().take(LISTED) {
            writeln!(out, "  {name}")?;
        }
        if report.unmatched.len() > LISTED {
            writeln!(out, "  {}", paint(DIM, format!("... and {} more", report.unmatched.len() - LISTED)))?;
        }
    }
    let stages = report.stages.iter().any(|stage| stage.verdict == Verdict::Fail);
    let verdict = match (report.verdict, stages) {
        (Verdict::Fail, false) => format!("{}: names that the step does not have", paint(BAD, "fail")),
        _ => report::verdict_line(&report.stages, report.verdict),
    };
    writeln!(out, "\n{}: {verdict}", report.recipe)?;
    Ok(())
}
