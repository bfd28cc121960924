//! Where something was written, and under which path of the configuration.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

pub use zoo_graph::Span;

/// Path of a node in the configuration as diagnostics print it, for example `model.body[3].conv.kernel`.
/// The empty path is the whole recipe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConfigPath(Arc<str>);

impl ConfigPath {
    /// The path of the entry `key` of the map at this path.
    pub fn key(&self, key: &str) -> Self {
        let dot = if self.0.is_empty() { "" } else { "." };
        Self(format!("{}{dot}{key}", self.0).into())
    }

    /// The path of element `index` (from 0) of the list at this path.
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0).into())
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path of the map or list that holds this node; `None` for the whole recipe.
    pub fn parent(&self) -> Option<Self> {
        if self.0.is_empty() {
            return None;
        }
        let cut = self.0.rfind(['.', '[']).unwrap_or(0);
        Some(Self(self.0[..cut].into()))
    }
}

impl From<&str> for ConfigPath {
    fn from(path: &str) -> Self {
        Self(path.into())
    }
}

impl fmt::Display for ConfigPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The place where every node of a loaded recipe was written.
///
/// Any two tables compare equal: source positions are not part of the content of a recipe, so a recipe that was saved
/// in resolved form and loaded again equals the original.
#[derive(Clone, Debug, Default)]
pub struct SpanTable(Arc<Table>);

#[derive(Debug, Default)]
struct Table {
    places: HashMap<ConfigPath, Span>,
    sources: Sources,
}

impl SpanTable {
    pub(crate) fn new(places: Vec<(ConfigPath, Span)>, sources: Sources) -> Self {
        Self(Arc::new(Table { places: places.into_iter().collect(), sources }))
    }

    /// The place of the node at `path`; for a node that was not written (a default), that of the innermost node around
    /// it.
    pub fn get(&self, path: &ConfigPath) -> Span {
        let mut path = path.clone();
        loop {
            if let Some(span) = self.0.places.get(&path) {
                return span.clone();
            }
            match path.parent() {
                Some(parent) => path = parent,
                None => return Span::default(),
            }
        }
    }

    /// The place of a character of a text that is the value at `path`, if it was written on one line as it is.
    pub(crate) fn within(&self, path: &ConfigPath, text: &str, at: usize) -> Span {
        let span = self.get(path);
        let before = self.0.sources.characters_before(&span, text);
        Span { column: span.column + before.map_or(0, |before| before + at), ..span }
    }

    /// The first override of the command line at or below `path`.
    pub fn override_within(&self, path: &str) -> Option<Span> {
        let inside = |at: &ConfigPath| {
            at.as_str().strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let overrides = self.0.places.iter().filter(|(at, span)| span.is_override() && inside(at));
        overrides.map(|(_, span)| span.clone()).min_by_key(|span| (span.line, span.column))
    }

    /// Whether a node at exactly this path was written.
    pub fn contains(&self, path: &ConfigPath) -> bool {
        self.0.places.contains_key(path)
    }

    pub(crate) fn sources(&self) -> &Sources {
        &self.0.sources
    }
}

impl PartialEq for SpanTable {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// An excerpt has at most this many characters.
const EXCERPT_WIDTH: usize = 120;

/// Number of characters of a line that are omitted before the excerpt.
pub(crate) fn skipped(span: &Span) -> usize {
    (span.column - 1).saturating_sub(EXCERPT_WIDTH * 3 / 4)
}

/// The texts that spans point into.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources(HashMap<Arc<str>, Arc<str>>);

impl Sources {
    pub(crate) fn insert(&mut self, file: Arc<str>, text: Arc<str>) {
        self.0.insert(file, text);
    }

    /// Number of characters on the line between a position and a following text.
    pub(crate) fn characters_before(&self, span: &Span, text: &str) -> Option<usize> {
        let line = self.0.get(&span.file)?.lines().nth(span.line.checked_sub(1)?)?;
        let rest: String = line.chars().skip(span.column - 1).collect();
        Some(rest[..rest.find(text)?].chars().count())
    }

    pub(crate) fn excerpt(&self, span: &Span) -> Option<Arc<str>> {
        let line = self.0.get(&span.file)?.lines().nth(span.line.checked_sub(1)?)?;
        let printable = |c: char| if c.is_control() { ' ' } else { c };
        let shown = line.chars().skip(skipped(span)).take(EXCERPT_WIDTH);
        Some(shown.map(printable).collect::<String>().into())
    }
}
