//! `zoo import`: write the recipe of a PyTorch network.

use crate::console::Console;
use crate::context::Context;
use crate::numbers::counted;
use crate::output;
use crate::recipe_file;
use crate::{Exit, Failure};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use zoo_import::{ImportError, MAX_BYTES, Proof, Trace};
use zoo_tensors::format;

/// Write the recipe of a PyTorch network from its trace.
///
/// `python -m zoo_golden port` makes the trace and the golden, and calls this command and `zoo check`. The recipe keeps
/// the module tree and the names of the state_dict. Repeated modules become blocks and stacks, and defaults are
/// omitted. Before the recipe is written, it is compared with the trace, operation by operation. Operations that
/// recipes cannot express are refused, with the module, the operator, its file and line, and the closest alternative.
///
/// `python -m zoo_golden port torchvision:resnet18 -o my_nets` makes the trace of the examples. See docs/import.md.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo import my_nets/resnet18.trace.json
  zoo import my_nets/resnet18.trace.json --out recipes/my_resnet18.yaml
  zoo import my_nets/resnet18.trace.json --format json | jq .same")]
pub struct Args {
    /// The trace
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Recipe to write; by default stdout
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Name of the recipe; by default the name of the file, or of the model
    #[arg(long)]
    name: Option<String>,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    recipe: &'a str,
    path: Option<&'a Path>,
    lines: usize,
    same: Proof,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

/// Writes the recipe after it is proven to be the same network.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let unreadable = |source| Failure::Unreadable { path: args.trace.clone(), source };
    if let Some(what) = format::not_text(&args.trace).map_err(unreadable)? {
        let message = format!("{what}, not a trace: python -m zoo_golden trace writes one from the PyTorch network");
        return Err(Failure::Import { path: args.trace.clone(), source: ImportError::Malformed(message) });
    }
    let bytes = zoo_datasets::files::read(&args.trace, MAX_BYTES as u64).map_err(unreadable)?;
    let failed = |source| Failure::Import { path: args.trace.clone(), source };
    let trace = Trace::read(&bytes).map_err(failed)?;
    let of_file = args.out.as_deref().and_then(Path::file_stem).map(|stem| stem.to_string_lossy().into_owned());
    let of_model = trace.model.rsplit([':', '/', '.']).next().unwrap_or_default().to_ascii_lowercase();
    let name = args.name.clone().or(of_file).unwrap_or(of_model);
    recipe_file::expect_name(&name)?;
    let imported = zoo_import::import(&trace, &name).map_err(failed)?;
    if !imported.proof.evaluation {
        tracing::warn!(
            "{}: a trace of format 1 has no call in evaluation mode: whether the network computes something else there \
             was not seen; `python -m zoo_golden port` makes a trace that says so",
            args.trace.display()
        );
    }
    if let Some(path) = &args.out {
        match args.force {
            true => output::write(path, &imported.text, context)?,
            false => recipe_file::write(path, &imported.text, "--force replaces it, --out names another file")?,
        }
        recipe_file::put_schema(path.parent().unwrap_or(Path::new("")))?;
    }
    let report = Report {
        recipe: &name,
        path: args.out.as_deref(),
        lines: imported.text.lines().count(),
        same: imported.proof,
        text: args.out.is_none().then_some(imported.text.as_str()),
    };
    context.show(&report, |out| print(&report, out))
}

fn print(report: &Report<'_>, out: &mut Console) -> Result<(), Failure> {
    if let Some(text) = report.text {
        write!(out, "{text}")?;
    }
    let Some(path) = report.path else { return Ok(()) };
    let Proof { operations, modules, parameters, evaluation: _ } = report.same;
    let [lines, operations, modules, parameters] =
        [(report.lines, "line"), (operations, "operation"), (modules, "module output"), (parameters, "parameter")]
            .map(|(number, word)| counted(number as u64, word));
    writeln!(out, "{}: {lines}; the same as the trace in {operations}, {modules} and {parameters}", path.display())?;
    Ok(())
}
