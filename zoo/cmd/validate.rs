//! `zoo validate`: list all mistakes in recipes.

use super::{Context, SCHEMA_VERSION};
use crate::cli::Format;
use crate::complete;
use crate::console::{GOOD, paint};
use crate::numbers::counted;
use crate::{Exit, Failure};
use serde::Serialize;
use std::io::Write;
use zoo_graph::GraphError;
use zoo_recipe::BuildOptions;
use zoo_recipe::{ConfigPath, Diagnostic, Library, LoadOptions, Severity};
use zoo_tasks::{InputError, task};

/// List all mistakes in recipes, with line and column.
///
/// Each recipe is checked as written and with each of its profiles. Mistakes are unknown keys, wrong types, values out
/// of range, layers that do not fit each other, and images that do not fit the network. Legal but suspicious values are
/// warnings.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo validate                      all recipes
  zoo validate resnet50 alexnet
  zoo validate drafts/my_net.yaml
  zoo validate my_net.yaml --format json | jq '.errors[] | \"\\(.line): \\(.message)\"'")]
pub struct Args {
    /// Names of recipes, or paths of their files; by default all recipes
    #[arg(value_name = "RECIPE", add = complete::recipes())]
    recipes: Vec<String>,
}

#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    errors: Vec<&'a Diagnostic>,
    warnings: Vec<&'a Diagnostic>,
}

/// Reports every error and warning; invalid if there is an error.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let catalog = context.catalog()?;
    let names = match args.recipes.as_slice() {
        [] => catalog.library().list().into_iter().map(|(name, _)| name).collect(),
        given => given.to_vec(),
    };
    let mut found: Vec<Diagnostic> = Vec::new();
    let bar = context.progress.bar(names.len() as u64);
    for (index, name) in names.iter().enumerate() {
        bar.position(index as u64);
        bar.message(name.clone());
        let mut diagnostics: Vec<Diagnostic> = catalog.library().validate(name).into_iter().collect();
        if diagnostics.iter().all(|d| d.severity != Severity::Error) {
            diagnostics.extend(misfits(catalog.library(), name));
        }
        if context.format == Format::Text && diagnostics.iter().all(|d| d.severity != Severity::Error) {
            writeln!(context.out, "{name}: {}", paint(GOOD, "ok"))?;
        }
        for diagnostic in diagnostics {
            if !found.contains(&diagnostic) {
                found.push(diagnostic);
            }
        }
    }
    drop(bar);
    found.iter().for_each(|diagnostic| context.ci.diagnostic(diagnostic));
    let (errors, warnings): (Vec<&Diagnostic>, Vec<&Diagnostic>) =
        found.iter().partition(|diagnostic| diagnostic.severity == Severity::Error);
    let exit = if errors.is_empty() { Exit::Pass } else { Exit::Invalid };
    match context.format {
        Format::Json => context.out.json(&Report { schema_version: SCHEMA_VERSION, errors, warnings })?,
        Format::Text => {
            for diagnostic in &found {
                writeln!(context.out, "{diagnostic}\n")?;
            }
            if !found.is_empty() {
                writeln!(
                    context.out,
                    "{}, {}",
                    counted(errors.len() as u64, "error"),
                    counted(warnings.len() as u64, "warning")
                )?;
            }
        }
    }
    Ok(exit)
}

/// Layers that do not fit each other and images that do not fit the network, in the recipe as written and in each of
/// its profiles.
fn misfits(library: &Library, name: &str) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut profiles = vec![None];
    let mut next = 0;
    while let Some(profile) = profiles.get(next).cloned() {
        next += 1;
        let Ok(loaded) = library.load(name, &LoadOptions { profile, sets: Vec::new() }) else { continue };
        if next == 1 {
            profiles.extend(loaded.profiles.into_iter().map(Some));
        }
        let recipe = loaded.recipe;
        let Ok(model) = recipe.resolve() else { continue };
        if let Err(InputError::Recipe { span, path, message }) = task(recipe.data.source.kind()).expect_fit(&recipe) {
            found.push(recipe.error_made_at(span, &path, message));
        }
        let (origin, message) = match zoo_recipe::build(&recipe, &model, &BuildOptions::train(SMALLEST_BATCH)) {
            Ok(_) => continue,
            Err(GraphError::Shape { name, origin, source }) => (origin, format!("{name}: {source}")),
            Err(GraphError::Model { origin, message }) => (origin, message),
            Err(error @ GraphError::Invariant { .. }) => (None, error.to_string()),
        };
        found.push(match origin {
            Some(origin) => recipe.error_made_at(origin.span, &ConfigPath::from(origin.path.as_str()), message),
            None => recipe.error_at(&ConfigPath::from("model"), message),
        });
    }
    found
}

/// Batch size of the step that is built: normalisation needs more than one value per channel.
const SMALLEST_BATCH: usize = 2;
