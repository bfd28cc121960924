//! `zoo device`: device files from measurements.

use crate::console::{Console, HEADING, paint};
use crate::context::Context;
use crate::machine::Machine;
use crate::numbers::percent;
use crate::options::RecipeArgs;
use crate::output;
use crate::table::Table;
use crate::{Exit, Failure, complete};
use clap::Subcommand;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use zoo_npu::Calibration;

/// The subcommands of `zoo device`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Fit a device file to the measured kernels of a step
    Calibrate(Args),
}

/// Fit a device file to the measured kernels of a step.
///
/// Each number is fitted to the kernels that wait for the unit that it describes: matrix units, Vector units, device
/// memory, the shared cache, or launches. Every second kernel is kept apart: the error before and after is theirs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo device calibrate ascend910b gpt2 --measured kernel_details.csv -o recipes/devices/my_910b.yaml
  zoo device calibrate ascend910b gpt2 --batch 8 --measured rank0.csv --measured rank1.csv -o my_910b.yaml
  zoo profile gpt2 --device my_910b --measured kernel_details.csv")]
pub struct Args {
    /// Device to start from: the name of a file in recipes/devices
    #[arg(value_name = "DEVICE", add = complete::devices())]
    device: String,
    #[command(flatten)]
    recipe: RecipeArgs,
    /// Table of kernels with their shapes, or the folder of a profiler with one (can be repeated)
    #[arg(long, value_name = "PATH", required = true)]
    measured: Vec<PathBuf>,
    /// Samples per step and device
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch: Option<u32>,
    /// The device file to write, or `-`
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

#[derive(Serialize)]
struct Report<'c> {
    device: &'c str,
    file: String,
    #[serde(flatten)]
    calibration: &'c Calibration,
}

/// Runs a subcommand.
pub(super) fn run(command: &Command, context: &mut Context) -> Result<Exit, Failure> {
    match command {
        Command::Calibrate(args) => calibrate(args, context),
    }
}

fn calibrate(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let machine = Machine { device: Some(args.device.clone()), devices: Some(1), batch: args.batch, stack: None };
    let (recipe, device) = machine.load(&args.recipe.recipe, &args.recipe.change, context)?;
    let recordings = args.measured.iter().map(|path| zoo_measured::open(path)).collect::<Result<Vec<_>, _>>()?;
    let calibration = zoo_npu::calibrate(&recipe, &device, &recordings)?;
    let name = args.output.file_stem().and_then(|stem| stem.to_str()).filter(|name| *name != "-");
    let of: Vec<String> =
        args.measured.iter().map(|path| path.file_name().unwrap_or(path.as_os_str()).display().to_string()).collect();
    let text = calibration.file(name.unwrap_or(&device.name), &of.join(", ")).map_err(std::io::Error::other)?;
    output::write_beside(&args.output, &text, context)?;
    if output::is_stdout(&args.output) {
        return Ok(Exit::Pass);
    }
    let file = args.output.display().to_string();
    let report = Report { device: &device.name, file, calibration: &calibration };
    context.show(&report, |out| print(&report, out))
}

fn print(report: &Report<'_>, out: &mut Console) -> Result<(), Failure> {
    let Calibration { kernels: [fit, apart], fitted, operators, .. } = report.calibration;
    writeln!(out, "{}  fitted to {fit} kernels, {apart} others kept apart\n", paint(HEADING, report.device))?;
    let mut table = Table::new(["number", ">before", ">after", ">kernels"]);
    for number in fitted {
        table.row([(&number.path).into(), number.before.into(), number.after.into(), number.kernels.into()]);
    }
    writeln!(out, "{table}")?;
    let mut table = Table::new(["operator", ">kernels", ">measured", "", ">error before", ">after"]);
    for rate in operators {
        table.row([
            (&rate.operator).into(),
            rate.kernels.into(),
            format!("{:.0}", rate.rate).into(),
            rate.unit.into(),
            percent(rate.before).into(),
            percent(rate.after).into(),
        ]);
    }
    writeln!(out, "{table}")?;
    let Calibration { before, after, before_by_count, after_by_count, .. } = *report.calibration;
    let [before, after, before_by_count, after_by_count] =
        [before, after, before_by_count, after_by_count].map(percent);
    writeln!(out, "median error of the kernels kept apart, over their number {before_by_count} before,")?;
    writeln!(out, "{after_by_count} after; over their time {before} before, {after} after")?;
    Ok(())
}
