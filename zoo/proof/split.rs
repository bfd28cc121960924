//! Steps that several ranks share: the option, and the verdict for people.

use super::report;
use crate::Failure;
use crate::console::{BAD, Console, DIM, HEADING, paint};
use crate::excerpt::excerpt;
use crate::table::fitted;
use std::io::Write;
use zoo_golden::{Precision, Verdict, split::SplitReport};
use zoo_graph::Bytes;
use zoo_recipe::{Loaded, Parallel};

/// How several ranks share a step.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SplitArgs {
    /// How several ranks share the step, for example `data=2,tensor=2,sequence`; without a value, as `parallel` of the
    /// recipe says
    #[arg(long, value_name = "SPLIT", num_args = 0..=1, default_missing_value = "")]
    parallel: Option<String>,
    /// Samples per step of all ranks together, for --parallel; by default two samples or micro-batches of each data
    /// rank, at least four
    #[arg(long, value_name = "N", requires = "parallel", conflicts_with = "golden", value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch: Option<u32>,
}

impl SplitArgs {
    /// The split and the batch, if one is wanted.
    ///
    /// # Errors
    /// A split that cannot be read, or a recipe without one.
    pub fn of(&self, loaded: &Loaded) -> Result<Option<(Parallel, usize)>, Failure> {
        let parallel = match self.parallel.as_deref() {
            None => return Ok(None),
            Some("") => loaded.recipe.parallel.clone().ok_or_else(|| {
                let name = &loaded.recipe.name;
                Failure::Usage(format!(
                    "the recipe `{name}` has no section `parallel`: say how ranks share the step, as in `--parallel data=2`"
                ))
            })?,
            Some(text) => text.parse().map_err(|message| Failure::Usage(format!("--parallel: {message}")))?,
        };
        let batch = self.batch.map_or(parallel.batch(), |batch| batch as usize);
        Ok(Some((parallel, batch)))
    }
}

/// The recipe and its split.
pub fn name_of(split: &SplitReport) -> String {
    format!("{} {}", split.recipe, split.parallel)
}

/// The same as a heading.
pub fn heading(split: &SplitReport) -> String {
    paint(HEADING, name_of(split))
}

/// The name of an arithmetic.
pub fn arithmetic(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "f32",
        Precision::F64 => "f64",
    }
}

/// Prints what was compared, and what differs.
pub fn print(split: &SplitReport, covered: &[String], sets: &[String], out: &mut Console) -> Result<(), Failure> {
    for made in &split.collectives {
        let (operator, over, count, bytes) = (made.operator, made.over, made.count, Bytes(made.bytes));
        writeln!(out, "{}", paint(DIM, format!("{count} {operator} over {over}, {bytes} of each rank in f32")))?;
    }
    writeln!(out, "{}\n", paint(DIM, format!("{} parameters are divided", split.divided.len())))?;
    if !split.without_digits.is_empty() {
        let count = split.without_digits.len();
        let note = format!("{count} values are rounding alone on one device too, and judged by their size\n");
        writeln!(out, "{}", paint(DIM, fitted(&note)))?;
    }
    write!(out, "{}", report::stages(&split.stages, [">compared", ">floor"], covered))?;
    report::decided_in_f64(&split.stages, out)?;
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
    Ok(())
}
