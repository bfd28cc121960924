//! Formulas that read the index of an element, for ranks that have a part of an axis.

use crate::{
    error::GraphError,
    formula::Formula,
    graph::{Graph, Node, NodeId, Scope, Source},
    ops::{Fill, Map, Op},
    tensor::TensorType,
};

/// The graph with indices of elements as operands of its formulas. Such an operand is divided like any other.
///
/// # Errors
/// A formula that does not fit its operands: a defect of the graph.
pub fn with_positions(graph: &Graph) -> Result<Graph, GraphError> {
    let mut changed = Graph { nodes: Vec::new(), ..graph.clone() };
    for node in &graph.nodes {
        let mut node = node.clone();
        if let Op::Map(map) = &node.op
            && let (formula, axes) = map.formula.with_positions()
            && !axes.is_empty()
        {
            let (map, dtype) = (map.clone(), graph.ty(node.outputs[0]).dtype);
            for axis in axes {
                let mut shape = vec![1; map.space.len()];
                shape[axis] = map.space[axis];
                let scope = Scope { phase: node.phase, origin: node.origin.clone() };
                let fill = Fill { value: 0.0, ty: TensorType::plain(shape, dtype) };
                let zeros = changed.add(&scope, format!("{}/zeros{axis}", node.name), fill, &[])?;
                let index = Formula::define(0, |[x]| [x.coordinate(axis)]);
                let index = Map::over(index, &changed.types(&[zeros])).map_err(|source| GraphError::Shape {
                    name: node.name.clone(),
                    origin: node.origin.clone(),
                    source,
                })?;
                node.inputs.push(changed.add(&scope, format!("{}/positions{axis}", node.name), index, &[zeros])?);
            }
            node.op = map.with_formula(formula).into();
        }
        place(&mut changed, node);
    }
    Ok(changed)
}

/// Appends a node whose values exist.
fn place(graph: &mut Graph, node: Node) {
    let id = NodeId(graph.nodes.len());
    for (n, value) in node.outputs.iter().enumerate() {
        graph.values[value.0].source = Source::Node(id, n);
    }
    graph.nodes.push(node);
}
