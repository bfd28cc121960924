//! `zoo weights import`: check whether a state_dict fits a recipe.

use crate::console::{BAD, Console, DIM, GOOD, paint};
use crate::context::Context;
use crate::options::RecipeArgs;
use crate::output;
use crate::output::expect_apart;
use crate::table::{Cell, Table};
use crate::trained::{network, state_file, state_for};
use crate::{Exit, Failure};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use zoo_train::weights::{Fit, Naming, Weights};

/// Check whether a state_dict fits the network of a recipe, and convert it.
///
/// Reads a run folder, a checkpoint, a safetensors file, shards with an index, a checkpoint of MindSpore, or a file of
/// torch.save. Of several dictionaries of tensors in a file, the one that fits best is taken, and named. Names and
/// shapes must match the network, but a prefix that all names have is removed; counters and constants that the network
/// computes itself are ignored, and named. With --out, writes the weights for `zoo eval --checkpoint` and
/// `train.init_from`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo weights import resnet50 resnet50.pth                            does it fit?
  zoo weights import resnet50 resnet50.pth --out resnet50.safetensors
  zoo weights import resnet50 training.pth.tar --entry state_dict_ema
  zoo weights import gpt2 folder                                      shards and their index
  zoo weights import siammask resnet50.pth --add features.features. --partial --out part.pth

Exit codes:
  0 it fits; 2 it does not, and nothing is written; 3 the file is missing or unreadable")]
pub struct Args {
    #[command(flatten)]
    recipe: RecipeArgs,
    /// Weights: .pth, .pt, .bin, .safetensors, .ckpt of MindSpore, an index of shards or its folder, or a run folder
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write the weights under the names of the network: .safetensors, .pth or .pt for PyTorch, or .ckpt for MindSpore
    #[arg(short, long, value_name = "FILE", value_parser = state_file)]
    out: Option<PathBuf>,
    /// Entry of a PyTorch file that contains the state_dict, keys joined by dots; by default the one that fits best
    #[arg(long, value_name = "KEY")]
    entry: Option<String>,
    #[command(flatten)]
    names: Names,
    /// Use the tensors that fit, and do not fail because of the others
    #[arg(long)]
    partial: bool,
}

/// How the names of a file become names of the network.
#[derive(Clone, Debug, Default, clap::Args)]
struct Names {
    /// Remove this prefix from the names in the file, for example `module.`
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    strip: String,
    /// Add this prefix to the names in the file, for example `features.` if the file contains only this part of the
    /// network
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    add: String,
}

impl From<&Names> for Naming {
    fn from(names: &Names) -> Self {
        Self { strip: names.strip.clone(), add: names.add.clone() }
    }
}

#[derive(Serialize)]
struct Report<'a> {
    recipe: &'a str,
    #[serde(flatten)]
    fit: &'a Fit,
    fits: bool,
    /// The written file.
    out: Option<&'a Path>,
}

/// Compares and writes; invalid if it does not fit.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let recipe = context.load(&args.recipe.recipe, &args.recipe.change)?.recipe;
    let graph = network(&recipe)?;
    let weights = Weights::read(&args.file, args.entry.as_deref(), &graph, &Naming::from(&args.names))?;
    let fit = &weights.fit;
    let in_part = args.partial && !fit.taken.is_empty() && fit.not_finite.is_empty() && fit.untied.is_empty();
    let fits = fit.is_exact() || in_part;
    let out = args.out.as_deref().filter(|_| fits);
    if let Some(path) = out {
        expect_apart([weights.file.as_path(), path])?;
        output::expect_folder(path)?;
        state_for(path, &weights, &graph, None)?.save(path)?;
    }
    let report = Report { recipe: &recipe.name, fit, fits, out };
    context.show(&report, |out| print(&report, out))?;
    Ok(if fits { Exit::Pass } else { Exit::Invalid })
}

/// Number of tensors of each kind to list; `--format json` contains all.
const LISTED: usize = 20;

fn print(report: &Report<'_>, out: &mut Console) -> Result<(), Failure> {
    let Report { fit, .. } = report;
    let entry = fit.entry.as_ref().map(|entry| format!(", entry {entry}")).unwrap_or_default();
    writeln!(out, "{}{entry} against {}\n", fit.file.display(), report.recipe)?;
    for note in fit.notes() {
        writeln!(out, "{note}")?;
    }
    if !fit.notes().is_empty() {
        writeln!(out)?;
    }
    let mut table = Table::new(["tensor", "file", "network", ""]);
    let shape = |shape: &[usize]| match shape {
        [] => "scalar".to_owned(),
        _ => shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x"),
    };
    let none = String::new;
    let unlike = fit.unlike.iter().map(|of| [of.name.clone(), shape(&of.file), shape(&of.network), "shape".into()]);
    let missing = fit.missing.iter().map(|of| [of.name.clone(), "-".into(), shape(&of.shape), "missing".into()]);
    let surplus = fit.surplus.iter().map(|of| [of.name.clone(), shape(&of.shape), "-".into(), "surplus".into()]);
    let differs = |to: &str| format!("differs from {to}, to which the network ties it");
    let untied = fit.untied.iter().map(|tied| [tied.name.clone(), none(), none(), differs(&tied.to)]);
    let not_finite = fit.not_finite.iter().map(|name| [name.clone(), none(), none(), "not finite".into()]);
    let kinds: [(&str, Vec<[String; 4]>); 5] = [
        ("shape", unlike.collect()),
        ("missing", missing.collect()),
        ("surplus", surplus.collect()),
        ("differs", untied.collect()),
        ("not finite", not_finite.collect()),
    ];
    for (_, rows) in &kinds {
        rows.iter().take(LISTED).for_each(|row| table.row(row.each_ref().map(Cell::from)));
    }
    for (what, rows) in kinds.iter().filter(|(_, rows)| rows.len() > LISTED) {
        let more = Cell::styled(format!("... and {} more", rows.len() - LISTED), DIM);
        table.row([more, "".into(), "".into(), what.into()]);
    }
    // If all names differ only by a prefix, a complete list is not helpful.
    let prefixed = fit.taken.is_empty() && fit.hint.is_some();
    if !fit.is_exact() && !prefixed {
        writeln!(out, "{table}")?;
    }
    let (missing, unlike, surplus) = (fit.missing.len(), fit.unlike.len(), fit.surplus.len());
    let mut counts =
        format!("{} tensors fit, {missing} missing, {unlike} of another shape, {surplus} unexpected", fit.taken.len());
    for (count, what) in [(fit.untied.len(), "not tied"), (fit.not_finite.len(), "not finite")] {
        if count > 0 {
            counts += &format!(", {count} {what}");
        }
    }
    let verdict = match report.fits {
        true if fit.is_exact() => paint(GOOD, "fits"),
        true => paint(GOOD, "fits in part"),
        false => paint(BAD, "does not fit"),
    };
    writeln!(out, "{counts}: {verdict}")?;
    if let Some(hint) = &fit.hint {
        writeln!(out, "hint: {hint}")?;
    } else if !report.fits && !fit.taken.is_empty() && fit.untied.is_empty() && fit.not_finite.is_empty() {
        writeln!(
            out,
            "hint: with --partial, tensors that fit are used and the others are initialised as the \
                               recipe says"
        )?;
    }
    if let Some(file) = report.out {
        writeln!(out, "written to {}", file.display())?;
    }
    Ok(())
}
