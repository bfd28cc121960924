//! Errors of building a step graph from a recipe.

use crate::{ops::OpError, origin::Origin};
use thiserror::Error;

/// A recipe that makes no valid step graph, or a graph that breaks its own rules.
#[derive(Debug, Error)]
pub enum GraphError {
    /// An operator cannot be applied to the tensors it is given: the recipe is at fault.
    #[error("{}{name}: {source}", origin.as_ref().map(|o| format!("{}: ", o.span)).unwrap_or_default())]
    Shape {
        /// Node, by its dotted layer name.
        name: String,
        /// Entry of the recipe that made it.
        origin: Option<Origin>,
        /// The operator's own complaint.
        source: OpError,
    },
    /// The model uses something that the lowering does not support.
    #[error("{}{message}", origin.as_ref().map(|o| format!("{}: ", o.span)).unwrap_or_default())]
    Model {
        /// Entry of the recipe.
        origin: Option<Origin>,
        /// The problem and what to do about it.
        message: String,
    },
    /// The graph breaks an invariant: a defect of a pass or of an operator's gradient.
    #[error("graph invariant broken{}: {message}", after.map(|a| format!(" after pass `{a}`")).unwrap_or_default())]
    Invariant {
        /// The pass that was applied last.
        after: Option<&'static str>,
        /// The violated invariant.
        message: String,
    },
}
