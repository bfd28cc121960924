//! A step on a simulated device, node by node.

use super::picture::Picture;
use crate::Failure;
use crate::console::{BAD, Console, DIM, HEADING, WARN, paint};
use crate::numbers::percent;
use crate::proof::report;
use crate::table::{Cell, Table};
use std::io::Write;
use zoo_golden::{
    Stage, Verdict,
    device::{DeviceReport, Exponents, NodeReport, ScaleReport},
};

/// Number of nodes to list by default.
const LISTED: usize = 12;
/// Share of elements lost from which on a node is listed although it passes.
const NOTABLE: f64 = 1e-3;

/// Prints the stages, the first loss of precision, the nodes with the largest losses (or `all` of them), and the effect
/// of loss scales; `sets` are the values of `--set`.
pub(super) fn print(report: &DeviceReport, all: bool, sets: &[String], out: &mut Console) -> Result<(), Failure> {
    let (recipe, device) = (paint(HEADING, &report.recipe), &report.device);
    writeln!(out, "{recipe}  {device}, each node on the operands that it reads there\n")?;
    write!(out, "{}", report::stages(&report.stages, [">nodes", ">bound"], &[]))?;
    if !report.end_to_end.is_empty() {
        let off = report.end_to_end.iter();
        let off = off.map(|item| format!("{} {:.1e}", item.name.replace("@root#0", "output"), item.error));
        writeln!(out, "off the golden: {}", off.collect::<Vec<_>>().join(", "))?;
    }
    for stage in report.stages.iter().filter(|stage| stage.verdict == Verdict::Fail) {
        writeln!(out, "{} of {} fail in {}", stage.failed.len(), stage.tensors, paint(BAD, stage.stage))?;
    }
    if let Some(divergence) = &report.first_divergence {
        report::first_divergence(divergence, sets, out)?;
    }
    nodes(report, all, out)?;
    if let Some(scale) = &report.loss_scale {
        loss_scale(scale, report.verdict, out)?;
    }
    report::conditions(&report.conditions_differ, out)?;
    let verdict = report::verdict_line(&report.stages, report.verdict);
    writeln!(out, "\n{} on {device}: {verdict}, {} nodes", report.recipe, report.nodes.len())?;
    Ok(())
}

/// Exponents of all values and of all gradients, and the nodes with the largest losses.
fn nodes(report: &DeviceReport, all: bool, out: &mut Console) -> Result<(), Failure> {
    let lost = |node: &&NodeReport| node.verdict == Verdict::Fail || node.underflow + node.overflow > NOTABLE;
    let mut listed: Vec<&NodeReport> = report.nodes.iter().filter(|node| all || lost(node)).collect();
    let count = listed.len();
    if !all {
        // Nodes that fail come first, in their order, then those with the largest losses.
        listed.sort_by(|a, b| {
            let fails = |node: &NodeReport| node.verdict != Verdict::Fail;
            let share = |node: &NodeReport| match node.verdict {
                Verdict::Fail => 0.0,
                Verdict::Pass | Verdict::Partial | Verdict::Absent => node.underflow + node.overflow,
            };
            fails(a).cmp(&fails(b)).then(share(b).total_cmp(&share(a)))
        });
        listed.truncate(LISTED);
    }
    let halves = report.nodes.iter().map(|node| node.dtype).find(|dtype| Picture::of(*dtype).is_some());
    let picture = halves.and_then(Picture::of);
    let mut table = Table::new(["node", "type", "exponents", ">zero", ">over"]);
    if let Some(picture) = &picture {
        for (name, stage) in [("all values", Stage::Forward), ("all gradients", Stage::Backward)] {
            let of_stage = report.nodes.iter().filter(|node| node.stage == stage && Some(node.dtype) == halves);
            table.row([name.into(), "".into(), picture.draw(&together(of_stage)).into()]);
        }
    }
    for node in listed {
        let exponents = together([node].into_iter());
        let style = if node.verdict == Verdict::Fail { BAD } else { DIM };
        table.row([
            (&node.node).into(),
            Cell::styled(node.dtype, style),
            picture.as_ref().map(|picture| picture.draw(&exponents)).unwrap_or_default().into(),
            percent(node.underflow).into(),
            percent(node.overflow).into(),
        ]);
    }
    write!(out, "\n{table}")?;
    if let Some(picture) = picture {
        writeln!(out, "{}", paint(DIM, picture.legend()))?;
    }
    if !all && count > LISTED {
        writeln!(out, "{}", paint(DIM, format!("... and {} more: --nodes lists all", count - LISTED)))?;
    }
    Ok(())
}

/// Sums the exponents of nodes on the device, including the loss scale.
fn together<'n>(nodes: impl Iterator<Item = &'n NodeReport>) -> Exponents {
    let mut sum = Exponents::new();
    for node in nodes {
        for (exponent, count) in &node.exponents {
            *sum.entry(exponent + node.scaled_by).or_default() += count;
        }
    }
    sum
}

/// Gradient losses with the current loss scale, and with others.
fn loss_scale(scale: &ScaleReport, verdict: Verdict, out: &mut Console) -> Result<(), Failure> {
    let is_of_no_use = verdict == Verdict::Fail && !scale.advises_best();
    let mut table = Table::new(["loss scale", ">", ">gradient elements that underflow"]);
    for (which, value, lost) in [
        ("none", 1.0, scale.lost_at_1),
        ("present", scale.present, scale.lost_at_present),
        (if is_of_no_use { "as good" } else { "sufficient" }, scale.best, scale.lost_at_best),
    ] {
        table.row([which.into(), value.into(), format!("{:.2} %", 100.0 * lost).into()]);
    }
    write!(out, "\n{table}")?;
    if scale.advises_best() {
        let hint = format!("--set 'npu.loss_scale={{fixed: {{scale: {}}}}}'", scale.best);
        writeln!(out, "{} {hint}", paint(WARN, "hint:"))?;
    } else if is_of_no_use {
        let hint = format!("loss scales up to {} hardly change this: look at the nodes that fail", scale.most);
        writeln!(out, "{} {hint}", paint(WARN, "hint:"))?;
    }
    Ok(())
}
