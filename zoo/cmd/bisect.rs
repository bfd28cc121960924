//! `zoo bisect`: which operators must stay fp32 on a device.

use crate::complete;
use crate::console::{BAD, Console, GOOD, HEADING, paint};
use crate::context::Context;
use crate::memory::MemoryArgs;
use crate::numbers::counted;
use crate::options::RecipeArgs;
use crate::proof;
use crate::simulated::Simulated;
use crate::table::{Cell, Table};
use crate::{Exit, Failure};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use zoo_golden::device::bisect::{Bisection, bisect};
use zoo_npu::Work;

/// Find the smallest set of operators that must stay fp32 on a device.
///
/// Repeats the step of the golden on the simulated device, with more and more operators in fp32, until no node loses
/// more than the error that rounding explains. Then removes operators that turn out to be unnecessary. Use the result
/// for `npu.keep_fp32`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo bisect resnet50 --device ascend910
  zoo bisect db_resnet --device ascend910 --set npu.loss_scale=none
  zoo bisect resnet50 --device ascend910 --format json | jq '.keep[].node'")]
pub struct Args {
    #[command(flatten)]
    recipe: RecipeArgs,
    /// Device: the name of a file in recipes/devices; by default the device of the recipe
    #[arg(long, value_name = "NAME", add = complete::devices())]
    device: Option<String>,
    /// Use weights and inputs of this golden instead of the one that the recipe names
    #[arg(long, value_name = "FILE.json")]
    golden: Option<PathBuf>,
    /// Plant a fault: this node scales its results by two to this power while it computes (can be repeated)
    #[arg(long, value_name = "NODE=POWER", value_parser = crate::simulated::planted)]
    plant: Vec<(String, i32)>,
    #[command(flatten)]
    memory: MemoryArgs,
}

#[derive(Serialize)]
struct Report {
    recipe: String,
    device: String,
    #[serde(flatten)]
    bisection: Bisection,
}

/// Searches; missed if the step fails even with all suspects in fp32.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let loaded = context.load(&args.recipe.recipe, &args.recipe.change)?;
    let (golden, _) = proof::golden(&loaded, args.golden.as_deref(), context)?;
    let mut recipe = loaded.recipe;
    let name = args.device.clone().unwrap_or_else(|| recipe.npu.device.clone());
    let Some(mut simulated) = Simulated::find(Some(&name), Work::Train, &mut recipe, context)? else {
        return Err(Failure::Usage("this machine computes in fp32: choose a device with --device".to_owned()));
    };
    simulated.arithmetic.planted.extend(args.plant.iter().cloned());
    let options = simulated.options(&recipe);
    proof::expect_room(&recipe, || zoo_golden::memory_on_device(&recipe, &golden, &options), args.memory)?;
    let bisection = bisect(&recipe, &golden, &options, &mut context.progress.foreseen(&recipe.name))?;
    let passes = bisection.passes;
    let report = Report { recipe: recipe.name.clone(), device: name, bisection };
    context.show(&report, |out| print(&report, out))?;
    Ok(if passes { Exit::Pass } else { Exit::Missed })
}

fn print(report: &Report, out: &mut Console) -> Result<(), Failure> {
    let Report { recipe, device, bisection: Bisection { keep, passes, steps }, .. } = report;
    let steps = counted(*steps as u64, "step");
    writeln!(out, "{}  {device}, {steps}", paint(HEADING, recipe))?;
    if !passes {
        let verdict = paint(BAD, "still loses");
        writeln!(out, "\n{verdict} with these in fp32: the loss scale, or an operator of the update, is at fault")?;
    } else if keep.is_empty() {
        writeln!(out, "\n{}: no operator needs fp32", paint(GOOD, "pass"))?;
        return Ok(());
    }
    let mut table = Table::new(["keep in fp32", "operator"]);
    for kept in keep {
        table.row([Cell::from(kept.node.clone()), kept.op.to_owned().into()]);
    }
    write!(out, "\n{table}")?;
    let names: Vec<&str> = keep.iter().map(|kept| kept.node.as_str()).collect();
    writeln!(out, "\n--set 'npu.keep_fp32=[{}]'", names.join(", "))?;
    Ok(())
}
