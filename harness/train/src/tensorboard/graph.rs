//! The step as TensorFlow's `GraphDef` (`tensorflow/core/framework/graph.proto`, `node_def.proto`): `GraphDef {
//! repeated NodeDef node = 1; }`, `NodeDef { string name = 1; string op = 2; repeated string input = 3; }`.

use zoo_graph::{Graph, Source, ValueId};

use super::message::Message;

/// The encoded graph. Dots in names become slashes, which TensorBoard folds into boxes.
pub fn definition(graph: &Graph) -> Vec<u8> {
    let mut definition = Message::default();
    let mut add = |name: &str, op: &str, inputs: &[String]| {
        let mut node = Message::default();
        node.bytes(1, path(name).as_bytes());
        node.bytes(2, op.as_bytes());
        inputs.iter().for_each(|input| node.bytes(3, input.as_bytes()));
        definition.bytes(1, node.as_bytes());
    };
    graph.inputs.iter().for_each(|input| add(&format!("inputs/{}", input.name), "Placeholder", &[]));
    graph.variables.iter().for_each(|variable| add(&format!("variables/{}", variable.name), "VariableV2", &[]));
    for node in &graph.nodes {
        let inputs: Vec<String> = node.inputs.iter().map(|value| giver(graph, *value)).collect();
        add(&node.name, node.op.name(), &inputs);
    }
    definition.into_bytes()
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
