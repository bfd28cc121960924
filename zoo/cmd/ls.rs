//! `zoo ls`: list the recipes.

use crate::console::{BAD, DIM, WARN};
use crate::context::Context;
use crate::numbers::scaled;
use crate::options::Change;
use crate::table::{Cell, Table};
use crate::{Exit, Failure};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use zoo_recipe::BuildOptions;
use zoo_recipe::schema::Target;

/// List the recipes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo ls
  zoo ls resnet                     recipes with this word in their name or description
  zoo ls --golden no                recipes without a golden
  zoo ls --recipes ~/my-recipes
  zoo ls --format json | jq -r '.recipes[].name'")]
pub struct Args {
    /// Only recipes with these words in their name or description
    #[arg(value_name = "WORD")]
    words: Vec<String>,
    /// Only recipes with a golden of a reference framework (yes), with one that zoo recorded itself (baseline), or
    /// without one (no)
    #[arg(long, value_enum, value_name = "yes|baseline|no", hide_possible_values = true)]
    golden: Option<Golden>,
}

/// Who computed the golden of a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Golden {
    /// A reference framework.
    Yes,
    /// zoo itself.
    Baseline,
    /// There is none.
    No,
}

/// One recipe.
#[derive(Serialize)]
struct Row {
    name: String,
    path: PathBuf,
    description: Option<String>,
    parameters: Option<u64>,
    profiles: Vec<String>,
    golden: Option<PathBuf>,
    /// Whether zoo recorded the golden itself.
    baseline: bool,
    target: Option<Target>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Row {
    fn who_computed(&self) -> Golden {
        match (&self.golden, self.baseline) {
            (Some(_), true) => Golden::Baseline,
            (Some(_), false) => Golden::Yes,
            (None, _) => Golden::No,
        }
    }

    /// Whether the name or the description contains a word, ignoring case.
    fn has(&self, word: &str) -> bool {
        let texts = [Some(&self.name), self.description.as_ref()];
        texts.into_iter().flatten().any(|text| text.to_lowercase().contains(&word.to_lowercase()))
    }
}

#[derive(Serialize)]
struct List<'a> {
    recipes: &'a [Row],
}

/// Lists all recipes; recipes with mistakes are listed with their error.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let catalog = context.catalog()?;
    let rows: Vec<Row> = catalog
        .library()
        .list()
        .into_iter()
        .map(|(name, path)| {
            let mut row = Row {
                name: name.clone(),
                path,
                description: None,
                parameters: None,
                profiles: Vec::new(),
                golden: None,
                baseline: false,
                target: None,
                error: None,
            };
            if let Err(error) = fill(&mut row, catalog, &name) {
                let first = error.to_string();
                row.error = first.lines().next().map(str::to_owned);
            }
            row
        })
        .collect();
    let (there, mut rows) = (rows.len(), rows);
    rows.retain(|row| args.words.iter().all(|word| row.has(word)));
    rows.retain(|row| args.golden.is_none_or(|golden| golden == row.who_computed()));
    if rows.is_empty() {
        return Err(Failure::Usage(format!("no recipe matches; `zoo ls` lists all {there}")));
    }
    let mut table = Table::new(["recipe", ">parameters", ">target", "golden", "profiles", "description"]);
    for row in &rows {
        let target = row.target.as_ref().and_then(|target| target.goals().next()).map(|goal| goal.to_string());
        let description = match &row.error {
            Some(error) => Cell::styled(error, BAD),
            None => row.description.clone().unwrap_or_default().into(),
        };
        table.row([
            (&row.name).into(),
            row.parameters.map(|n| scaled(n, 2)).unwrap_or_default().into(),
            target.unwrap_or_default().into(),
            match row.who_computed() {
                Golden::Baseline => Cell::styled("baseline", WARN),
                Golden::Yes => "yes".into(),
                Golden::No => Cell::styled("no", DIM),
            },
            row.profiles.join(" ").into(),
            description,
        ]);
    }
    context.show(&List { recipes: &rows }, |out| Ok(write!(out, "{table}")?))
}

fn fill(row: &mut Row, catalog: &crate::catalog::Catalog, name: &str) -> Result<(), Failure> {
    let Change { profile, sets } = Change::default();
    let loaded = catalog.load(name, profile.as_deref(), &sets)?;
    let recipe = loaded.recipe;
    let model = recipe.resolve()?;
    let graph = zoo_recipe::build(&recipe, &model, &BuildOptions::eval(1))?;
    row.parameters = Some(graph.parameters().map(|(_, v)| graph.ty(v.value).shape.numel() as u64).sum());
    row.golden = catalog.golden(&recipe, &loaded.path).ok().flatten();
    row.baseline = row.golden.as_deref().and_then(zoo_golden::is_baseline).unwrap_or_default();
    (row.description, row.profiles, row.target) = (recipe.description, loaded.profiles, recipe.target);
    Ok(())
}
