//! The command line.

use crate::cmd::Command;
use crate::options::Global;
use anstyle::{AnsiColor, Style};
use clap::Parser;
use clap::builder::Styles;

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
    long_version = crate::version::long(),
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
