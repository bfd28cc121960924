//! `zoo check --parallel`: proves a step that several ranks share.

use super::Args;
use crate::Failure;
use crate::console::{BAD, Console, DIM, HEADING, paint};
use crate::context::Context;
use crate::excerpt::excerpt;
use crate::proof::report;
use std::io::Write;
use zoo_golden::{
    Precision, Verdict,
    split::{PHASES, SplitOptions, SplitReport, check_split},
};
use zoo_graph::Bytes;
use zoo_recipe::{Loaded, Parallel};

/// Samples of each part of the batch, unless `--batch` gives all of them.
const SAMPLES: usize = 2;

/// Checks a split; returns whether all ranks together compute the step of one device.
pub(super) fn run(args: &Args, parallel: &Parallel, loaded: &Loaded, context: &mut Context) -> Result<bool, Failure> {
    let recipe = &loaded.recipe;
    let options = SplitOptions {
        precision: args.dtype.into(),
        batch: args.batch.map_or(SAMPLES * parallel.parts_of_batch(), |batch| batch as usize),
        learning_rate: recipe.schedule.peak_lr(),
    };
    let mut progress = context.progress.named(PHASES, &recipe.name);
    let report = check_split(recipe, parallel, &options, &mut progress)?;
    drop(progress);
    context.show(&report, |out| print(&report, &args.change.sets, out))?;
    Ok(report.passed())
}

fn print(split: &SplitReport, sets: &[String], out: &mut Console) -> Result<(), Failure> {
    let arithmetic = match split.dtype {
        Precision::F32 => "f32",
        Precision::F64 => "f64",
    };
    let (name, parallel, ranks, batch) = (&split.recipe, &split.parallel, split.ranks, split.batch);
    let title = paint(HEADING, format!("{name} {parallel}"));
    writeln!(out, "{title}  {ranks} ranks in {arithmetic}, batch {batch}, against one device in f64\n")?;
    for made in &split.collectives {
        let (operator, over, count, bytes) = (made.operator, made.over, made.count, Bytes(made.bytes));
        writeln!(out, "{}", paint(DIM, format!("{count} {operator} over {over}, {bytes} of each rank in f32")))?;
    }
    writeln!(out, "{}\n", paint(DIM, format!("{} parameters are divided", split.divided.len())))?;
    write!(out, "{}", report::stages(&split.stages, [">compared", ">floor"], &[]))?;
    for stage in split.stages.iter().filter(|stage| stage.verdict == Verdict::Fail) {
        report::failures(stage, out)?;
    }
    if let Some(first) = &split.first_divergence {
        writeln!(out, "\n{} {}: {}", paint(BAD, "first divergence in"), first.stage, first.tensor)?;
        writeln!(out, "  {}", first.explanation)?;
        if let Some(line) = &first.line {
            for line in excerpt(line, sets).lines() {
                writeln!(out, "  {line}")?;
            }
        }
    }
    writeln!(out, "\n{name} {parallel}: {}", report::verdict_line(&split.stages, split.verdict))?;
    Ok(())
}
