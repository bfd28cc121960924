//! Folds an explicit pad into the following convolution.
//!
//! What: `PadD -> Conv2D` becomes one `Conv2D` with padding; in the backward pass `Conv2DBackpropFilter` reads the
//! unpadded input, and `Conv2DBackpropInput -> SliceD` becomes one `Conv2DBackpropInput`. Why: the loader of the
//! matrix unit can add zeros while it reads a map; the explicit pad copies the whole map, and later its gradient (the
//! Gaudi guide's "avoid tf.pad"). When not: other operators than one convolution and its gradients read the padded
//! map, channels are padded, or the convolution is called several times and it is not clear which gradient belongs to
//! which call.

use super::{Pass, Patch, patch::Draft, readers};
use crate::{
    error::GraphError,
    graph::{Graph, Node, NodeId, ValueId},
    ops::{Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput, Op, Pad},
};

/// See the module's documentation.
pub struct FoldPad;

impl Pass for FoldPad {
    fn name(&self) -> &'static str {
        "fold_pad"
    }

    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError> {
        let readers = readers(graph);
        let pads = graph.nodes.iter().enumerate().filter(|(_, n)| matches!(n.op, Op::Pad(_)));
        Ok(pads.filter_map(|(n, pad)| fold(graph, &readers, n, pad)).flatten().collect())
    }
}

/// The patch for the pad at index `n`.
fn fold(graph: &Graph, readers: &[Vec<usize>], n: usize, pad: &Node) -> Option<Vec<Patch>> {
    let Op::Pad(Pad { before, after }) = &pad.op else { return None };
    let ([0, 0, top, left], [0, 0, bottom, right]) = (&before[..], &after[..]) else { return None };
    let (x, padded) = (pad.inputs[0], pad.outputs[0]);
    let folded = |conv: &Conv2D| {
        let mut conv = conv.clone();
        for (total, more) in conv.window.pad.iter_mut().zip([top, bottom, left, right]) {
            *total += more;
        }
        conv
    };
    let mut draft = Draft::new(graph);
    draft.patch.remove.push(NodeId(n));
    let mut weight = None;
    for &reader in &readers[padded.0] {
        let node = graph.nodes.get(reader)?;
        if node.inputs[0] != padded {
            return None;
        }
        let op: Op = if let (Op::Conv2D(conv), None) = (&node.op, weight) {
            weight = Some((node.inputs[1], conv));
            folded(conv).into()
        } else if let Op::Conv2DBackpropFilter(op) = &node.op {
            Conv2DBackpropFilter { conv: folded(&op.conv), filter: op.filter.clone() }.into()
        } else {
            return None;
        };
        let inputs = node.inputs.iter().map(|v| if *v == padded { x } else { *v }).collect();
        draft.replace(reader, Node { op, inputs, ..node.clone() });
    }
    let (weight, conv) = weight?;
    let call = Call { graph, readers, padded, weight, conv };
    if let Some((place, gradient)) = call.input_gradient().ok()? {
        let [slice] = readers[gradient.outputs[0].0][..] else { return None };
        let cut = graph.nodes.get(slice)?;
        let shape = &graph.ty(x).shape;
        let Op::Slice(op) = &cut.op else { return None };
        if op.start != *before || op.size[..] != shape[..] {
            return None;
        }
        let op = Conv2DBackpropInput { conv: folded(conv), input: shape.clone() }.into();
        draft.replace(place, Node { op, outputs: cut.outputs.clone(), ..gradient.clone() });
        draft.patch.remove.push(NodeId(slice));
    }
    Some(draft.finish(pad.name.clone()))
}

/// A convolution of a padded map.
struct Call<'g> {
    graph: &'g Graph,
    readers: &'g [Vec<usize>],
    padded: ValueId,
    weight: ValueId,
    conv: &'g Conv2D,
}

/// It is not clear which of several gradients belongs to a call.
struct Ambiguous;

impl<'g> Call<'g> {
    /// The gradient of the padded map, if it is computed.
    fn input_gradient(&self) -> Result<Option<(usize, &'g Node)>, Ambiguous> {
        let is_conv = |op: &Op| matches!(op, Op::Conv2DBackpropInput(op) if op.conv == *self.conv);
        let of_conv = |node: &Node| node.inputs.get(1) == Some(&self.weight) && is_conv(&node.op);
        let maps = self.maps();
        // Calls of the same convolution are told apart by the gradients of their results.
        let own = self.result_gradients(self.padded).next();
        let alike = match own {
            Some(own) => maps.iter().filter(|map| self.result_gradients(**map).any(|other| other == own)).count(),
            None => maps.len(),
        };
        let mine = |node: &Node| maps.len() == 1 || own.is_none_or(|own| node.inputs[0] == own);
        let gradients = self.graph.nodes.iter().enumerate().filter(|(_, node)| of_conv(node) && mine(node));
        match gradients.collect::<Vec<_>>()[..] {
            [] => Ok(None),
            [one] if alike == 1 => Ok(Some(one)),
            _ => Err(Ambiguous),
        }
    }

    /// The maps that the convolution reads in its calls.
    fn maps(&self) -> Vec<ValueId> {
        let nodes = self.readers[self.weight.0].iter().filter_map(|n| self.graph.nodes.get(*n));
        let calls = nodes.filter(|node| matches!(&node.op, Op::Conv2D(conv) if conv == self.conv));
        calls.map(|node| node.inputs[0]).collect()
    }

    /// Gradients of results of such convolutions of a map, of which gradients of filters are computed.
    fn result_gradients(&self, map: ValueId) -> impl Iterator<Item = ValueId> {
        let nodes = self.readers[map.0].iter().filter_map(|n| self.graph.nodes.get(*n));
        let of_filters = nodes.filter(move |node| {
            matches!(&node.op, Op::Conv2DBackpropFilter(op) if node.inputs[0] == map && op.conv == *self.conv)
        });
        of_filters.map(|node| node.inputs[1])
    }
}
