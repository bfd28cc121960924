//! `zoo schema`: the JSON Schema of recipes.

use super::Context;
use crate::{Exit, Failure};
use std::io::Write;

/// Print the JSON Schema of recipes, for editors.
///
/// The first line of a recipe tells an editor's YAML support where it is:
/// `# yaml-language-server: $schema=schema/recipe.json`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo schema > recipes/schema/recipe.json")]
pub struct Args {}

/// Prints the schema.
pub(super) fn run(_: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let schema = serde_json::to_string_pretty(&zoo_recipe::json_schema()).map_err(std::io::Error::from)?;
    writeln!(context.out, "{schema}")?;
    Ok(Exit::Pass)
}
