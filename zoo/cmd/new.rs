//! `zoo new`: write a recipe to start from.

mod sections;

use crate::catalog::Catalog;
use crate::complete;
use crate::context::Context;
use crate::recipe_file::{self, reference};
use crate::{Exit, Failure};
use sections::{chain, is_set, section_of};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use zoo_recipe::Loaded;
use zoo_train::quoted;

/// Write a commented recipe to start from, and the JSON Schema for editors next to it.
///
/// With --from, the new recipe extends another one: it inherits everything, and lists, as comments, the values that are
/// changed most often. With --blank, it is a small residual network that can be trained at once, with every section
/// explained.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("start").required(true), after_help = "\
Examples:
  zoo new my_resnet --from resnet50
  zoo new my_net --blank
  zoo new my_net --blank --out drafts/my_net.yaml")]
pub struct Args {
    /// Name of the new recipe: lower-case letters, digits, `-` and `_`
    name: String,
    /// Extend this recipe
    #[arg(long, value_name = "RECIPE", add = complete::recipes(), group = "start")]
    from: Option<String>,
    /// Start with a small residual network
    #[arg(long, group = "start")]
    blank: bool,
    /// File to write; by default NAME.yaml in the folder `recipes`
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report<'a> {
    recipe: &'a str,
    path: &'a Path,
}

/// Writes the file. Never replaces an existing one.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    recipe_file::expect_name(&args.name)?;
    let catalog = context.catalog()?;
    let path = args.out.clone().unwrap_or_else(|| catalog.own().join(format!("{}.yaml", args.name)));
    // The argument with which other commands find the recipe.
    let given = quoted(&match args.out.as_ref().map(|out| out.display().to_string()) {
        Some(out) if reference::is_path(&out) => out,
        Some(out) => format!("./{out}"),
        None => args.name.clone(),
    });
    match &args.from {
        Some(parent) => {
            let loaded = catalog.load(parent, None, &[])?;
            let extends = |folder: &Path| reference::from_folder(catalog, parent, &loaded.path, folder);
            recipe_file::write_valid(catalog, &path, |folder| {
                extending(catalog, (&args.name, &given), &loaded, &extends(folder)?)
            })?;
        }
        None => {
            let text = include_str!("new/blank.yaml").replace("{name}", &args.name).replace("{given}", &given);
            recipe_file::write(&path, &text, recipe_file::OTHER_FILE)?;
        }
    }
    recipe_file::put_schema(path.parent().unwrap_or(Path::new("")))?;
    context.show(&Report { recipe: &args.name, path: &path }, |out| {
        writeln!(out, "{}\n\nnext:\n  zoo validate {given}\n  zoo show {given}", path.display())?;
        Ok(writeln!(out, "  zoo run {given}")?)
    })
}

/// Sections that are often changed, in the order of a recipe.
const SECTIONS: [&str; 8] = ["data", "preprocess", "loss", "optimizer", "schedule", "train", "npu", "target"];

/// A recipe that extends another one, to which it refers as `extends`, with the sections that are often changed in
/// comments. `given` is the argument with which commands find the new recipe.
fn extending(
    catalog: &Catalog,
    (name, given): (&str, &str),
    loaded: &Loaded,
    extends: &str,
) -> Result<String, Failure> {
    let (known, extends) = (&loaded.recipe.name, reference::written(extends));
    let mut text = format!(
        "# yaml-language-server: $schema=schema/recipe.json\n\
         # zoo validate {given}     lists all mistakes, with line and column\n\
         # zoo show {given}         lists layers, shapes, parameters, multiply-accumulates\n\
         # zoo check {given}        proves one training step\n\
         # zoo run {given}          trains it\n\
         name: {name}\n\
         description: describe in one line what differs from {known}\n\
         extends: {extends}\n\n\
         # Everything that is not written here is inherited from {known}. The sections below are copied from there: \
         uncomment and\n\
         # edit what differs. Mappings are merged key by key, lists are replaced as a whole, and `~` removes an \
         inherited value.\n"
    );
    let chain = chain(catalog, &loaded.path)?;
    let unwritten = |error| Failure::Usage(format!("{known} cannot be written: {error}"));
    let resolved = loaded.recipe.to_yaml().map_err(unwritten)?;
    for section in SECTIONS {
        // `set` changes values of a section that is written elsewhere.
        let lines = match chain.iter().any(|text| is_set(text, section)) {
            true => section_of(&resolved, section),
            false => chain.iter().find_map(|text| section_of(text, section)),
        };
        if let Some(lines) = lines {
            text.push('\n');
            lines.iter().for_each(|line| text.push_str(&format!("# {line}\n")));
        }
    }
    let golden = match &loaded.recipe.golden {
        Some(_) => format!(
            "The golden of {known} proves this recipe too, as long as network, loss and optimizer are the same. \
             Otherwise, make your own:"
        ),
        None => format!("{known} has no golden. golden/README.md of zoo explains how to export one from PyTorch:"),
    };
    text.push_str(&format!("\n# {golden}\n# golden: {{manifest: {name}/step.json}}\n"));
    Ok(text)
}
