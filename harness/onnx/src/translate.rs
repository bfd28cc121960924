//! Translates an evaluation graph to the nodes of a model.

mod formula;
mod node;
mod samples;
mod window;

pub use samples::{batch, distinct_batch};

use crate::message::{
    Attribute, Dimension, Element, Entry, Graph as GraphMessage, Model, Node as NodeMessage, OperatorSet, Shape,
    Tensor, TensorType, Type, ValueInfo,
};
use crate::{About, IR_VERSION, OPSET, constant};
use prost::Message;
use samples::of_samples;
use std::collections::HashSet;
use thiserror::Error;
use zoo_graph::{Graph, Node, Origin, Source, ValueId};

/// Why a network cannot be written as an ONNX model.
#[derive(Debug, Error)]
pub enum OnnxError {
    /// An operator that ONNX does not support in this form.
    #[error("`{node}` ({operator}) cannot be written as ONNX: {reason}")]
    Operator {
        /// The node.
        node: String,
        /// The name of its operator on the device.
        operator: &'static str,
        /// The reason.
        reason: String,
        /// The recipe entry from which the node was built.
        origin: Option<Origin>,
    },
    /// A variable without values.
    #[error("there are no weights for `{0}`")]
    Variable(String),
    /// The model exceeds the size limit of its file format.
    #[error("the model has {0} bytes, and a protobuf file cannot have more than 2 GiB")]
    TooLarge(usize),
}

/// Most bytes of a protobuf message (<https://protobuf.dev/programming-guides/proto-limits>).
const MOST_BYTES: usize = i32::MAX as usize;

/// The batch size of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// Any number; the dimension is called `batch`. The graph has to be built for a [`distinct_batch`].
    Any,
    /// The batch size that the graph was built for.
    Fixed,
}

/// A model in ONNX format.
#[derive(Clone, Debug)]
pub struct Exported {
    /// The content of its file.
    pub bytes: Vec<u8>,
    /// The names of its outputs, in the order of the graph. They are the graph's, unless an input has the same name.
    pub outputs: Vec<String>,
}

/// Writes the model. `values` returns the values of a variable by name, row-major.
///
/// # Errors
/// An operator that ONNX cannot express, a variable without values, or a model that exceeds the size limit.
pub fn export(
    graph: &Graph,
    batch: Batch,
    about: &About,
    values: impl Fn(&str) -> Option<Vec<f32>>,
) -> Result<Exported, OnnxError> {
    let mut translation = Translation {
        graph,
        batch,
        of_samples: of_samples(graph),
        names: vec![String::new(); graph.values.len()],
        taken: HashSet::new(),
        called: HashSet::new(),
        nodes: Vec::new(),
        initializers: Vec::new(),
    };
    translation.name_values();
    translation.weights(values)?;
    graph.nodes.iter().try_for_each(|node| translation.node(node))?;
    let graph = translation.finish(&about.name);
    let outputs = graph.output.iter().map(|output| output.name.clone()).collect();
    let metadata = about.metadata.iter().map(|(key, value)| Entry { key: key.clone(), value: value.clone() });
    let model = Model {
        ir_version: IR_VERSION,
        producer_name: "zoo".to_owned(),
        producer_version: about.version.clone(),
        doc_string: about.description.clone(),
        graph: Some(graph),
        opset_import: vec![OperatorSet { domain: String::new(), version: OPSET }],
        metadata_props: metadata.collect(),
    };
    let size = model.encoded_len();
    if size > MOST_BYTES {
        return Err(OnnxError::TooLarge(size));
    }
    Ok(Exported { bytes: model.encode_to_vec(), outputs })
}

struct Translation<'a> {
    graph: &'a Graph,
    batch: Batch,
    /// For each value, whether it is computed from the samples; all other values are the same for all samples.
    of_samples: Vec<bool>,
    /// Name of each value.
    names: Vec<String>,
    taken: HashSet<String>,
    /// Names of nodes.
    called: HashSet<String>,
    nodes: Vec<NodeMessage>,
    initializers: Vec<Tensor>,
}

