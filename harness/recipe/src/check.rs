//! placeholder
use crate::diagnostic::Diagnostic;
use crate::schema::Recipe;
pub(crate) fn check(_: &Recipe) -> Vec<Diagnostic> {
    Vec::new()
}
