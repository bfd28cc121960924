//! `zoo cp`: copy a recipe.

use super::{Context, SCHEMA_VERSION, new};
use crate::cli::Format;
use crate::complete;
use crate::{Exit, Failure};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use zoo_recipe::LoadOptions;

/// Copy a recipe under a new name, with its comments and with `extends`.
///
/// The copy refers to the golden of the original, which is valid as long as network, loss and optimizer stay the same.
/// To change only a few settings, use `zoo new NAME --from RECIPE`: the new recipe extends the original.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo cp resnet50 my_resnet
  zoo cp resnet50 my_resnet --out drafts/my_resnet.yaml")]
pub struct Args {
    /// Name of a recipe, or path of its file
    #[arg(value_name = "RECIPE", add = complete::recipes())]
    recipe: String,
    /// Name of the copy: lower-case letters, digits, `-` and `_`
    name: String,
    /// File to write; by default NAME.yaml in the folder `recipes`
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    recipe: &'a str,
    copy_of: &'a str,
    path: &'a Path,
}

/// Copies the recipe and prints the path. Never replaces an existing file.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    new::expect_name(&args.name)?;
    let catalog = context.catalog()?;
    let loaded = catalog.library().load(&args.recipe, &LoadOptions::default())?;
    let unreadable = |source| Failure::Unreadable { path: loaded.path.clone(), source };
    let text = std::fs::read_to_string(&loaded.path).map_err(unreadable)?;
    let path = args.out.clone().unwrap_or_else(|| catalog.own().join(format!("{}.yaml", args.name)));
    new::write(&path, &renamed(&text, &args.name))?;
    new::put_schema(path.parent().unwrap_or(Path::new("")))?;
    match context.format {
        Format::Json => {
            let (recipe, copy_of) = (args.name.as_str(), loaded.recipe.name.as_str());
            context.out.json(&Report { schema_version: SCHEMA_VERSION, recipe, copy_of, path: &path })?;
        }
        Format::Text => writeln!(context.out, "{}", path.display())?,
    }
    Ok(Exit::Pass)
}

/// The text of a recipe under another name.
fn renamed(text: &str, name: &str) -> String {
    let line = |line: &str| match line.starts_with("name:") {
        true => format!("name: {name}\n"),
        false => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_of_the_recipe_changes() {
        let text = "# name: of a comment\nname: a\nmodel:\n  name: a\n";
        assert_eq!(renamed(text, "b"), "# name: of a comment\nname: b\nmodel:\n  name: a\n");
    }
}
