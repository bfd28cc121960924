//! Recorded outputs of layers that have no name in the recipe: found by their values.

use super::found::{Given, distance, norm, statistics};
use zoo_graph::{Graph, Phase, ValueId};

/// Recorded outputs that may be those of layers without a name.
#[derive(Default)]
pub(super) struct Nameless<'a> {
    /// What is recorded, and the value of the step that it is, once that is found.
    pub outputs: Vec<(Given, Option<ValueId>)>,
    /// The largest error of the right one.
    limit: f64,
    graph: Option<&'a Graph>,
}

impl<'a> Nameless<'a> {
    /// For these outputs.
    pub fn new(outputs: Vec<Given>, limit: f64, graph: &'a Graph) -> Self {
        Self { outputs: outputs.into_iter().map(|given| (given, None)).collect(), limit, graph: Some(graph) }
    }

    /// Whether a value that has no name may be one of them: something that the forward pass computes.
    pub fn wants(&self, value: ValueId) -> bool {
        let Some(graph) = self.graph.filter(|_| !self.outputs.is_empty()) else { return false };
        let is_forward = graph.producer(value).is_some_and(|node| node.phase == Phase::Forward);
        let numel = graph.ty(value).shape.numel();
        is_forward && self.outputs.iter().any(|(given, at)| at.is_none() && given.numel() == numel)
    }

    /// Finds those that are this value.
    pub fn find(&mut self, value: ValueId, exact: &[f64]) {
        if !self.wants(value) {
            return;
        }
        let size = norm(&mut exact.iter().copied());
        for (given, at) in self.outputs.iter_mut().filter(|(given, at)| at.is_none() && given.numel() == exact.len()) {
            let error = match given {
                Given::Elements(array) => distance(&array.values, exact, size).error,
                Given::Statistics(found, _) => statistics(*found, exact).worst(true),
            };
            if error <= self.limit {
                *at = Some(value);
            }
        }
    }
}
