//! `zoo import`: write the recipe of a PyTorch network.

use crate::complete;
use crate::console::Console;
use crate::context::Context;
use crate::numbers::counted;
use crate::options::Change;
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
  zoo import my_nets/resnet18.trace.json --format json | jq .same
  zoo import my_nets/resnet18.trace.json --against resnet18     prove that it is this recipe; exit 1 if not")]
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
    /// Write no recipe: prove that the network is this one, operation by operation
    #[arg(long, value_name = "RECIPE", conflicts_with_all = ["out", "name", "force"], add = complete::recipes())]
    against: Option<String>,
    #[command(flatten)]
    change: Change,
}

#[derive(Serialize)]
struct Report<'a> {
    recipe: &'a str,
    path: Option<&'a Path>,
    lines: usize,
    same: Proof,
    outputs: &'a [String],
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
    if let Some(recipe) = &args.against {
        return compare(&trace, recipe, args, context);
    }
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
        outputs: &imported.outputs,
        text: args.out.is_none().then_some(imported.text.as_str()),
    };
    context.show(&report, |out| print(&report, out))
}

/// What `--against` reports.
#[derive(Serialize)]
struct Comparison<'a> {
    recipe: &'a str,
    trace: &'a Path,
    /// What is equal; null if something differs.
    same: Option<Proof>,
    /// The first difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    differs: Option<String>,
}

/// Proves that the traced network is that of a recipe.
fn compare(trace: &Trace, name: &str, args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let recipe = context.load(name, &args.change)?.recipe;
    let (same, differs) = match zoo_import::compare(trace, &recipe) {
        Ok(proof) => (Some(proof), None),
        Err(ImportError::Differs(what)) => (None, Some(what)),
        Err(source) => return Err(Failure::Import { path: args.trace.clone(), source }),
    };
    let report = Comparison { recipe: &recipe.name, trace: &args.trace, same, differs };
    context.show(&report, |out| {
        match (&report.same, &report.differs) {
            (Some(proof), _) => {
                writeln!(out, "{}: the same network as {}: {}", args.trace.display(), name, parts(proof))?
            }
            (None, what) => {
                let what = what.as_deref().unwrap_or("something differs");
                writeln!(out, "{}: another network than {name}: {what}", args.trace.display())?;
            }
        }
        Ok(())
    })?;
    Ok(if same.is_some() { Exit::Pass } else { Exit::Missed })
}

/// What a proof counted.
fn parts(proof: &Proof) -> String {
    let Proof { operations, modules, parameters, evaluation: _ } = *proof;
    let [operations, modules, parameters] =
        [(operations, "operation"), (modules, "module output"), (parameters, "parameter")]
            .map(|(number, word)| counted(number as u64, word));
    format!("{operations}, {modules} and {parameters}")
}

fn print(report: &Report<'_>, out: &mut Console) -> Result<(), Failure> {
    if let Some(text) = report.text {
        write!(out, "{text}")?;
    }
    let Some(path) = report.path else { return Ok(()) };
    let lines = counted(report.lines as u64, "line");
    writeln!(out, "{}: {lines}; the same as the trace in {}", path.display(), parts(&report.same))?;
    Ok(())
}
