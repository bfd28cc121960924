//! The types in which operators compute on a device, the reasons, and the casts.

use crate::console::{Console, DIM, HEADING, paint};
use crate::context::Context;
use crate::simulated::Simulated;
use crate::table::{Cell, Table};
use crate::{Exit, Failure};
use serde::Serialize;
use std::io::Write;
use zoo_graph::{
    DType, GraphError, Op, Phase,
    passes::{Pipeline, PlaceCasts, Why},
};
use zoo_npu::Work;
use zoo_recipe::BuildOptions;
use zoo_recipe::{Recipe, schema::Precision};

/// A node of the step as the device runs it.
#[derive(Serialize)]
struct Row {
    node: String,
    op: &'static str,
    phase: Phase,
    /// The type in which it computes; for a cast the type of its result.
    dtype: DType,
    /// The reason; absent for a cast.
    why: Option<Why>,
    /// The source type of a cast; absent for other operators.
    from: Option<DType>,
    line: Option<String>,
}

#[derive(Serialize)]
struct Report<'a> {
    recipe: &'a str,
    device: &'a str,
    precision: Precision,
    nodes: Vec<Row>,
    casts: usize,
    /// Operators of forward, loss and backward that compute in half precision.
    reduced: usize,
    /// Those that compute in f32.
    kept: usize,
}

/// Prints the placement on a device.
pub(super) fn show(recipe: &Recipe, device: &str, batch: usize, context: &mut Context) -> Result<Exit, Failure> {
    let mut recipe = recipe.clone();
    let simulated = Simulated::find(Some(device), Work::Train, &mut recipe, context)?;
    let simulated = simulated
        .ok_or_else(|| Failure::Usage("this machine computes in fp32: choose a device with --device".to_owned()))?;
    let policy = &simulated.arithmetic.policy;
    let mut graph = zoo_recipe::build(&recipe, &recipe.resolve()?, &BuildOptions::train(batch))?;
    let mut choices = policy.choices(&graph)?.into_iter();
    Pipeline::of(vec![Box::new(PlaceCasts(policy.clone()))]).run(&mut graph, None)?;
    let mut nodes = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let line = node.origin.as_ref().map(|origin| origin.span.to_string());
        let (dtype, why, from) = match &node.op {
            Op::Cast(cast) => (cast.to, None, node.inputs.first().map(|v| graph.ty(*v).dtype)),
            _ => {
                let (dtype, why) = choices.next().ok_or_else(|| GraphError::Invariant {
                    after: Some("place_casts"),
                    message: format!("no decision about `{}`", node.name),
                })?;
                (dtype, Some(why), None)
            }
        };
        nodes.push(Row { node: node.name.clone(), op: node.op.name(), phase: node.phase, dtype, why, from, line });
    }
    let decided = |reduced: bool| {
        let in_half = |row: &&Row| matches!(row.dtype, DType::F16 | DType::Bf16) == reduced;
        nodes.iter().filter(|row| row.why.is_some() && row.phase != Phase::Update).filter(in_half).count()
    };
    let report = Report {
        recipe: &recipe.name,
        device: simulated.name(),
        precision: recipe.npu.precision,
        casts: nodes.iter().filter(|row| row.why.is_none()).count(),
        reduced: decided(true),
        kept: decided(false),
        nodes,
    };
    context.show(&report, |out| print(&report, out))
}

fn print(report: &Report<'_>, out: &mut Console) -> Result<(), Failure> {
    let mode = serde_json::to_value(report.precision).ok();
    let mode = mode.as_ref().and_then(|mode| mode.as_str()).unwrap_or_default();
    writeln!(out, "{}  on {}, {mode}\n", paint(HEADING, report.recipe), report.device)?;
    let columns = ["node", "operator", "computes in", "because"];
    let mut table = Table::new(columns);
    let mut phase = None;
    for row in &report.nodes {
        if phase.replace(row.phase) != Some(row.phase) {
            table.row([Cell::styled(format!("[{}]", row.phase), HEADING)]);
        }
        let name = format!("  {}", row.node);
        match (row.why, row.from) {
            (Some(why), _) => table.row([name.into(), row.op.into(), row.dtype.into(), why.into()]),
            (None, from) => {
                let from = from.map(|from| format!("from {from}")).unwrap_or_default();
                let dim = |text: String| Cell::styled(text, DIM);
                table.row([dim(name), dim(row.op.to_owned()), dim(row.dtype.to_string()), dim(from)]);
            }
        }
    }
    write!(out, "{table}")?;
    let Report { casts, reduced, kept, .. } = report;
    writeln!(
        out,
        "\n{reduced} operators of forward, loss and backward compute in half precision, {kept} in f32; {casts} casts"
    )?;
    Ok(())
}
