//! The step as TensorFlow's `GraphDef`.

use zoo_graph::{Graph, Source, ValueId};

use super::message::{GraphDef, NodeDef};

/// The graph. Dots in names become slashes, which TensorBoard folds into boxes.
pub fn definition(graph: &Graph) -> GraphDef {
    let node = |name: &str, op: &str, input| NodeDef { name: path(name), op: op.to_owned(), input };
    let given = |of: &str, name: &str, op| node(&format!("{of}/{name}"), op, Vec::new());
    let inputs = graph.inputs.iter().map(|input| given("inputs", &input.name, "Placeholder"));
    let variables = graph.variables.iter().map(|variable| given("variables", &variable.name, "VariableV2"));
    let nodes = graph
        .nodes
        .iter()
        .map(|each| node(&each.name, each.op.name(), each.inputs.iter().map(|value| giver(graph, *value)).collect()));
    GraphDef { node: inputs.chain(variables).chain(nodes).collect() }
}

fn path(name: &str) -> String {
    name.replace('.', "/")
}

/// The source of a value, in the syntax of inputs.
fn giver(graph: &Graph, value: ValueId) -> String {
    match graph.value(value).source {
        Source::Input(input) => {
            graph.inputs.get(input).map_or_else(String::new, |it| path(&format!("inputs/{}", it.name)))
        }
        Source::Variable(id) => path(&format!("variables/{}", graph.variable(id).name)),
        Source::Node(node, 0) => path(&graph.node(node).name),
        Source::Node(node, result) => format!("{}:{result}", path(&graph.node(node).name)),
    }
}
