//! What is known of a layer, whatever it does.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use crate::span::{ConfigPath, Span};
use crate::values::Expression;

/// A resolved layer without its kind.
#[derive(Clone, Copy)]
pub(crate) struct Site<'l> {
    /// Full name of the module; `None` for a plain function.
    pub(crate) name: Option<&'l str>,
    /// Whether its output is the output of the module `name`.
    pub(crate) is_module: bool,
    /// Its path in the recipe.
    pub(crate) path: &'l ConfigPath,
    /// Where that was written.
    pub(crate) span: &'l Span,
    /// Taps that it returns to its caller, by key.
    pub(crate) returns: &'l IndexMap<String, String>,
    /// The expressions of block arguments in it, by the keys that lead there.
    pub(crate) expressions: &'l BTreeMap<String, Expression>,
}
