//! `zoo check`: prove one training step.

mod device;
mod mutants;
mod picture;
mod split;

use crate::ci::Suite;
use crate::complete;
use crate::context::Context;
use crate::memory::MemoryArgs;
use crate::options::{Change, Format, JunitArgs};
use crate::output;
use crate::proof::{
    self,
    cases::{self, Checked},
    split::SplitArgs,
};
use crate::simulated::Simulated;
use crate::{Exit, Failure};
use clap::ValueEnum;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tracing::info;
use zoo_engine::Options;
use zoo_golden::{
    CheckOptions, Golden, Precision, Report, Verdict,
    dump::{Arithmetics, DumpOptions, dump},
    mutants::Planting,
    split::SplitOptions,
};
use zoo_graph::Bytes;
use zoo_npu::Work;
use zoo_recipe::Loaded;
use zoo_train::HOST;

/// Prove one training step against golden tensors of a reference framework.
///
/// Compares conditions, preprocessing, learning rates, initial values, every module output, the loss, every gradient
/// and every update. With f64 the check judges the recipe, with f32 (the default) the kernels that training uses.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo check resnet50
  zoo check resnet50 --dtype f64
  zoo check --all
  zoo check resnet50 --set optimizer.sgd.momentum=0.9     plant a fault and see where it is found
  zoo check resnet50 --mutants                            plant all known faults, one by one
  zoo check resnet50 --golden my_dump.json                use your own golden: golden/README.md
  zoo check resnet50 --device ascend910                   simulate the arithmetic of the device
  zoo check resnet50 --device ascend910 --dump on_npu     write all values, for `zoo golden diff`
  zoo check resnet50 --format json | jq .first_divergence
  zoo check resnet50 --memory-limit 1GiB                  refuse to start if it needs more memory
  zoo check --all --junit golden.xml                      one test case per stage and recipe
  zoo check llama --parallel tensor=2,sequence            prove a step that two ranks share
  zoo check llama --parallel data=2,tensor=2 --mutants    plant the faults of such steps")]
pub struct Args {
    /// Names of recipes, or paths of their files
    #[arg(value_name = "RECIPE", add = complete::recipes(), required_unless_present = "all", id = "names")]
    recipes: Vec<String>,
    /// Check every recipe that has a golden
    #[arg(long, conflicts_with_all = ["names", "golden", "parallel"])]
    all: bool,
    #[command(flatten)]
    change: Change,
    /// Check against this golden instead of the one that the recipe names
    #[arg(long, value_name = "FILE.json")]
    golden: Option<PathBuf>,
    /// Arithmetic: f32 (the default) judges the kernels, f64 the recipe
    #[arg(long, value_enum, default_value_t = DType::F32, hide_possible_values = true, hide_default_value = true)]
    #[arg(value_name = "f32|f64")]
    dtype: DType,
    /// Plant known mistakes one at a time, in f64, and show which stage detects each
    #[arg(long, conflicts_with_all = ["all", "dtype"])]
    mutants: bool,
    /// Simulate the arithmetic of this device and judge every node: the name of a file in recipes/devices
    #[arg(long, value_name = "DEV", add = complete::devices(), conflicts_with_all = ["all", "dtype", "mutants", "parallel"])]
    device: Option<String>,
    /// Plant a fault: this node scales its results by two to this power while it computes (can be repeated)
    #[arg(long, value_name = "NODE=POWER", requires = "device", conflicts_with = "parallel")]
    #[arg(value_parser = crate::simulated::planted)]
    plant: Vec<(String, i32)>,
    /// List every node of the device's step, not only those that lose the most precision
    #[arg(long, requires = "device", conflicts_with = "parallel")]
    nodes: bool,
    /// Write every value of the first step to this folder, for `zoo golden diff`
    #[arg(long, value_name = "DIR", conflicts_with_all = ["all", "mutants", "parallel"])]
    dump: Option<PathBuf>,
    #[command(flatten)]
    split: SplitArgs,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    junit: JunitArgs,
}

/// Arithmetic to judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DType {
    /// The kernels that training uses.
    F32,
    /// The recipe, with reference kernels.
    F64,
}

impl From<DType> for Precision {
    fn from(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Self::F32,
            DType::F64 => Self::F64,
        }
    }
}

/// Several reports.
#[derive(Serialize)]
struct Reports {
    reports: Vec<Proven>,
}

/// What is known of a step.
#[derive(Serialize)]
#[serde(untagged)]
enum Proven {
    Whole(Report),
    Split(split::Proven),
}

/// Checks each recipe; missed if one fails.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    output::judged("check", &args.junit, context, |context| check_all(args, context))
}

