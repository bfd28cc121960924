//! `zoo new`: write a recipe to start from.

use super::{Context, SCHEMA_VERSION};
use crate::catalog::Catalog;
use crate::cli::Format;
use crate::complete;
use crate::{Exit, Failure};
use serde::Serialize;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use zoo_recipe::LoadOptions;

/// Write a commented recipe to start from, and the JSON Schema for editors next to it.
///
/// With --from, the new recipe extends another one: it inherits everything, and shows the values that most recipes
/// change in comments. With --blank, it is a small residual network that can be trained at once, with every section
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
    schema_version: u32,
    recipe: &'a str,
    path: &'a Path,
}

/// Writes the file. Never replaces an existing one.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    expect_name(&args.name)?;
    let catalog = context.catalog()?;
    let path = args.out.clone().unwrap_or_else(|| catalog.own().join(format!("{}.yaml", args.name)));
    let text = match &args.from {
        Some(parent) => extending(&catalog, &args.name, parent)?,
        None => include_str!("new/blank.yaml").replace("{name}", &args.name),
    };
    write(&path, &text)?;
    put_schema(path.parent().unwrap_or(Path::new("")))?;
    match context.format {
        Format::Json => {
            context.out.json(&Report { schema_version: SCHEMA_VERSION, recipe: &args.name, path: &path })?;
        }
        Format::Text => {
            let given = args.out.as_ref().map_or(args.name.clone(), |out| out.display().to_string());
            writeln!(context.out, "{}\n\nnext:\n  zoo validate {given}\n  zoo show {given}", path.display())?;
            writeln!(context.out, "  zoo run {given}")?;
        }
    }
    Ok(Exit::Pass)
}

/// Refuses invalid recipe names.
pub(super) fn expect_name(name: &str) -> Result<(), Failure> {
    if zoo_recipe::is_name(name) {
        return Ok(());
    }
    let message = format!("`{}` is not a valid recipe name: {}", name.escape_debug(), zoo_recipe::NAMES);
    Err(Failure::Usage(message))
}

/// Writes a new file and creates its folder.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::Usage(format!("{} already exists; --out names another file", path.display()))
        }
        _ => Failure::Usage(format!("cannot write {}: {error}", path.display())),
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::File::create_new(path).and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)
}

/// Writes the schema to the path in the first line of the recipe, for completion and validation in editors.
pub(super) fn put_schema(folder: &Path) -> Result<(), Failure> {
    let path = folder.join("schema/recipe.json");
    if path.exists() { Ok(()) } else { write(&path, &format!("{:#}\n", zoo_recipe::json_schema())) }
}

/// Sections that are often changed, in the order of a recipe.
const SECTIONS: [&str; 8] = ["data", "preprocess", "loss", "optimizer", "schedule", "train", "npu", "target"];

/// A recipe that extends another, with the sections that are often changed in comments.
fn extending(catalog: &Catalog, name: &str, parent: &str) -> Result<String, Failure> {
    let loaded = catalog.load(parent, None, &[])?;
    let known = &loaded.recipe.name;
    let chain = chain(catalog, parent)?;
    let mut text = format!(
        "# yaml-language-server: $schema=schema/recipe.json\n\
         # zoo validate {name}     lists all mistakes, with line and column\n\
         # zoo show {name}         lists layers, shapes, parameters, multiply-accumulates\n\
         # zoo check {name}        proves one training step\n\
         # zoo run {name}          trains it\n\
         name: {name}\n\
         description: describe in one line what differs from {known}\n\
         extends: {known}\n\n\
         # Everything that is not written here is inherited from {known}. The sections below are copied from there: \
         uncomment and\n\
         # edit what differs. Mappings are merged key by key, lists are replaced as a whole, and `~` removes an \
         inherited value.\n"
    );
    for section in SECTIONS {
        if let Some(lines) = chain.iter().find_map(|text| section_of(text, section)) {
            text.push('\n');
            lines.iter().for_each(|line| text.push_str(&format!("# {line}\n")));
        }
    }
    text.push_str(&format!(
        "\n# The golden of {known} proves this recipe too, as long as network, loss and optimizer are the same. \
         Otherwise, make your own:\n\
         # golden: {{manifest: {name}/step.json}}\n"
    ));
    Ok(text)
}

/// The texts of a recipe and of the recipes that it extends, nearest first.
fn chain(catalog: &Catalog, name: &str) -> Result<Vec<String>, Failure> {
    let mut texts: Vec<String> = Vec::new();
    let mut next = Some(name.to_owned());
    while let Some(name) = next {
        let loaded = catalog.library().load(&name, &LoadOptions::default())?;
        let text = fs::read_to_string(&loaded.path)
            .map_err(|error| Failure::Usage(format!("{}: {error}", loaded.path.display())))?;
        next = text.lines().find_map(|line| line.strip_prefix("extends:")).map(|rest| {
            let value = rest.split('#').next().unwrap_or_default();
            value.trim().trim_matches(['"', '\'']).to_owned()
        });
        texts.push(text);
    }
    Ok(texts)
}

/// The lines of a top-level section, without blank lines and comments at its end.
fn section_of<'t>(text: &'t str, section: &str) -> Option<Vec<&'t str>> {
    let begins = |line: &&str| line.strip_prefix(section).is_some_and(|rest| rest.starts_with(':'));
    let mut lines = text.lines().skip_while(|line| !begins(line));
    let first = lines.next()?;
    let body = lines.take_while(|line| line.is_empty() || line.starts_with([' ', '#']));
    let mut found: Vec<&str> = std::iter::once(first).chain(body).collect();
    while found.last().is_some_and(|line| line.is_empty() || line.starts_with('#')) {
        found.pop();
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_ends_where_the_next_begins() {
        let text = "a: 1\nloss:\n  x: {y: 1} # why\n\n  z: 2\n\n# about b\nb: 2\n";
        assert_eq!(section_of(text, "loss").unwrap(), ["loss:", "  x: {y: 1} # why", "", "  z: 2"]);
        assert_eq!(section_of(text, "a").unwrap(), ["a: 1"]);
        assert_eq!(section_of(text, "los"), None);
    }
}
