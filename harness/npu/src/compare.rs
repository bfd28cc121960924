//! Compares two steps operator by operator.

use crate::profile::Profile;
use indexmap::IndexMap;
use serde::Serialize;

/// An operator in two steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OpDifference {
    /// The device's name of the operator.
    pub op: String,
    /// Kernels in each step.
    pub kernels: [usize; 2],
    /// Milliseconds in each step.
    pub ms: [f64; 2],
}

impl OpDifference {
    /// Additional time in the second step.
    pub fn more(&self) -> f64 {
        self.ms[1] - self.ms[0]
    }
}

/// The operators of two steps, the largest difference first.
pub fn compare(first: &Profile, second: &Profile) -> Vec<OpDifference> {
    let mut found: IndexMap<String, OpDifference> = IndexMap::new();
    for (side, profile) in [first, second].into_iter().enumerate() {
        for cost in profile.by_operator() {
            let none = || OpDifference { op: cost.op.clone(), kernels: [0; 2], ms: [0.0; 2] };
            let entry = found.entry(cost.op.clone()).or_insert_with(none);
            (entry.kernels[side], entry.ms[side]) = (cost.count, cost.ms);
        }
    }
    let mut found: Vec<OpDifference> = found.into_values().collect();
    found.sort_by(|a, b| b.more().abs().total_cmp(&a.more().abs()).then(a.op.cmp(&b.op)));
    found
}
