//! Dropout that is on in the port, although goldens are made without.

use super::{Explanation, Judged};
use crate::{
    GoldenError,
    bound::build_options,
    compare::Precision,
    foreign::{Entry, Quantity},
};
use zoo_graph::{Graph, Op, ValueId};

/// Largest relative distance of an element from its exact multiple: a few roundings of bf16.
const SAME: f64 = 0.02;

/// A dropout of the recipe.
struct Dropped {
    rate: f64,
    line: String,
    /// The value that it reads, in the graph without dropout.
    input: ValueId,
    /// Names of the nodes that read its result.
    readers: Vec<String>,
}

impl Judged<'_> {
    /// Whether a dropout explains that the output at a place differs.
    pub(super) fn explain_dropout(&self, place: usize) -> Result<Explanation, GoldenError> {
        let target = &self.targets.list[place];
        let node = self.graph.producer(target.value).map(|node| node.name.as_str());
        for dropped in self.dropouts()? {
            let reads = node.is_some_and(|node| dropped.readers.iter().any(|reader| reader == node));
            if !reads && dropped.input != target.value {
                continue;
            }
            let advice = "goldens are made without dropout: switch it off in the port for the recorded step (p = 0)";
            let hint = match self.dropped_output(&dropped)? {
                Some((name, Drop { zeros, scale })) => format!(
                    "dropout is on: `{name}` is its input with {:.0} % of the elements zero and the others times {scale:.3} \
                     (the recipe has a dropout of {} there, at {}); {advice}",
                    100.0 * zeros,
                    dropped.rate,
                    dropped.line
                ),
                None => format!(
                    "the recipe has a dropout of {} in front of it, at {}; {advice}",
                    dropped.rate, dropped.line
                ),
            };
            return Ok(Explanation { hints: vec![hint], line: None });
        }
        Ok(Explanation::default())
    }

    /// The dropouts of the recipe, which the judged step leaves out.
    fn dropouts(&self) -> Result<Vec<Dropped>, GoldenError> {
        let model = self.recipe.resolve().map_err(|d| GoldenError::Recipe(d.to_string()))?;
        let mut options = build_options(self.recipe, &model, self.golden, Precision::F64);
        if options.dropout {
            return Ok(Vec::new());
        }
        options.dropout = true;
        let graph = zoo_recipe::build(self.recipe, &model, &options)?;
        let each = |node: &zoo_graph::Node| {
            let Op::Dropout(op) = &node.op else { return None };
            let line = node.origin.as_ref()?.span.to_string();
            let readers = readers(&graph, *node.outputs.first()?);
            Some(Dropped { rate: op.rate, line, input: self.same_value(&graph, *node.inputs.first()?)?, readers })
        };
        Ok(graph.nodes.iter().filter_map(each).collect())
    }

    /// The value of the judged step that has the name of one in another graph.
    fn same_value(&self, graph: &Graph, value: ValueId) -> Option<ValueId> {
        let theirs = graph.producer(value)?;
        let ours = self.graph.nodes.iter().find(|node| node.name == theirs.name)?;
        let result = theirs.outputs.iter().position(|output| *output == value)?;
        ours.outputs.get(result).copied()
    }

    /// The value that has the elements of this one, before any view of it.
    fn elements_of(&self, value: ValueId) -> ValueId {
        let view = self.graph.producer(value).filter(|node| node.op.rules().is_view());
        view.map_or(value, |node| self.elements_of(node.inputs[0]))
    }

    /// The recorded output of a dropout, and what it did to its input.
    fn dropped_output(&self, dropped: &Dropped) -> Result<Option<(String, Drop)>, GoldenError> {
        let named = self.matched.entries.iter().map(|(place, entry)| (self.targets.list[*place].value, *entry));
        let recorded = named.chain(self.matched.nameless.iter().copied());
        let inputs = recorded.filter(|(value, _)| self.elements_of(*value) == self.elements_of(dropped.input));
        let at_input: Vec<&Entry> = inputs.map(|(_, entry)| entry).collect();
        let outputs = at_input.iter().copied().chain(self.matched.strangers.iter().copied());
        let outputs: Vec<&Entry> = outputs.filter(|entry| matches!(entry.quantity, Quantity::Output(_))).collect();
        for input in &at_input {
            let Some(before) = input.array()? else { continue };
            for output in &outputs {
                let Some(after) = output.array()? else { continue };
                if let Some(drop) = Drop::of(&before.values, &after.values) {
                    return Ok(Some((output.name.clone(), drop)));
                }
            }
        }
        Ok(None)
    }
}

/// Names of the nodes that read a value, through nodes that only move its elements.
fn readers(graph: &Graph, value: ValueId) -> Vec<String> {
    let reading = graph.nodes.iter().filter(|node| node.inputs.contains(&value));
    let names = reading.flat_map(|node| {
        let inner = if node.op.rules().is_view() { readers(graph, node.outputs[0]) } else { Vec::new() };
        inner.into_iter().chain([node.name.clone()])
    });
    names.collect()
}

/// What a dropout did to its input.
#[derive(Debug, PartialEq)]
struct Drop {
    /// The share of elements other than zero that it set to zero.
    zeros: f64,
    /// The factor on the others.
    scale: f64,
}

impl Drop {
    /// None if the second tensor is not the first with some elements set to zero and the others multiplied by one
    /// factor of at least 1.
    fn of(before: &[f64], after: &[f64]) -> Option<Self> {
        if before.len() != after.len() {
            return None;
        }
        let pairs = || before.iter().zip(after).filter(|(x, _)| **x != 0.0);
        let kept = pairs().filter(|(_, y)| **y != 0.0);
        let (x, y) = kept.clone().max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()))?;
        let scale = y / x;
        let follows = |(x, y): (&f64, &f64)| (y - scale * x).abs() <= SAME * (scale * x).abs();
        let (all, alive) = (pairs().count(), kept.clone().count());
        let is_one = alive < all && scale >= 1.0 - SAME && kept.clone().all(follows);
        is_one.then(|| Self { zeros: (all - alive) as f64 / all as f64, scale })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropout_is_known_by_its_zeros_and_its_factor() {
        let of = |after: &[f64]| Drop::of(&[1.0, -2.0, 0.0, 3.0, 4.0], after);
        assert_eq!(of(&[2.0, -4.0, 0.0, 0.0, 0.0]), Some(Drop { zeros: 0.5, scale: 2.0 }));
        assert_eq!(of(&[2.0, -2.0, 0.0, 0.0, 0.0]), None, "two factors");
        assert_eq!(of(&[2.0, -4.0, 0.0, 6.0, 8.0]), None, "nothing dropped");
        assert_eq!(of(&[0.0; 5]), None, "everything dropped");
        assert_eq!(of(&[0.5, -1.0, 0.0, 0.0, 0.0]), None, "a factor below 1");
        assert_eq!(of(&[2.0]), None);
    }
}
