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
/// A recipe is a YAML file that describes a network and its training. zoo turns it into a training step, proves the
/// step against golden tensors of a reference framework, and trains the network to its target accuracy.
#[derive(Debug, Parser)]
#[command(
    name = "zoo",
    version,
    styles = STYLES,
    max_term_width = 100,
    after_help = "\
Examples:
  zoo ls                          list the recipes
  zoo show resnet50               show layers, shapes, parameters, MACs
  zoo check resnet50              prove one training step against PyTorch
  zoo run resnet50                train to the target on generated data, in minutes
  zoo validate my_recipe.yaml     list all mistakes in a file, with line and column

Exit codes:
  0 pass; 1 golden or target missed; 2 usage, invalid recipe or output path; 3 data or golden
  missing or unreadable; 70 internal error; 74 the operating system refused an operation;
  130 interrupted"
)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Search this folder for recipes first (can be repeated); then `recipes` in this folder and its parents, then the
    /// built-in recipes
    #[arg(long = "recipes", id = "recipe_folders", global = true, value_name = "DIR")]
    pub recipes: Vec<PathBuf>,
    /// Output format: text (the default) or json
    #[arg(long, global = true, value_enum, default_value_t = Format::Text, hide_possible_values = true)]
    #[arg(hide_default_value = true, value_name = "text|json")]
    pub format: Format,
    /// When to use colour: auto (the default) uses it on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, hide_possible_values = true)]
    #[arg(hide_default_value = true, value_name = "auto|always|never")]
    pub color: Color,
    /// How to annotate faults for CI systems, on stderr: auto (the default) uses GitHub annotations in a GitHub
    /// workflow
    #[arg(long, global = true, value_enum, default_value_t = Annotations::Auto, hide_possible_values = true)]
    #[arg(hide_default_value = true, value_name = "auto|github|none")]
    pub annotations: Annotations,
    /// Print only results, warnings and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Print more: -v actions, -vv details
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub verbose: u8,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For scripts.
    Json,
}

/// A recipe, and changes to it.
#[derive(Clone, Debug, Args)]
pub struct RecipeArgs {
    /// Name of a recipe, or path of its file
    #[arg(value_name = "RECIPE", add = complete::recipes())]
    pub recipe: String,
    /// Changes to it.
    #[command(flatten)]
    pub change: Change,
}

/// Changes to a recipe before it is used.
#[derive(Clone, Debug, Default, Args)]
pub struct Change {
    /// Apply this profile of the recipe
    #[arg(long, value_name = "NAME", add = complete::profiles())]
    pub profile: Option<String>,
    /// Override a value, for example `--set optimizer.sgd.momentum=0.9` (can be repeated)
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
}
