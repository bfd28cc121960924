//! YAML documents other than recipes, read in the same way: all mistakes are reported at once, with line and column.

use std::path::Path;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_yaml::with::singleton_map_recursive;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::layers::shapes_of;
use crate::span::{ConfigPath, Sources, Span, SpanTable};
use crate::validate::{Completeness, validate};
use crate::{source, tree};

/// A document of one type, and where everything in it was written.
#[derive(Clone, Debug)]
pub struct Document<T> {
    /// What it says.
    pub value: T,
    spans: SpanTable,
}

impl<T: DeserializeOwned + JsonSchema> Document<T> {
    /// Reads a file and holds it against the schema of `T`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(path: &Path) -> Result<Self, Diagnostics> {
        let mut sources = Sources::default();
        let lone = |error: Diagnostic, sources: &Sources| Diagnostics::new(vec![error], sources);
        let (name, text) = source::read(path).map_err(|error| lone(error, &sources))?;
        sources.insert(name.clone(), text.clone());
        let mut root = tree::parse(&text, &name).map_err(|error| lone(error, &sources))?;
        let errors = validate(&mut root, &shapes_of::<T>(&[]), &ConfigPath::default(), Completeness::Whole);
        if !errors.is_empty() {
            return Err(Diagnostics::new(errors, &sources));
        }
        let value = singleton_map_recursive::deserialize(root.to_yaml()).map_err(|error: serde_yaml::Error| {
            lone(Diagnostic::error(root.span.clone(), ConfigPath::default(), error.to_string()), &sources)
        })?;
        let mut places = Vec::new();
        root.spans(&ConfigPath::default(), &mut places);
        Ok(Self { value, spans: SpanTable::new(places, sources) })
    }
}

impl<T> Document<T> {
    /// Where the node at `path` was written.
    pub fn span(&self, path: &str) -> Span {
        self.spans.get(&ConfigPath::from(path))
    }

    /// An error at `path`, with the line it points to.
    pub fn error_at(&self, path: &str, message: impl Into<String>) -> Diagnostic {
        let path = ConfigPath::from(path);
        Diagnostic::error(self.spans.get(&path), path, message).with_excerpt(self.spans.sources())
    }

    /// These errors as one.
    pub fn errors(&self, list: Vec<Diagnostic>) -> Diagnostics {
        Diagnostics::new(list, self.spans.sources())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Thing {
        #[schemars(range(min = 1))]
        size: f64,
        name: String,
    }

    fn read(text: &str) -> Result<Document<Thing>, Diagnostics> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("thing.yaml");
        std::fs::write(&path, text).unwrap();
        Document::read(&path)
    }

    #[test]
    fn a_document_keeps_its_places() {
        let thing = read("name: a\nsize: 3/2\n").unwrap();
        assert_eq!((thing.value.size, thing.value.name.as_str()), (1.5, "a"));
        assert_eq!((thing.span("size").line, thing.span("size").column), (2, 7));
        assert!(thing.error_at("size", "too small").to_string().contains("2 | size: 3/2"));
    }

    #[test]
    fn all_mistakes_come_at_once() {
        let errors = read("nam: a\nsize: 0\n").unwrap_err().to_string();
        assert!(errors.contains("did you mean `name`?") && errors.contains("must be at least 1"), "{errors}");
        assert!(!errors.contains("extends"), "{errors}");
    }
}
