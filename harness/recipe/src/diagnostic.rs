//! Diagnostics: mistakes in a recipe, their positions, and suggestions.

use std::fmt;
use std::sync::Arc;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::names::meant;
use crate::span::{ConfigPath, Sources, Span, skipped};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The recipe cannot be used.
    Error,
    /// The recipe can be used, but looks like a mistake.
    Warning,
}

/// Something wrong with the settings of a schedule or an optimizer.
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// Key of the setting.
    pub(crate) key: &'static str,
    pub(crate) message: String,
    pub(crate) hint: &'static str,
}

/// One thing that is wrong with a recipe.
///
/// As JSON: `{"severity", "file", "line", "column", "path", "message", "hint"}`.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// Where it was written.
    pub span: Span,
    /// Its path in the configuration, for example `model.body[3].conv.kernel`.
    pub path: ConfigPath,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub hint: Option<String>,
    /// The part of the source's line around `span`: from [`skipped`] on.
    excerpt: Option<Arc<str>>,
}

impl Diagnostic {
    /// An error.
    pub fn error(span: Span, path: ConfigPath, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, span, path, message: message.into(), hint: None, excerpt: None }
    }

    /// A warning.
    pub fn warning(span: Span, path: ConfigPath, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(span, path, message) }
    }

    /// With a word on what would be right.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Overrides of the command line come last; of one place, the messages in alphabetical order, so that equal ones
    /// meet.
    fn order(&self) -> (bool, &str, usize, usize, &str) {
        (self.span.is_override(), &self.span.file, self.span.line, self.span.column, &self.message)
    }

    /// With the line of the source that the span points into.
    pub(crate) fn with_excerpt(mut self, sources: &Sources) -> Self {
        self.excerpt = sources.excerpt(&self.span);
        self
    }
}

impl Serialize for Diagnostic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_struct("Diagnostic", 7)?;
        map.serialize_field("severity", &self.severity)?;
        map.serialize_field("file", &*self.span.file)?;
        map.serialize_field("line", &self.span.line)?;
        map.serialize_field("column", &self.span.column)?;
        map.serialize_field("path", self.path.as_str())?;
        map.serialize_field("message", &self.message)?;
        map.serialize_field("hint", &self.hint)?;
        map.end()
    }
}

/// Most mistakes that are listed; a file that is not a recipe at all has one on every line.
const MOST: usize = 500;

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = if self.severity == Severity::Error { "error" } else { "warning" };
        write!(f, "{severity}: {}", self.message)?;
        let number = self.span.line.to_string();
        let margin = " ".repeat(number.len());
        if self.span.line > 0 {
            write!(f, "\n{margin}--> {}", self.span)?;
        }
        if !self.path.as_str().is_empty() {
            write!(f, " ({})", self.path)?;
        }
        if let Some(shown) = &self.excerpt {
            writeln!(f, "\n{margin} |\n{number} | {shown}")?;
            write!(f, "{margin} | {}^", " ".repeat(self.span.column - 1 - skipped(&self.span)))?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n{margin} = hint: {hint}")?;
        }
        Ok(())
    }
}

/// Everything that is wrong with a recipe, in the order of the source.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// Sorted by file and place; the same thing said twice of one place is said once.
    pub(crate) fn new(list: Vec<Diagnostic>, sources: &Sources) -> Self {
        let mut all = Self(list);
        all.tidy();
        Self(all.0.into_iter().map(|diagnostic| diagnostic.with_excerpt(sources)).collect())
    }

    fn tidy(&mut self) {
        self.0.sort_by(|a, b| a.order().cmp(&b.order()));
        self.0.dedup_by(|a, b| a.span == b.span && a.message == b.message);
        if self.0.len() > MOST && self.has_errors() {
            self.0.retain(|d| d.severity == Severity::Error);
        }
        if let Some(next) = self.0.get(MOST) {
            let more = format!("more than {MOST} mistakes; further ones are not listed");
            let more = Diagnostic {
                severity: next.severity,
                ..Diagnostic::error(next.span.clone(), ConfigPath::default(), more)
            };
            self.0.truncate(MOST - 1);
            self.0.push(more);
        }
    }

    /// The single ones.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any makes the recipe unusable.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|d| d.severity == Severity::Error)
    }

    /// Adds others.
    pub fn extend(&mut self, other: Diagnostics) {
        self.0.extend(other.0);
        self.tidy();
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(one: Diagnostic) -> Self {
        Self(vec![one])
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.0.iter().enumerate() {
            let gap = if index == 0 { "" } else { "\n\n" };
            write!(f, "{gap}{diagnostic}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// "did you mean", or else a list of the keys that there are.
pub(crate) fn suggest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str> + Clone) -> String {
    suggest_or(word, candidates, "no keys are allowed here")
}

/// "did you mean", or else a list of what there is, or `nothing` if there is nothing.
pub(crate) fn suggest_or<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str> + Clone,
    nothing: impl Into<String>,
) -> String {
    match meant(word, candidates.clone()) {
        Some(candidate) => format!("did you mean `{candidate}`?"),
        None => {
            let mut all: Vec<_> = candidates.into_iter().collect();
            if all.is_empty() {
                return nothing.into();
            }
            all.sort_unstable();
            let more = all.len() > 24;
            all.truncate(24);
            let all: Vec<_> = all.into_iter().map(|candidate| format!("`{candidate}`")).collect();
            format!("known here: {}{}", all.join(", "), if more { ", ..." } else { "" })
        }
    }
}