fn check_all(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    if args.device.as_deref() == Some(HOST) && (args.nodes || !args.plant.is_empty()) {
        let message = format!("--plant and --nodes need a simulated device, and `--device {HOST}` is this machine");
        return Err(Failure::Usage(message));
    }
    let names: Vec<String> = if args.all {
        context.catalog()?.library().list().into_iter().map(|(name, _)| name).collect()
    } else {
        args.recipes.clone()
    };
    let mut reports: Vec<Proven> = Vec::new();
    let mut passed = true;
    for name in &names {
        let loaded = context.load(name, &args.change)?;
        if args.all && loaded.recipe.golden.is_none() {
            context.progress.line(&format!("{name}: no golden, not checked"));
            context.ci.record(Suite::absent(format!("{name} golden"), "the recipe has no golden"));
            continue;
        }
        if let Some(device) = args.device.as_deref().filter(|device| *device != HOST) {
            passed &= on_device(args, device, loaded, context)?;
            continue;
        }
        if let Some((parallel, batch)) = args.split.of(&loaded)? {
            let (precision, mutants, sets) = (Precision::from(args.dtype), args.mutants, &args.change.sets);
            let precision = if mutants { Precision::F64 } else { precision };
            let golden = args.golden.as_deref().map(Golden::read).transpose()?;
            let options = SplitOptions::new(precision, batch).of_golden(golden);
            if let Some(golden) = &args.golden {
                let report = proof::check(&loaded, Some(golden), Precision::F64, args.memory, context)?;
                if !report.passed() {
                    if context.format == Format::Text {
                        proof::report::print(&report, sets, &mut context.out)?;
                    }
                    passed = false;
                    reports.push(Proven::Whole(report));
                    continue;
                }
            }
            let wanted = split::Wanted { parallel: &parallel, options, mutants, sets, memory: args.memory };
            let (right, report) = split::run(&wanted, &loaded, context)?;
            passed &= right;
            reports.push(Proven::Split(report));
            continue;
        }
        if args.mutants {
            let begun = Instant::now();
            let planting = plant(&loaded, args, context)?;
            let name = format!("{} planted faults", loaded.recipe.name);
            let checked = Checked { name, file: &loaded.path, sets: &args.change.sets, time: begun.elapsed() };
            context.ci.record(cases::mutants(checked, &planting)?);
            passed &= mutants::print(&loaded.recipe.name, &planting, &args.change.sets, context)?;
            continue;
        }
        let begun = Instant::now();
        let report = proof::check(&loaded, args.golden.as_deref(), args.dtype.into(), args.memory, context)?;
        if context.format == Format::Text {
            if !reports.is_empty() {
                writeln!(context.out)?;
            }
            proof::report::print(&report, &args.change.sets, &mut context.out)?;
        }
        let dtype = match report.dtype {
            Precision::F32 => "f32",
            Precision::F64 => "f64",
        };
        let kind = if report.baseline { " baseline" } else { "" };
        let name = format!("{} {dtype}{kind}", report.recipe);
        let checked = Checked { name, file: &loaded.path, sets: &args.change.sets, time: begun.elapsed() };
        context.ci.record(cases::suite(checked, &report.stages, report.first_divergence.as_ref())?);
        passed &= report.passed();
        reports.push(Proven::Whole(report));
        if let Some(folder) = &args.dump {
            write_dump(args, Arithmetics::Host(args.dtype.into()), &loaded, folder, context)?;
        }
    }
    if context.format == Format::Json && !reports.is_empty() {
        match (args.all, reports.as_slice()) {
            (false, [report]) => context.out.json(report)?,
            _ => drop(context.show(&Reports { reports }, |_| Ok(()))?),
        }
    }
    Ok(if passed { Exit::Pass } else { Exit::Missed })
}

/// Runs the step on a simulated device; returns whether the check passes.
fn on_device(args: &Args, device: &str, loaded: Loaded, context: &mut Context) -> Result<bool, Failure> {
    let (golden, _) = proof::golden(&loaded, args.golden.as_deref(), context)?;
    let mut loaded = loaded;
    let Some(mut simulated) = Simulated::find(Some(device), Work::Train, &mut loaded.recipe, context)? else {
        return Ok(true);
    };
    simulated.arithmetic.planted.extend(args.plant.iter().cloned());
    let begun = Instant::now();
    let report = proof::on_device(&loaded.recipe, &golden, &simulated, args.memory, context)?;
    let name = format!("{} on {}", report.recipe, report.device);
    let checked = Checked { name, file: &loaded.path, sets: &args.change.sets, time: begun.elapsed() };
    context.ci.record(cases::suite(checked, &report.stages, report.first_divergence.as_ref())?);
    match context.format {
        Format::Json => context.out.json(&report)?,
        Format::Text => device::print(&report, args.nodes, &args.change.sets, &mut context.out)?,
    }
    if let Some(folder) = &args.dump {
        write_dump(args, Arithmetics::Device(simulated.options(&loaded.recipe)), &loaded, folder, context)?;
    }
    Ok(report.verdict != Verdict::Fail)
}

/// Writes all values of the first step, and prints the path.
fn write_dump(
    args: &Args,
    arithmetic: Arithmetics<'_>,
    loaded: &Loaded,
    folder: &Path,
    context: &Context,
) -> Result<(), Failure> {
    let (golden, _) = proof::golden(loaded, args.golden.as_deref(), context)?;
    let recipe = &loaded.recipe;
    let options = DumpOptions { arithmetic, engine: Options::of(recipe) };
    let written = dump(recipe, &golden, &options, folder, &mut context.progress.foreseen(&recipe.name))?;
    let (folder, nodes, size) = (written.folder.display(), written.nodes, Bytes(written.bytes));
    info!("dump: {folder}, {nodes} nodes, {size}, step {}", written.hash);
    Ok(())
}

/// Plants every known mistake that applies to the recipe.
fn plant(loaded: &Loaded, args: &Args, context: &Context) -> Result<Planting, Failure> {
    let (golden, folder) = proof::golden(loaded, args.golden.as_deref(), context)?;
    let recipe = &loaded.recipe;
    let options = CheckOptions { precision: Precision::F64, engine: Options::of(recipe), room: None };
    proof::expect_room(recipe, || zoo_golden::memory(recipe, &golden, &options), args.memory)?;
    let mut progress = context.progress.named(zoo_golden::mutants::phases(), &recipe.name);
    Ok(zoo_golden::mutants::run(recipe, &golden, &folder, &options, &mut progress)?)
}
