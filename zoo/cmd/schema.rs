//! `zoo schema`: JSON Schemas of the files that users write, and of events.

use crate::context::Context;
use crate::output;
use crate::{Exit, Failure};
use clap::ValueEnum;
use std::io::Write;
use std::path::PathBuf;

/// Print a JSON Schema: of recipes, block files, devices, hosts, studies or throughput files (for editors), or of the
/// events of a run (for scripts).
///
/// YAML language servers find the schema by the first line of a file: `# yaml-language-server:
/// $schema=schema/recipe.json`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo schema > recipes/schema/recipe.json
  zoo schema --markdown docs                Markdown pages: docs/recipe-reference*.md
  zoo schema blocks                         block files: recipes/blocks/*.yaml
  zoo schema device > recipes/schema/device.json
  zoo schema events                         lines of events.jsonl")]
pub struct Args {
    /// Which schema
    #[arg(value_enum, default_value_t = Kind::Recipe)]
    kind: Kind,
    /// Write Markdown pages with every option of a recipe to this folder instead
    #[arg(long, value_name = "DIR")]
    markdown: Option<PathBuf>,
}

/// Kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Recipes.
    Recipe,
    /// Blocks that several networks share.
    Blocks,
    /// Simulated devices.
    Device,
    /// Servers that feed devices.
    Host,
    /// Published series of measurements.
    Study,
    /// Published throughput.
    Throughput,
    /// A line of a run's events.jsonl, and of `zoo run --format json`.
    Events,
}

/// Prints the schema.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    if let Some(folder) = &args.markdown {
        if args.kind != Kind::Recipe {
            return Err(Failure::Usage("--markdown is only for recipes".to_owned()));
        }
        for page in zoo_recipe::reference() {
            let path = folder.join(page.file);
            output::write(&path, &page.text, context)?;
            writeln!(context.out, "{}", path.display())?;
        }
        return Ok(Exit::Pass);
    }
    let schema = match args.kind {
        Kind::Recipe => zoo_recipe::json_schema(),
        Kind::Blocks => zoo_recipe::block_file_schema(),
        Kind::Device => zoo_npu::device_schema(),
        Kind::Host => zoo_npu::host_schema(),
        Kind::Study => zoo_npu::study_schema(),
        Kind::Throughput => zoo_npu::throughput_schema(),
        Kind::Events => zoo_train::event::schema().into(),
    };
    let schema = serde_json::to_string_pretty(&schema).map_err(std::io::Error::from)?;
    writeln!(context.out, "{schema}")?;
    Ok(Exit::Pass)
}
