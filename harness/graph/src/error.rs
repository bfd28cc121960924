//! Errors of building a step graph from a recipe.

use crate::{ops::OpError, origin::Origin};
use thiserror::Error;

/// A recipe from which no valid step graph can be built, or a graph with a violated invariant.
#[derive(Debug, Error)]
pub enum GraphError {
    /// An operator cannot be applied to its operands: a mistake in the recipe.
    #[error("{}{name}: {source}", origin.as_ref().map(|o| format!("{}: ", o.span)).unwrap_or_default())]
    Shape {
        /// Node, by its dotted layer name.
        name: String,
        /// Entry of the recipe that it comes from.
        origin: Option<Origin>,
        /// The error of the operator.
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
    /// The graph violates an invariant: a defect of a pass or of an operator's gradient.
    #[error("graph invariant broken{}: {message}", after.map(|a| format!(" after pass `{a}`")).unwrap_or_default())]
    Invariant {
        /// The pass that was applied last.
        after: Option<&'static str>,
        /// The violated invariant.
        message: String,
    },
}
