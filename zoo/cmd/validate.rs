//! `zoo validate`: list all mistakes in recipes.

use crate::catalog::{Catalog, expect_text};
use crate::complete;
use crate::console::{GOOD, paint};
use crate::context::Context;
use crate::numbers::counted;
use crate::options::Format;
use crate::{Exit, Failure};
use serde::Serialize;
use std::io::Write;
use zoo_graph::GraphError;
use zoo_npu::{DeviceLibrary, NpuError};
use zoo_recipe::{BuildOptions, ConfigPath, Diagnostic, LoadOptions, Loaded, Recipe, Severity, Span};
use zoo_tasks::{InputError, task};

/// List all mistakes in recipes, with line and column.
///
/// Each recipe is checked as written and with each of its profiles. All unknown keys, types and ranges are reported at
/// once; once these are right, all mistakes in the network and its values: layers that do not fit each other, images
/// that do not fit the network, unknown devices. Legal but suspicious values are warnings, and so are a golden that
/// does not exist and a name that is not that of the file.
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
    errors: Vec<&'a Diagnostic>,
    warnings: Vec<&'a Diagnostic>,
}

/// Reports every error and warning; invalid if there is an error.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let names = match args.recipes.as_slice() {
        [] => context.catalog()?.library().list().into_iter().map(|(name, _)| name).collect(),
        given => given.to_vec(),
    };
    let devices = context.devices()?;
    let mut found: Vec<Diagnostic> = Vec::new();
    let bar = context.progress.bar(names.len() as u64);
    for (index, name) in names.iter().enumerate() {
        bar.position(index as u64);
        bar.message(name.clone());
        expect_text(name)?;
        let catalog = context.catalog()?;
        let mut diagnostics: Vec<Diagnostic> = catalog.library().validate(name).into_iter().collect();
        if diagnostics.iter().all(|d| d.severity != Severity::Error) {
            diagnostics.extend(misfits(name, catalog, &devices)?);
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
    let report = Report { errors, warnings };
    context.show(&report, |out| {
        for diagnostic in &found {
            writeln!(out, "{diagnostic}\n")?;
        }
        if !found.is_empty() {
            let [errors, warnings] = [&report.errors, &report.warnings].map(|all| all.len() as u64);
            writeln!(out, "{}, {}", counted(errors, "error"), counted(warnings, "warning"))?;
        }
        Ok(())
    })?;
    Ok(exit)
}

/// What only other files can tell, and what only shows when the step is built, in the recipe as written and in each of
/// its profiles.
fn misfits(name: &str, catalog: &Catalog, devices: &DeviceLibrary) -> Result<Vec<Diagnostic>, Failure> {
    let mut found = Vec::new();
    let mut profiles = vec![None];
    let mut next = 0;
    while let Some(profile) = profiles.get(next).cloned() {
        next += 1;
        let options = LoadOptions { profile, sets: Vec::new() };
        let Ok(mut loaded) = catalog.library().load(name, &options) else { continue };
        if next == 1 {
            profiles.extend(std::mem::take(&mut loaded.profiles).into_iter().map(Some));
            found.extend(misnamed(&loaded, catalog));
        }
        found.extend(absent_golden(&loaded, catalog)?);
        found.extend(misfit_device(&loaded.recipe, devices)?);
        found.extend(misfit_step(&loaded.recipe));
    }
    Ok(found)
}

/// A name that is inherited, or differs from the one by which the recipe is found in its folder.
fn misnamed(loaded: &Loaded, catalog: &Catalog) -> Option<Diagnostic> {
    let (recipe, path) = (&loaded.recipe, ConfigPath::from("name"));
    let stem = loaded.path.file_stem().unwrap_or_default().to_string_lossy();
    let written = recipe.span_of(&path);
    if *written.file != *loaded.path.to_string_lossy() {
        let top = Span { file: loaded.path.to_string_lossy().into(), line: 1, column: 1 };
        let message = format!("this recipe has no name of its own: it is called `{}`", recipe.name);
        let hint = "add `name:`, because goldens, runs and reports are named after it";
        return Some(Diagnostic::warning(top, path, message).with_hint(hint));
    }
    let is_found_by_name = catalog.dirs().iter().any(|dir| loaded.path.parent() == Some(dir));
    if !is_found_by_name || recipe.name == stem {
        return None;
    }
    let message = format!("the name differs from that of the file: the recipe is found as `{stem}`");
    let hint = format!("write `name: {stem}`, or rename the file to {}.yaml", recipe.name);
    Some(warning_at(recipe, &path, message).with_hint(hint))
}

/// A warning with the line of the recipe.
fn warning_at(recipe: &Recipe, path: &ConfigPath, message: String) -> Diagnostic {
    let mut warning = recipe.error_at(path, message);
    warning.severity = Severity::Warning;
    warning
}

/// A golden that is named but not there.
fn absent_golden(loaded: &Loaded, catalog: &Catalog) -> Result<Option<Diagnostic>, Failure> {
    match catalog.golden(&loaded.recipe, &loaded.path) {
        Ok(_) => Ok(None),
        Err(failure @ Failure::GoldenNotFound { .. }) => {
            Ok(Some(warning_at(&loaded.recipe, &ConfigPath::from("golden.manifest"), failure.to_string())))
        }
        Err(failure) => Err(failure),
    }
}

/// A device that does not exist, or the mistakes in its file.
fn misfit_device(recipe: &Recipe, devices: &DeviceLibrary) -> Result<Vec<Diagnostic>, Failure> {
    match devices.load(&recipe.npu.device) {
        Ok(_) => Ok(Vec::new()),
        Err(NpuError::File(mistakes)) => Ok(mistakes.into_iter().collect()),
        Err(unknown @ NpuError::UnknownDevice { .. }) => {
            Ok(vec![recipe.error_at(&ConfigPath::from("npu.device"), unknown.to_string())])
        }
        Err(other) => Err(other.into()),
    }
}

/// Layers that do not fit each other, and images that do not fit the network.
fn misfit_step(recipe: &Recipe) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let Ok(model) = recipe.resolve() else { return found };
    if let Err(InputError::Recipe { span, path, message }) = task(recipe.data.source.kind()).expect_fit(recipe) {
        found.push(recipe.error_made_at(span, &path, message));
    }
    let (origin, message) = match zoo_recipe::build(recipe, &model, &BuildOptions::train(SMALLEST_BATCH)) {
        Ok(_) => return found,
        Err(GraphError::Shape { name, origin, source }) => (origin, format!("{name}: {source}")),
        Err(GraphError::Model { origin, message }) => (origin, message),
        Err(error @ GraphError::Invariant { .. }) => (None, error.to_string()),
    };
    found.push(match origin {
        Some(origin) => recipe.error_made_at(origin.span, &ConfigPath::from(origin.path.as_str()), message),
        None => recipe.error_at(&ConfigPath::from("model"), message),
    });
    found
}

/// Batch size of the step that is built: normalisation needs more than one value per channel.
const SMALLEST_BATCH: usize = 2;
