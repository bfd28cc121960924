//! Whether a network can be computed for any number of samples.

use super::Batch;
use super::node::not_of_inference;
use zoo_graph::ops::Reshape;
use zoo_graph::{Graph, Node, Op};

/// Whether a network can be computed for any batch size: only if no operator mixes the batch with another dimension
/// or depends on the index of a sample.
pub fn batch(graph: &Graph) -> Batch {
    let of_samples = of_samples(graph);
    let mut of_a_batch = graph.nodes.iter().filter(|node| node.outputs.iter().any(|value| of_samples[value.0]));
    if of_a_batch.any(|node| mixes_samples(graph, node)) { Batch::Fixed } else { Batch::Any }
}

/// Whether the first dimension of a result differs from the operand's, or is more than a batch dimension to the
/// operator.
fn mixes_samples(graph: &Graph, node: &Node) -> bool {
    let samples = || node.inputs.first().and_then(|input| graph.ty(*input).shape.first().copied());
    match &node.op {
        Op::DepthwiseCorrelation(_) | Op::ExtractPatches(_) => true,
        Op::Concat(concat) => concat.axis == 0,
        Op::Map(map) => map.formula.coordinates().any(|axis| axis == 0),
        Op::Reshape(Reshape { shape }) => shape.first().copied() != samples(),
        Op::Slice(slice) => slice.size.first().copied() != samples(),
        Op::Split(split) => split.axis == 0,
        Op::Transpose(transpose) => transpose.permutation.first() != Some(&0),
        Op::AdaptiveAvgPool(_)
        | Op::Add(_)
        | Op::AvgPool(_)
        | Op::BiasAdd(_)
        | Op::BnInfer(_)
        | Op::Conv2D(_)
        | Op::Conv2DBackpropInput(_)
        | Op::Fill(_)
        | Op::Gather(_)
        | Op::Lrn(_)
        | Op::MatMul(_)
        | Op::MaxPool(_)
        | Op::Pad(_)
        | Op::PairLogSoftmax(_)
        | Op::Relu(_)
        | Op::Resize(_)
        | Op::Scale(_)
        | Op::Sigmoid(_)
        | Op::WeightedSum(_) => false,
        // These are refused.
        not_of_inference!() => true,
    }
}

/// For each value, whether it has a row per sample: it is computed from an input, or expanded to the number of
/// samples.
pub(super) fn of_samples(graph: &Graph) -> Vec<bool> {
    let mut of_samples = vec![false; graph.values.len()];
    graph.inputs.iter().for_each(|input| of_samples[input.value.0] = true);
    let samples = graph.inputs.first().and_then(|input| graph.ty(input.value).shape.first());
    for node in &graph.nodes {
        // A formula over constants whose result has a row per sample is expanded to the actual number of samples.
        let expanded = matches!(&node.op, Op::Map(map) if samples.is_some() && map.space.first() == samples);
        let any = expanded || node.inputs.iter().any(|value| of_samples[value.0]);
        node.outputs.iter().for_each(|value| of_samples[value.0] = any);
    }
    of_samples
}