impl Translation<'_> {
    /// Names all values. Inputs, variables and outputs have the names of the recipe, all others those of their nodes.
    fn name_values(&mut self) {
        let graph = self.graph;
        let given = graph.inputs.iter().map(|input| (&input.name, input.value));
        let kept = graph.variables.iter().map(|variable| (&variable.name, variable.value));
        for (name, value) in given.chain(kept) {
            self.names[value.0] = self.unique(name);
        }
        for (name, value) in &graph.outputs {
            if self.names[value.0].is_empty() {
                self.names[value.0] = self.output_name(name);
            }
        }
        for node in &graph.nodes {
            for value in &node.outputs {
                if self.names[value.0].is_empty() {
                    self.names[value.0] = self.unique(&node.name);
                }
            }
        }
    }

    /// This name, or the next free name derived from it; reserves it.
    fn unique(&mut self, name: &str) -> String {
        free(&mut self.taken, name)
    }

    /// The name of an output; it is renamed if an input has the same name.
    fn output_name(&mut self, name: &str) -> String {
        if self.taken.contains(name) { self.unique(&format!("{name}_out")) } else { self.unique(name) }
    }

    /// Adds an initializer for each variable that a node reads.
    fn weights(&mut self, values: impl Fn(&str) -> Option<Vec<f32>>) -> Result<(), OnnxError> {
        let graph = self.graph;
        let read: HashSet<ValueId> = graph.nodes.iter().flat_map(|node| node.inputs.iter().copied()).collect();
        for variable in graph.variables.iter().filter(|variable| read.contains(&variable.value)) {
            let shape = &graph.ty(variable.value).shape;
            let numbers = values(&variable.name).filter(|numbers| numbers.len() == shape.numel());
            let numbers = numbers.ok_or_else(|| OnnxError::Variable(variable.name.clone()))?;
            self.initializers.push(constant::floats(self.names[variable.value.0].clone(), shape, &numbers));
        }
        Ok(())
    }

    fn finish(mut self, name: &str) -> GraphMessage {
        let graph = self.graph;
        let input = graph.inputs.iter().map(|input| self.info(&self.names[input.value.0], input.value)).collect();
        let mut output = Vec::new();
        let mut given = HashSet::new();
        for (name, value) in &graph.outputs {
            let mut shown = self.names[value.0].clone();
            // An output that is an input or a weight, or the second output with the same value.
            if !matches!(graph.value(*value).source, Source::Node(..)) || !given.insert(*value) {
                let known = std::mem::replace(&mut shown, self.output_name(name));
                self.push("Identity", name, vec![known], shown.clone(), vec![]);
            }
            output.push(self.info(&shown, *value));
        }
        let Self { nodes, initializers, .. } = self;
        GraphMessage { node: nodes, name: name.to_owned(), initializer: initializers, input, output }
    }

    fn info(&self, name: &str, value: ValueId) -> ValueInfo {
        let shape = &self.graph.ty(value).shape;
        let dimension = |(axis, extent): (usize, &usize)| match (axis, self.batch) {
            (0, Batch::Any) if self.of_samples[value.0] => Dimension { value: None, param: Some("batch".to_owned()) },
            _ => Dimension { value: Some(*extent as i64), param: None },
        };
        let shape = Shape { dim: shape.iter().enumerate().map(dimension).collect() };
        let element = if self.graph.ty(value).dtype.is_float() { Element::F32 } else { Element::I64 };
        let tensor = TensorType { element: element as i32, shape: Some(shape) };
        ValueInfo { name: name.to_owned(), kind: Some(Type { tensor: Some(tensor) }) }
    }

    fn push(&mut self, op: &str, name: &str, input: Vec<String>, output: String, attribute: Vec<Attribute>) {
        // A module that is called several times produces several nodes.
        let (name, op_type) = (free(&mut self.called, name), op.to_owned());
        self.nodes.push(NodeMessage { input, output: vec![output], name, op_type, attribute });
    }

    /// Adds a single ONNX node with the operands of the graph node.
    fn plain(&mut self, node: &Node, op: &str, attributes: Vec<Attribute>) {
        let inputs = self.operands(node);
        self.push(op, &node.name, inputs, self.result(node), attributes);
    }

    fn operands(&self, node: &Node) -> Vec<String> {
        node.inputs.iter().map(|value| self.names[value.0].clone()).collect()
    }

    fn result(&self, node: &Node) -> String {
        node.outputs.first().map(|value| self.names[value.0].clone()).unwrap_or_default()
    }

    /// Adds one of several ONNX nodes for a graph node; returns the name of its result.
    fn part(&mut self, node: &Node, part: &str, op: &str, inputs: Vec<String>, attributes: Vec<Attribute>) -> String {
        let name = self.unique(&format!("{}/{part}", node.name));
        self.push(op, &name, inputs, name.clone(), attributes);
        name
    }

    /// Adds integers as an initializer of a node.
    fn integers(&mut self, node: &Node, what: &str, values: &[i64]) -> String {
        let name = self.unique(&format!("{}/{what}", node.name));
        self.initializers.push(constant::integers(name.clone(), values));
        name
    }

    /// Adds one integer, without an axis, as an initializer of a node.
    fn integer(&mut self, node: &Node, what: &str, value: usize) -> String {
        let name = self.unique(&format!("{}/{what}", node.name));
        self.initializers.push(constant::integer(name.clone(), value as i64));
        name
    }

    /// Adds real numbers as an initializer of a node.
    fn floats(&mut self, node: &Node, what: &str, shape: &[usize], values: &[f32]) -> String {
        let name = self.unique(&format!("{}/{what}", node.name));
        self.initializers.push(constant::floats(name.clone(), shape, values));
        name
    }

    /// A shape with a variable batch (0 in ONNX), if the model accepts any batch.
    fn shape(&self, node: &Node, shape: &[usize]) -> Vec<i64> {
        let extents = shape.iter().map(|extent| *extent as i64);
        match self.batch {
            Batch::Any if node.outputs.iter().any(|value| self.of_samples[value.0]) => {
                std::iter::once(0).chain(extents.skip(1)).collect()
            }
            // For parameters and constants, the first dimension is fixed.
            Batch::Any | Batch::Fixed => extents.collect(),
        }
    }
}

/// This name, or the next free name derived from it; adds it to `taken`.
fn free(taken: &mut HashSet<String>, name: &str) -> String {
    let mut candidate = name.to_owned();
    let mut number = 1;
    while !taken.insert(candidate.clone()) {
        number += 1;
        candidate = format!("{name}_{number}");
    }
    candidate
}

fn refuse(node: &Node, reason: &str) -> OnnxError {
    OnnxError::Operator {
        node: node.name.clone(),
        operator: node.op.name(),
        reason: reason.to_owned(),
        origin: node.origin.clone(),
    }
}

#[cfg(test)]
mod tests;
