//! Whether a network can be computed for any number of samples.

use super::Batch;
use std::collections::HashSet;
use zoo_graph::{Graph, Op, ops::Map};

/// A batch size that no other dimension of the network has. `graph` is built for one sample. In the graph for this
/// batch, shapes tell whether the first dimension is the batch.
pub fn distinct_batch(graph: &Graph) -> usize {
    let shapes = graph.values.iter().map(|value| &value.ty.shape);
    let known: HashSet<usize> =
        shapes.chain(maps(graph).map(|map| &map.space)).flat_map(|shape| shape.iter().copied()).collect();
    let mut batch = 2;
    while known.contains(&batch) {
        batch += 1;
    }
    batch
}

/// Whether a network can be computed for any batch size: only if no operator mixes the batch with another dimension
/// or depends on the index of a sample. The graph has to be built for a [`distinct_batch`]; for another batch size that
/// is an extent of another dimension, the result is [`Batch::Fixed`].
pub fn batch(graph: &Graph) -> Batch {
    let of_samples = of_samples(graph);
    let mut of_a_batch = graph.nodes.iter().filter(|node| node.outputs.iter().any(|value| of_samples[value.0]));
    let mixes = of_a_batch.any(|node| node.op.rules().mixes_samples(&graph.types(&node.inputs)));
    if mixes || !is_distinct(graph, &of_samples) { Batch::Fixed } else { Batch::Any }
}

/// Whether only the first dimension of what is computed from samples has the size of the batch.
fn is_distinct(graph: &Graph, of_samples: &[bool]) -> bool {
    let Some(samples) = samples(graph) else { return true };
    let is_batch = |extent: &usize| *extent == samples;
    let values = graph.values.iter().zip(of_samples);
    let mut rest = values.map(|(value, of_samples)| value.ty.shape.iter().skip(usize::from(*of_samples)));
    let mut spaces = maps(graph).map(|map| map.space.iter().skip(1));
    !rest.any(|mut extents| extents.any(is_batch)) && !spaces.any(|mut extents| extents.any(is_batch))
}

/// The batch size that a graph was built for.
fn samples(graph: &Graph) -> Option<usize> {
    graph.inputs.first().and_then(|input| graph.ty(input.value).shape.first().copied())
}

/// The formulas of a graph.
fn maps(graph: &Graph) -> impl Iterator<Item = &Map> {
    graph.nodes.iter().filter_map(|node| if let Op::Map(map) = &node.op { Some(map) } else { None })
}

/// For each value, whether it has a row per sample: it is computed from an input, or expanded to the number of
/// samples.
pub(super) fn of_samples(graph: &Graph) -> Vec<bool> {
    let mut of_samples = vec![false; graph.values.len()];
    graph.inputs.iter().for_each(|input| of_samples[input.value.0] = true);
    let samples = samples(graph);
    for node in &graph.nodes {
        // A formula over constants whose result has a row per sample is expanded to the actual number of samples.
        let expanded = matches!(&node.op, Op::Map(map) if samples.is_some() && map.space.first().copied() == samples);
        let any = expanded || node.inputs.iter().any(|value| of_samples[value.0]);
        node.outputs.iter().for_each(|value| of_samples[value.0] = any);
    }
    of_samples
}
