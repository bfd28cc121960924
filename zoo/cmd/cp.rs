//! `zoo cp`: copy a recipe.

use crate::complete;
use crate::context::Context;
use crate::recipe_file;
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
    recipe: &'a str,
    copy_of: &'a str,
    path: &'a Path,
}

/// Copies the recipe and prints the path. Never replaces an existing file.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    recipe_file::expect_name(&args.name)?;
    let catalog = context.catalog()?;
    let loaded = catalog.library().load(&args.recipe, &LoadOptions::default())?;
    let unreadable = |source| Failure::Unreadable { path: loaded.path.clone(), source };
    let text = std::fs::read_to_string(&loaded.path).map_err(unreadable)?;
    let path = args.out.clone().unwrap_or_else(|| catalog.own().join(format!("{}.yaml", args.name)));
    let moved = |folder: &Path| recipe_file::reference::moved(catalog, &text, &loaded.path, folder);
    recipe_file::write_valid(catalog, &path, |folder| Ok(renamed(&moved(folder)?, &args.name)))?;
    recipe_file::put_schema(path.parent().unwrap_or(Path::new("")))?;
    let report = Report { recipe: &args.name, copy_of: &loaded.recipe.name, path: &path };
    context.show(&report, |out| Ok(writeln!(out, "{}", path.display())?))
}

/// The text of a recipe under another name, which it may have inherited before.
fn renamed(text: &str, name: &str) -> String {
    let named = format!("name: {name}\n");
    let line = |line: &str| if line.starts_with("name:") { named.clone() } else { format!("{line}\n") };
    let mut lines: Vec<String> = text.lines().map(line).collect();
    if !lines.contains(&named) {
        let head = lines.iter().take_while(|line| line.trim_end().is_empty() || line.starts_with('#')).count();
        lines.insert(head, named);
    }
    lines.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_of_the_recipe_changes() {
        let text = "# name: of a comment\nname: a\nmodel:\n  name: a\n";
        assert_eq!(renamed(text, "b"), "# name: of a comment\nname: b\nmodel:\n  name: a\n");
    }

    #[test]
    fn an_inherited_name_is_replaced() {
        assert_eq!(renamed("# head\n\nextends: a\n", "b"), "# head\n\nname: b\nextends: a\n");
    }
}
