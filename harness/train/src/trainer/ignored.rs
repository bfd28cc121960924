//! Batches whose labels are all ignored, so that the mean over the others has no value.

use zoo_graph::{Graph, ops::Op};
use zoo_tasks::{Batch, Numbers};

/// The input with the labels of a loss term, and the label that it ignores, if all of them in a batch are that label.
pub(super) fn all_labels(graph: &Graph, batch: &Batch) -> Option<(String, u32)> {
    graph.nodes.iter().find_map(|node| {
        let Op::SoftmaxCrossEntropy(op) = &node.op else { return None };
        let (ignored, labels) = (op.ignored?, node.inputs.get(1)?);
        let input = graph.inputs.iter().find(|input| input.value == *labels)?;
        let field = batch.fields.iter().find(|field| field.name == input.name)?;
        let Numbers::Index(labels) = &field.numbers else { return None };
        labels.iter().all(|label| *label == ignored).then(|| (input.name.clone(), ignored))
    })
}
