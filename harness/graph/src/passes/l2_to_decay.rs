//! Replaces an L2 term of the forward loss by decay of the gradient.
//!
//! What: the `L2Loss` of parameters, their weighted sum in the total loss, and the resulting gradients (`w * p` added
//! to the parameter's gradient) become `weight_decay` of the parameter's update operator. The value of the update
//! stays the same; the reported loss no longer contains the term. Why: the forward term reads every parameter to
//! compute a value that training does not need (the Gaudi guide's "avoid calculating L2 loss in forward path"). When
//! not: the factor of the term is unknown when the graph is built, the term is the whole loss, or the optimizer does
//! not add its decay to the gradient.

use super::{Pass, Patch, patch::Draft, readers};
use crate::{
    error::GraphError,
    graph::{Graph, Node, NodeId, Source, ValueId},
    ops::{Add, DecayTerm, Op, Update, WeightedSum},
};

/// See the module's documentation. Runs before casts and loss scaling, whose nodes would hide the pattern.
pub struct L2ToDecay;

impl Pass for L2ToDecay {
    fn name(&self) -> &'static str {
        "l2_to_decay"
    }

    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError> {
        Ok(rewrite(graph).unwrap_or_default())
    }
}

fn rewrite(graph: &Graph) -> Option<Vec<Patch>> {
    let readers = readers(graph);
    let is_l2 = |v: &ValueId| graph.producer(*v).is_some_and(|node| matches!(node.op, Op::L2Loss(_)));
    let (sum_place, sum) = graph.nodes.iter().enumerate().find(|(_, node)| {
        matches!(node.op, Op::WeightedSum(_)) && !node.inputs.is_empty() && node.inputs.iter().all(is_l2)
    })?;
    let term = sum.outputs[0];
    let (total_place, total) = graph.nodes.iter().enumerate().find(|(_, node)| {
        matches!(node.op, Op::WeightedSum(_)) && node.inputs.len() > 1 && node.inputs.contains(&term)
    })?;
    let Op::WeightedSum(WeightedSum { weights }) = &total.op else { return None };
    let mut draft = Draft::new(graph);
    draft.patch.remove.push(NodeId(sum_place));
    draft.patch.drop_losses.push(term);
    let mut gone = Vec::new();
    for square in &sum.inputs {
        let Source::Node(place, _) = graph.value(*square).source else { return None };
        let parameter = graph.node(place).inputs[0];
        draft.patch.remove.push(place);
        let update = graph.nodes.iter().position(|node| {
            matches!(node.op.update(), Some(Update::Optimizer { decay: DecayTerm::InGradient, .. }))
                && node.inputs[0] == parameter
        })?;
        let gradient = *graph.nodes[update].inputs.last()?;
        let Source::Node(added, _) = graph.value(gradient).source else { return None };
        let parts = &graph.nodes[added.0];
        let Op::Add(_) = parts.op else { return None };
        let (own, scale, factor) = parts.inputs.iter().find_map(|v| scaled(graph, *v, parameter))?;
        draft.patch.remove.push(scale);
        gone.push(graph.node(scale).inputs[1]);
        let rest: Vec<ValueId> = parts.inputs.iter().copied().filter(|v| *v != own).collect();
        let left = match rest[..] {
            [one] => {
                draft.patch.remove.push(added);
                draft.patch.redirect.push((gradient, one));
                one
            }
            _ => {
                draft.replace(added.0, Node { op: Add.into(), inputs: rest, ..parts.clone() });
                gradient
            }
        };
        let node = &graph.nodes[update];
        let mut inputs = node.inputs.clone();
        *inputs.last_mut()? = left;
        let mut op = node.op.clone();
        op.group()?.weight_decay += factor;
        draft.replace(update, Node { op, inputs, ..node.clone() });
    }
    // Scalars that nothing reads after the terms are removed.
    for v in gone {
        if let Source::Node(place, _) = graph.value(v).source
            && !draft.patch.remove.contains(&place)
            && matches!(graph.node(place).op, Op::Scale(_))
            && readers[v.0].iter().all(|reader| draft.patch.remove.contains(&NodeId(*reader)))
        {
            draft.patch.remove.push(place);
        }
    }
    let kept = total.inputs.iter().zip(weights).filter(|(v, _)| **v != term);
    let (inputs, weights): (Vec<ValueId>, Vec<f64>) = kept.map(|(v, w)| (*v, *w)).unzip();
    match (&inputs[..], &weights[..]) {
        ([only], [1.0]) if draft.patch.redirect.iter().all(|(from, _)| *from != total.outputs[0]) => {
            draft.patch.remove.push(NodeId(total_place));
            draft.patch.redirect.push((total.outputs[0], *only));
        }
        _ => draft.replace(total_place, Node { op: WeightedSum { weights }.into(), inputs, ..total.clone() }),
    }
    Some(draft.finish(format!("{} parameters", sum.inputs.len())))
}

/// If a value is the gradient `factor * parameter`: the value, the node that computes it, and the factor.
fn scaled(graph: &Graph, v: ValueId, parameter: ValueId) -> Option<(ValueId, NodeId, f64)> {
    let Source::Node(place, _) = graph.value(v).source else { return None };
    let node = graph.node(place);
    let [x, factor] = node.inputs[..] else { return None };
    let is_own = matches!(node.op, Op::ScaleBy(_)) && x == parameter;
    is_own.then(|| Some((v, place, constant(graph, factor)?)))?
}

/// The value of a scalar that is a product of constants.
fn constant(graph: &Graph, v: ValueId) -> Option<f64> {
    let node = graph.producer(v)?;
    if let Op::Fill(fill) = &node.op {
        return Some(fill.value);
    }
    let Op::Scale(scale) = &node.op else { return None };
    Some(scale.factor * constant(graph, node.inputs[0])?)
}
