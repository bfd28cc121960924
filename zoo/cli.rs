//! The command line.

use crate::ci::Annotations;
use crate::cmd::Command;
use crate::complete;
use crate::console::Color;
use anstyle::{AnsiColor, Style};
use clap::builder::Styles;
use clap::{Args, Parser, ValueEnum};
use std::path::PathBuf;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default())
    .context(Style::new().dimmed());

/// Recipes that prove themselves.
///
/// One YAML file per network: zoo turns it into a training step, proves that step against golden tensors of a reference
/// framework, and trains it to its target accuracy.
#[derive(Debug, Parser)]
#[command(
    name = "zoo",
    version,
    styles = STYLES,
    max_term_width = 100,
    after_help = "\
Examples:
  zoo ls                          what there is
  zoo show resnet50               layers, shapes, parameters, MACs
  zoo check resnet50              prove one training step against PyTorch
  zoo run resnet50                train to the target, in minutes, on built-in data
  zoo validate my_recipe.yaml     all mistakes of a file, with line and column

Exit codes:
  0 pass; 1 golden or target missed; 2 usage or invalid recipe; 3 data or golden missing or unreadable;
  70 internal error; 74 the operating system refused; 130 interrupted"
)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Search this folder of recipes first (may be given several times); then ./recipes here and above, then built-in
    /// ones
    #[arg(long = "recipes", id = "recipe_folders", global = true, value_name = "DIR")]
    pub recipes: Vec<PathBuf>,
    /// Format of results: text (the default), or json with a schema_version
    #[arg(long, global = true, value_enum, default_value_t = Format::Text, hide_possible_values = true)]
    #[arg(hide_default_value = true, value_name = "text|json")]
    pub format: Format,
    /// When to use colour: auto does on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, hide_possible_values = true)]
    #[arg(hide_default_value = true, value_name = "auto|always|never")]
    pub color: Color,
    /// How to annotate faults for CI systems, on stderr: auto is github inside a GitHub workflow
    #[arg(long, global = true, value_enum, default_value_t = Annotations::Auto, hide_possible_values = true)]
    #[arg(hide_default_value = true, value_name = "auto|github|none")]
    pub annotations: Annotations,
    /// Print only results, warnings and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Print more: -v each action, -vv every detail
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub verbose: u8,
}

/// What results look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For scripts.
    Json,
}

/// Which recipe, and how it is changed.
#[derive(Clone, Debug, Args)]
pub struct RecipeArgs {
    /// Name of a recipe, or path of its file
    #[arg(value_name = "RECIPE", add = complete::recipes())]
    pub recipe: String,
    /// How it is changed.
    #[command(flatten)]
    pub change: Change,
}

/// How a recipe is changed before it is used.
#[derive(Clone, Debug, Default, Args)]
pub struct Change {
    /// Apply this profile of the recipe
    #[arg(long, value_name = "NAME", add = complete::profiles())]
    pub profile: Option<String>,
    /// Override a value, for example `--set optimizer.sgd.momentum=0.9` (may be given several times)
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
}
