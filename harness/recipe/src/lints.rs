//! What layers report unusual settings with.

use crate::diagnostic::Diagnostic;
use crate::span::{ConfigPath, SpanTable};
use crate::values::Part;

/// Where a layer reports unusual settings.
pub(crate) struct Lints<'a> {
    /// Samples per update.
    pub(crate) batch: usize,
    /// What is trained differently from the rest.
    pub(crate) parts: &'a [Part],
    pub(crate) spans: &'a SpanTable,
    /// Of the layer's keys.
    pub(crate) path: ConfigPath,
    pub(crate) found: &'a mut Vec<Diagnostic>,
}

impl Lints<'_> {
    /// Warns of the value of one of the layer's keys.
    pub(crate) fn warn(&mut self, key: &str, message: String, hint: &str) {
        self.push(self.path.key(key), message, hint);
    }

    /// Warns of another value of the recipe.
    pub(crate) fn warn_at(&mut self, path: &str, message: String, hint: &str) {
        self.push(ConfigPath::from(path), message, hint);
    }

    fn push(&mut self, path: ConfigPath, message: String, hint: &str) {
        self.found.push(Diagnostic::warning(self.spans.get(&path), path, message).with_hint(hint));
    }
}
