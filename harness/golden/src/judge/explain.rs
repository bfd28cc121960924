//! What the port computes instead, if the recorded numbers show it.
//!
//! An explanation is a step with another rule, computed from the recorded operands. It is given only if it gives the
//! recorded result within the limits of the judgement, where the recipe's rule does not.

mod cases;
mod dropout;
mod gradient;
mod loss;
mod rules;
mod update;

use super::judged::Judged;
use crate::{GoldenError, report::Stage};
use zoo_graph::Graph;

/// Texts and, if it is another one than that of the quantity, the line of the recipe.
#[derive(Debug, Default)]
pub(super) struct Explanation {
    pub hints: Vec<String>,
    pub line: Option<String>,
}

impl Judged<'_> {
    /// What explains the difference of the quantity at a place.
    ///
    /// # Errors
    /// A tensor of the recording that cannot be read.
    pub(super) fn explain(&self, place: usize) -> Result<Explanation, GoldenError> {
        match self.targets.list[place].stage {
            Stage::Forward => self.explain_dropout(place),
            Stage::Loss => self.explain_loss(place),
            Stage::Backward => Ok(self.explain_gradients()),
            Stage::Update => self.explain_update(),
            Stage::Conditions
            | Stage::Preprocess
            | Stage::Schedule
            | Stage::Init
            | Stage::Kernels
            | Stage::Trajectory
            | Stage::Lifted
            | Stage::Variants => Ok(Explanation::default()),
        }
    }
}

/// `as if A`, or `as if A, or as if B: this step does not tell them apart`.
fn as_if(alternatives: &[String]) -> Option<String> {
    match alternatives {
        [] => None,
        [one] => Some(format!("as if {one}: that gives the recorded values")),
        several => Some(format!(
            "as if {}: each gives the recorded values, and this step does not tell them apart",
            several.join(", or ")
        )),
    }
}

/// Several names, of which the first few are listed.
fn listed(names: &[String]) -> String {
    const LISTED: usize = 4;
    let more = names.len().saturating_sub(LISTED);
    let first = names.iter().take(LISTED).cloned().collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{first} and {more} more") } else { first }
}

/// The line of the recipe that a node comes from.
fn line_of(graph: &Graph, node: &str) -> Option<String> {
    let node = graph.nodes.iter().find(|other| other.name == node)?;
    node.origin.as_ref().map(|origin| origin.span.to_string())
}
