//! Draws the architecture: SVG, or DOT for Graphviz.

mod dot;
mod layout;
mod outline;
mod svg;

use crate::context::Context;
use crate::numbers::scaled;
use crate::output;
use crate::{Exit, Failure};
use outline::Outline;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use zoo_recipe::BuildOptions;
use zoo_recipe::Recipe;

/// Where pictures go.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Pictures {
    /// Draw the architecture as SVG to this file: modules as frames, branches side by side, shapes on the edges
    #[arg(long, value_name = "FILE", conflicts_with_all = ["graph", "schedule", "precision", "resolved"])]
    svg: Option<PathBuf>,
    /// Write the architecture as a Graphviz file (DOT)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["graph", "schedule", "precision", "resolved"])]
    dot: Option<PathBuf>,
}

impl Pictures {
    /// Whether any picture is requested.
    pub(super) fn wanted(&self) -> bool {
        self.svg.is_some() || self.dot.is_some()
    }
}

#[derive(Serialize)]
struct Report<'a> {
    recipe: &'a str,
    files: &'a [&'a Path],
}

/// Writes the pictures and prints the paths.
pub(super) fn draw(recipe: &Recipe, pictures: &Pictures, context: &mut Context) -> Result<Exit, Failure> {
    let model = recipe.resolve()?;
    let graph = zoo_recipe::build(recipe, &model, &BuildOptions::eval(1))?;
    let outline = Outline::new(&model, &graph);
    let description = recipe.description.as_deref().unwrap_or_default();
    let parameters = format!("{} parameters", scaled(outline.parameters, 2).trim_end());
    let mut files = Vec::new();
    if let Some(path) = &pictures.svg {
        let drawing = layout::lay_out(&outline);
        output::write(path, &svg::write(&drawing, &recipe.name, &format!("{description}. {parameters}.")), context)?;
        files.push(path.as_path());
    }
    if let Some(path) = &pictures.dot {
        output::write(path, &dot::write(&outline, &recipe.name), context)?;
        files.push(path.as_path());
    }
    if files.iter().any(|file| output::is_stdout(file)) {
        return Ok(Exit::Pass);
    }
    context.show(&Report { recipe: &recipe.name, files: &files }, |out| {
        Ok(files.iter().try_for_each(|file| writeln!(out, "{}", file.display()))?)
    })
}
