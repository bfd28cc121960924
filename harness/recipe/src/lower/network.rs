//! The network: its inputs, its layers, its outputs.

use crate::ResolvedModel;
use crate::builder::{BuildOptions, LOGITS, Network, ROOT, Routing};
use crate::schema::InputShape;
use crate::values::Part;
use zoo_graph::{DType, Graph, GraphError, Shape, TensorType};

/// What is known of a network beside its graph.
pub(super) struct Lowered {
    /// Shapes of the input and the output of each layer, in the order of their calls, those of containers before those
    /// of what is inside.
    pub shapes: Vec<[Shape; 2]>,
    /// The routing of each mixture of experts.
    pub routings: Vec<Routing>,
}

/// Adds inputs and network, and names its outputs.
pub(super) fn lower(
    graph: &mut Graph,
    model: &ResolvedModel,
    parts: &[Part],
    options: &BuildOptions,
) -> Result<Lowered, GraphError> {
    let mut network = Network::new(graph, parts, options);
    let mut first = None;
    for (name, input) in &model.inputs {
        let shape: Vec<usize> =
            std::iter::once(options.batch).chain(input.extents().iter().map(|extent| extent.0)).collect();
        let dtype = match input {
            InputShape::Image(_) | InputShape::Numbers(_) => options.dtype,
            InputShape::Indices(_) => DType::U32,
        };
        let value = network.graph.add_input(name, TensorType::plain(shape, dtype));
        network.taps.insert(name.clone(), value);
        first.get_or_insert(value);
    }
    let Some(input) = first else {
        return Err(GraphError::Model { origin: None, message: "the model has no input".into() });
    };
    let last = model.body.iter().try_fold(input, |x, layer| layer.lower(&mut network.builder(), x))?;
    if model.outputs.is_empty() {
        network.tap(ROOT, last, None);
        network.graph.outputs.push((LOGITS.into(), last));
        return Ok(Lowered { shapes: network.shapes, routings: network.routings });
    }
    for (name, tap) in &model.outputs {
        let Some(value) = network.taps.get(tap).copied() else {
            return Err(GraphError::Model { origin: None, message: format!("no tap `{tap}` for the output `{name}`") });
        };
        network.graph.outputs.push((name.clone(), value));
    }
    Ok(Lowered { shapes: network.shapes, routings: network.routings })
}
