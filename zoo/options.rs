//! Options that several commands have.

use crate::complete;
use crate::console::Color;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

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

/// Which CI system gets annotations next to lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Annotations {
    /// GitHub, if this is one of its workflows (GITHUB_ACTIONS is `true`).
    Auto,
    /// GitHub.
    Github,
    /// Nobody.
    None,
}

/// The option of verbs that judge.
#[derive(Clone, Debug, Default, Args)]
pub struct JunitArgs {
    /// Write the verdicts as JUnit XML to this file, for CI systems
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
}
