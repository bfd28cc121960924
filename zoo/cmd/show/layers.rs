//! The layers of a network: shapes, parameters, multiply-accumulates.

use crate::console::{Console, HEADING, paint};
use crate::context::Context;
use crate::numbers::{grouped, scaled};
use crate::table::Table;
use crate::{Exit, Failure};
use serde::Serialize;
use std::collections::HashSet;
use std::io::Write;
use zoo_graph::{Graph, Node, Op, Shape, ValueId};
use zoo_recipe::BuildOptions;
use zoo_recipe::layers::Description;
use zoo_recipe::{Recipe, ResolvedLayer, ResolvedModel};

/// One layer.
#[derive(Debug, Serialize)]
struct Row {
    /// Module name; absent for a plain function.
    name: Option<String>,
    /// A description in terms of the recipe.
    layer: String,
    /// Shape of its output, batch included.
    output: Shape,
    /// Number of trained parameters.
    parameters: u64,
    /// Multiply-accumulates of the forward pass.
    macs: u64,
}

#[derive(Serialize)]
struct Report<'a> {
    recipe: &'a str,
    description: &'a Option<String>,
    batch: usize,
    inputs: Vec<(&'a str, &'a Shape)>,
    layers: &'a [Row],
    parameters: u64,
    macs: u64,
}

/// Prints the layers in order of execution, and their totals.
pub(super) fn show(recipe: &Recipe, batch: usize, context: &mut Context) -> Result<Exit, Failure> {
    let model = recipe.resolve()?;
    let graph = zoo_recipe::build(recipe, &model, &BuildOptions::eval(batch))?;
    let rows = rows(&model, &graph);
    let parameters = rows.iter().map(|row| row.parameters).sum();
    let macs = rows.iter().map(|row| row.macs).sum();
    let inputs = graph.inputs.iter().map(|input| (input.name.as_str(), &graph.ty(input.value).shape)).collect();
    let report = Report {
        recipe: &recipe.name,
        description: &recipe.description,
        batch,
        inputs,
        layers: &rows,
        parameters,
        macs,
    };
    context.show(&report, |out| print(&report, out))
}

fn print(report: &Report<'_>, out: &mut Console) -> Result<(), Failure> {
    let description = report.description.as_deref().unwrap_or_default();
    writeln!(out, "{}  {description}", paint(HEADING, report.recipe))?;
    for (name, shape) in &report.inputs {
        writeln!(out, "input {name} {shape}")?;
    }
    let mut table = Table::new(["name", "layer", "output", ">parameters", ">MAC"]);
    let positive = |n: u64, text: String| if n == 0 { String::new() } else { text };
    for row in report.layers {
        table.row([
            row.name.as_deref().unwrap_or_default().into(),
            (&row.layer).into(),
            (&row.output).into(),
            positive(row.parameters, grouped(row.parameters)).into(),
            positive(row.macs, scaled(row.macs, 2)).into(),
        ]);
    }
    writeln!(out, "\n{table}")?;
    let (parameters, macs) = (scaled(report.parameters, 3), scaled(report.macs, 2));
    writeln!(out, "{parameters} parameters, {macs}MAC at batch {}", report.batch)?;
    Ok(())
}

/// One row per layer that computes.
fn rows(model: &ResolvedModel, graph: &Graph) -> Vec<Row> {
    let row = |(layer, own): (&ResolvedLayer, Vec<&Node>)| {
        Some(Row {
            name: layer.name.clone(),
            layer: text(layer)?,
            output: own.last()?.outputs.first().map_or(Shape::scalar(), |v| graph.ty(*v).shape.clone()),
            parameters: own.iter().map(|node| parameters(graph, node)).sum(),
            macs: own.iter().map(|node| macs(graph, node)).sum(),
        })
    };
    computed(model, graph).into_iter().filter_map(row).collect()
}

/// All layers except containers, in order of execution, each with its nodes, which are contiguous in the graph.
/// Operations of a container before and after its layers belong to none of them.
pub(super) fn computed<'a>(model: &'a ResolvedModel, graph: &'a Graph) -> Vec<(&'a ResolvedLayer, Vec<&'a Node>)> {
    let mut layers = Vec::new();
    leaves(&model.body, &mut layers);
    let site_of = |layer: &ResolvedLayer| layer.name.clone().unwrap_or_else(|| layer.path.to_string());
    let sites: HashSet<String> = layers.iter().copied().map(site_of).collect();
    let site = |node: &'a Node| node.name.split(['/', '#']).next().unwrap_or_default();
    let mut nodes = graph.nodes.iter().filter(|node| sites.contains(site(node))).peekable();
    let with_nodes = |layer: &'a ResolvedLayer| {
        let of_layer = site_of(layer);
        let mut own = Vec::new();
        while let Some(node) = nodes.next_if(|node| site(node) == of_layer) {
            own.push(node);
        }
        (layer, own)
    };
    layers.into_iter().map(with_nodes).collect()
}

/// Layers that compute, in order of execution.
fn leaves<'a>(layers: &'a [ResolvedLayer], out: &mut Vec<&'a ResolvedLayer>) {
    for layer in layers {
        match layer.kind.describe() {
            Description::Row(body) | Description::Again(body) => leaves(body, out),
            Description::Branches { lanes, .. } => {
                lanes.into_iter().for_each(|lane| leaves(lane, out));
                out.push(layer);
            }
            Description::Step(_) | Description::Unused(_) | Description::Tap(_) | Description::From(_) => {
                out.push(layer);
            }
        }
    }
}

/// A layer in the recipe's terms; `None` if it computes nothing itself.
fn text(layer: &ResolvedLayer) -> Option<String> {
    match layer.kind.describe() {
        Description::Step(step) => {
            Some([step.text.as_str()].into_iter().chain(step.reads).collect::<Vec<_>>().join(" "))
        }
        Description::Branches { text, .. } => Some(text.to_owned()),
        Description::Row(_)
        | Description::Again(_)
        | Description::Unused(_)
        | Description::Tap(_)
        | Description::From(_) => None,
    }
}

pub(super) fn parameters(graph: &Graph, node: &Node) -> u64 {
    // A shared parameter is counted for the first layer that uses it.
    let first = |value: &ValueId| graph.nodes.iter().find(|node| node.inputs.contains(value));
    let operands = graph
        .parameters()
        .filter(|(_, variable)| first(&variable.value).is_some_and(|first| first.outputs == node.outputs));
    operands.map(|(_, variable)| graph.ty(variable.value).shape.numel() as u64).sum()
}

/// Multiply-accumulates of the matrix units; by convention, the work of vector units is not counted.
fn macs(graph: &Graph, node: &Node) -> u64 {
    let inputs: Vec<_> = node.inputs.iter().map(|v| graph.ty(*v)).collect();
    match (&node.op, node.outputs.first().map(|v| &graph.ty(*v).shape)) {
        // Every output element is a dot product over input channels of its group and the window.
        (Op::Conv2D(_), Some(output)) => {
            output.numel() as u64 * inputs[1].shape.iter().skip(1).product::<usize>() as u64
        }
        // The same number as for the convolution of which it is the gradient.
        (Op::Conv2DBackpropInput(_), Some(_)) => {
            inputs[0].shape.numel() as u64 * inputs[1].shape.iter().skip(1).product::<usize>() as u64
        }
        (Op::MatMul(_), Some(output)) => {
            output.numel() as u64 * inputs[0].shape.last().copied().unwrap_or_default() as u64
        }
        _ => 0,
    }
}
