//! A step on a simulated device, node by node.

use crate::Failure;
use crate::console::{BAD, Console, DIM, GOOD, HEADING, WARN, paint};
use crate::excerpt::excerpt;
use crate::numbers::{Ratio, Small, percent};
use crate::table::{Align, Cell, Table};
use std::io::Write;
use zoo_golden::{
    Verdict,
    device::{DeviceReport, NodeReport},
};

/// Nodes that are listed.
const LISTED: usize = 12;

/// Prints the parts of the step, where it begins to lose, the nodes that lose most, and what a loss scale saves.
pub(in crate::cmd) fn print(report: &DeviceReport, sets: &[String], out: &mut Console) -> Result<(), Failure> {
    let (recipe, device) = (paint(HEADING, &report.recipe), &report.device);
    writeln!(out, "{recipe}  {device} against this engine's f64\n")?;
    let mut table = Table::new([
        ("stage", Align::Left),
        ("nodes", Align::Right),
        ("failed", Align::Right),
        ("worst", Align::Left),
        ("error", Align::Right),
        ("expected", Align::Right),
        ("ratio", Align::Right),
        ("verdict", Align::Left),
    ]);
    for stage in &report.stages {
        let worst = stage.worst.as_ref();
        let style = if stage.verdict == Verdict::Fail { BAD } else { GOOD };
        table.row([
            Cell::from(stage.stage.to_owned()),
            stage.tensors.to_string().into(),
            stage.failed.to_string().into(),
            worst.map(|w| w.name.clone()).unwrap_or_default().into(),
            worst.map(|w| Small(w.error).to_string()).unwrap_or_default().into(),
            worst.map(|w| Small(w.floor).to_string()).unwrap_or_default().into(),
            worst.map(|w| Ratio(w.ratio).to_string()).unwrap_or_default().into(),
            Cell::styled(stage.verdict, style),
        ]);
    }
    write!(out, "{table}")?;
    if let Some(first) = &report.first_divergence {
        writeln!(out, "\n{} {} ({}), in {}", paint(BAD, "first loss of its own:"), first.node, first.op, first.stage)?;
        if let Some(line) = &first.line {
            writeln!(out, "{}", excerpt(line, sets))?;
        }
        losses(report, out)?;
    }
    if let Some(scale) = &report.loss_scale {
        let (one, present, best) = (scale.lost_at_1, scale.lost_at_present, scale.lost_at_best);
        writeln!(
            out,
            "\nloss scale {}: {} of the gradients' elements vanish (at 1: {}); best is {}: {}",
            scale.present,
            percent(present),
            percent(one),
            scale.best,
            percent(best)
        )?;
        if present > best + 0.01 || scale.present > scale.best {
            let hint = format!("--set 'npu.loss_scale={{fixed: {{scale: {}}}}}'", scale.best);
            writeln!(out, "  {} {hint}", paint(WARN, "hint:"))?;
        }
    }
    let verdict = if report.verdict == Verdict::Fail { paint(BAD, "fail") } else { paint(GOOD, "pass") };
    writeln!(out, "\n{} on {device}: {verdict}, {} nodes", report.recipe, report.nodes.len())?;
    Ok(())
}

/// The nodes that lose most.
fn losses(report: &DeviceReport, out: &mut Console) -> Result<(), Failure> {
    let mut failed: Vec<&NodeReport> = report.nodes.iter().filter(|node| node.verdict == Verdict::Fail).collect();
    let count = failed.len();
    failed.truncate(LISTED);
    let mut table = Table::new([
        ("node", Align::Left),
        ("operator", Align::Left),
        ("type", Align::Left),
        ("error", Align::Right),
        ("expected", Align::Right),
        ("underflow", Align::Right),
        ("overflow", Align::Right),
    ]);
    for node in failed {
        table.row([
            Cell::from(node.node.clone()),
            node.op.to_owned().into(),
            node.dtype.to_string().into(),
            Small(node.error).to_string().into(),
            Small(node.expected).to_string().into(),
            percent(node.underflow).to_string().into(),
            percent(node.overflow).to_string().into(),
        ]);
    }
    write!(out, "\n{table}")?;
    if count > LISTED {
        writeln!(out, "{}", paint(DIM, format!("... and {} more; --format json has all", count - LISTED)))?;
    }
    Ok(())
}
