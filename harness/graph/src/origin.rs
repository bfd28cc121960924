//! The origin of a node in the recipe.

use std::fmt;
use std::sync::Arc;

/// The recipe entry from which a node, variable or tap comes.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// Path of the recipe entry, e.g. `model.body[3]`.
    pub path: String,
    /// Position of the recipe entry.
    pub span: Span,
}

/// A position in a source: a recipe file, or the pseudo file `--set` for overrides on the command line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// File as named when it was loaded, or `--set`.
    pub file: Arc<str>,
    /// Line, from 1; 0 if the file has no lines because it could not be read.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl Span {
    /// The pseudo file of overrides on the command line. Its line `n` is the `n`-th override.
    pub const OVERRIDES: &'static str = "--set";

    /// Whether this was set on the command line.
    pub fn is_override(&self) -> bool {
        &*self.file == Self::OVERRIDES
    }
}

impl Default for Span {
    fn default() -> Self {
        Self { file: Arc::from("<built in code>"), line: 1, column: 1 }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}
