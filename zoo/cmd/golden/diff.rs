//! `zoo golden diff`: compare two dumps of one step.

use crate::console::{BAD, DIM, GOOD, HEADING, paint};
use crate::context::Context;
use crate::excerpt::excerpt;
use crate::numbers::{Small, percent};
use crate::options::Format;
use crate::table::{Cell, Table};
use crate::{Exit, Failure};
use std::io::Write;
use std::path::PathBuf;
use zoo_golden::{
    Verdict,
    dump::{Comparison, Dump, DumpFacts, Fault, NodeDifference, Own, diff},
};
use zoo_train::HOST;

/// Number of faulty operators to list.
const LISTED: usize = 12;

/// Compare two dumps of a step and find the first operator with an error of its own, which is not inherited from its
/// operands.
///
/// The dumps are of one recipe with the same weights and inputs: in fp32 and on an NPU, on two devices, or of two
/// versions. `zoo check RECIPE --dump DIR` writes them. Passes if all differences are rounding, or follow from it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo check resnet50 --dump in_fp32
  zoo check resnet50 --device ascend910 --dump on_npu
  zoo golden diff in_fp32 on_npu
  zoo golden diff in_fp32 on_npu --format json | jq .first.node")]
pub struct Args {
    /// Folder of the first dump, the reference
    #[arg(value_name = "A")]
    a: PathBuf,
    /// Folder of the second
    #[arg(value_name = "B")]
    b: PathBuf,
}

/// Compares; missed if an operator is at fault.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let (a, b) = (Dump::open(&args.a)?, Dump::open(&args.b)?);
    let comparison = diff(&a, &b, &mut context.progress.counted("nodes compared"))?;
    match context.format {
        Format::Json => context.out.json(&comparison)?,
        Format::Text => print(&comparison, context)?,
    }
    Ok(if comparison.verdict == Verdict::Fail { Exit::Missed } else { Exit::Pass })
}

fn print(comparison: &Comparison, context: &mut Context) -> Result<(), Failure> {
    let out = &mut context.out;
    writeln!(out, "{}  two dumps of a step\n", paint(HEADING, &comparison.recipe))?;
    let mut dumps = Table::new(["", "dump", "in", ">loss scale", ">loss"]);
    for (letter, DumpFacts { folder, device, dtype, loss_scale, loss, .. }) in
        [("A", &comparison.a), ("B", &comparison.b)]
    {
        let loss = loss.map_or("not finite".to_owned(), |loss| format!("{loss:.6}"));
        let computes = if device == HOST { dtype } else { device };
        dumps.row([letter.into(), folder.into(), computes.into(), (*loss_scale).into(), loss.into()]);
    }
    writeln!(out, "{dumps}")?;
    if let Some(first) = &comparison.first {
        found(first, comparison, out)?;
    }
    for (only, letter) in [(&comparison.only_in_a, "A"), (&comparison.only_in_b, "B")] {
        if let Some(name) = only.first() {
            writeln!(out, "{}: {} operators, first {name}", paint(BAD, format!("only in {letter}")), only.len())?;
        }
    }
    let differing = comparison.nodes.iter().filter(|node| node.error != Some(0.0)).count();
    let verdict = match (comparison.verdict, comparison.identical) {
        (Verdict::Fail, _) => paint(BAD, "fail"),
        (_, true) => format!("{}: bit-identical", paint(GOOD, "pass")),
        (_, false) => format!("{}: all differences are due to rounding or inherited", paint(GOOD, "pass")),
    };
    writeln!(out, "{verdict}, {differing} of {} operators differ", comparison.nodes.len())?;
    Ok(())
}

/// The first operator at fault, and those after it.
fn found(first: &NodeDifference, comparison: &Comparison, out: &mut crate::console::Console) -> Result<(), Failure> {
    let heading = paint(BAD, "first error of its own:");
    let place = match first.fault {
        Some(Fault::A) => "in A",
        Some(Fault::B) => "in B",
        Some(Fault::Both) => "in both",
        Some(Fault::Between) | None => "its operands are equal, so it is not the same operator in both dumps",
    };
    writeln!(out, "{heading} {} ({}), {}, {place}", first.node, first.op, first.stage)?;
    if let Some(line) = &first.line {
        writeln!(out, "{}", excerpt(line, &[]))?;
    }
    let faults: Vec<&NodeDifference> = comparison.nodes.iter().filter(|node| node.fault.is_some()).collect();
    let mut table =
        Table::new(["operator at fault", "in", ">differs", ">inherited", ">own", ">expected", ">zero", ">over"]);
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| Small(value).to_string());
    for node in faults.iter().take(LISTED) {
        let side = usize::from(!matches!(node.fault, Some(Fault::A)));
        let own = node.own[side].unwrap_or(Own { error: Some(0.0), expected: None });
        let letter = match node.fault {
            Some(Fault::A) => "A",
            Some(Fault::B) => "B",
            Some(Fault::Both) => "A, B",
            Some(Fault::Between) | None => "-",
        };
        table.row([
            Cell::from(&node.node),
            letter.into(),
            number(node.error).into(),
            number(node.inherited).into(),
            number(own.error).into(),
            number(own.expected).into(),
            percent(node.underflow[side]).into(),
            percent(node.overflow[side]).into(),
        ]);
    }
    write!(out, "\n{table}")?;
    if faults.len() > LISTED {
        writeln!(out, "{}", paint(DIM, format!("... and {} more", faults.len() - LISTED)))?;
    }
    writeln!(out)?;
    Ok(())
}
