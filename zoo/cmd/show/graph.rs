//! The training step, node by node.

use crate::console::{Console, DIM, HEADING, paint};
use crate::context::Context;
use crate::table::{Cell, Table};
use crate::{Exit, Failure};
use serde::Serialize;
use std::io::Write;
use zoo_graph::passes::Pipeline;
use zoo_graph::{Bytes, Flop, Graph, Phase, Shape};
use zoo_recipe::BuildOptions;
use zoo_recipe::Recipe;

/// One node.
#[derive(Serialize)]
struct Row {
    name: String,
    op: &'static str,
    phase: Phase,
    /// Shapes of its results.
    outputs: Vec<Shape>,
    /// Element types and layouts of its results.
    #[serde(skip)]
    types: String,
    flop: u64,
    bytes: u64,
    /// `file:line:column` of the recipe.
    line: Option<String>,
}

#[derive(Serialize)]
struct Pass {
    name: &'static str,
    patches: Vec<String>,
}

#[derive(Serialize)]
struct Report<'a> {
    recipe: &'a str,
    batch: usize,
    nodes: Vec<Row>,
    passes: Vec<Pass>,
    flop: u64,
    bytes: u64,
}

/// Prints every node with shapes and cost, after the given number of passes.
pub(super) fn show(
    recipe: &Recipe,
    batch: usize,
    passes: Option<usize>,
    context: &mut Context,
) -> Result<Exit, Failure> {
    let mut graph = zoo_recipe::build(recipe, &recipe.resolve()?, &BuildOptions::train(batch))?;
    let applied = match passes {
        Some(until) => Pipeline::fast(recipe.engine.fusion).run(&mut graph, Some(until))?,
        None => Vec::new(),
    };
    let nodes = rows(&graph);
    let report = Report {
        recipe: &recipe.name,
        batch,
        flop: nodes.iter().map(|row| row.flop).sum(),
        bytes: nodes.iter().map(|row| row.bytes).sum(),
        nodes,
        passes: applied.into_iter().map(|a| Pass { name: a.pass, patches: a.patches }).collect(),
    };
    context.show(&report, |out| print(&report, out))
}

fn rows(graph: &Graph) -> Vec<Row> {
    let types = |ids: &[zoo_graph::ValueId]| ids.iter().map(|v| graph.ty(*v)).collect::<Vec<_>>();
    graph
        .nodes
        .iter()
        .map(|node| {
            let (inputs, outputs) = (types(&node.inputs), types(&node.outputs));
            let cost = node.op.cost(&inputs, &outputs);
            Row {
                name: node.name.clone(),
                op: node.op.name(),
                phase: node.phase,
                outputs: outputs.iter().map(|ty| ty.shape.clone()).collect(),
                types: outputs.iter().map(|ty| ty.to_string()).collect::<Vec<_>>().join(", "),
                flop: cost.flop.0,
                bytes: cost.bytes.0,
                line: node.origin.as_ref().map(|origin| origin.span.to_string()),
            }
        })
        .collect()
}

fn print(report: &Report<'_>, out: &mut Console) -> Result<(), Failure> {
    let mut phase = None;
    let columns = ["node", "operator", "results", ">work", ">moves"];
    let mut table = Table::new(columns);
    for row in &report.nodes {
        if phase.replace(row.phase) != Some(row.phase) {
            table.row([Cell::styled(format!("[{}]", row.phase), HEADING)]);
        }
        table.row([
            format!("  {}", row.name).into(),
            row.op.into(),
            (&row.types).into(),
            Flop(row.flop).into(),
            Bytes(row.bytes).into(),
        ]);
    }
    write!(out, "{table}")?;
    for pass in &report.passes {
        writeln!(out, "\n{} {}", paint(HEADING, format!("pass {}:", pass.name)), pass.patches.len())?;
        for label in &pass.patches {
            writeln!(out, "  {}", paint(DIM, label))?;
        }
    }
    let (nodes, flop, bytes) = (report.nodes.len(), Flop(report.flop), Bytes(report.bytes));
    writeln!(out, "\n{nodes} nodes, {flop} and {bytes} moved per step of {} images", report.batch)?;
    Ok(())
}
