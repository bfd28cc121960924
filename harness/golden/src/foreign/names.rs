//! `names.yaml`: the meaning of names in a recording that differ from those of the recipe.

use super::{Quantity, json, malformed};
use crate::GoldenError;
use serde::Deserialize;
use std::{collections::BTreeMap, path::Path};
use zoo_datasets::files;

/// Largest file of names.
const MOST_BYTES: u64 = 1 << 20;

/// Meanings of names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Names {
    /// Golden keys, by name in the recording.
    #[serde(default)]
    names: BTreeMap<String, String>,
    /// The recipe's modules, by module of the recording; this includes everything inside.
    #[serde(default)]
    modules: BTreeMap<String, String>,
    /// Names that are not compared. A trailing `*` matches all names that begin so.
    #[serde(default)]
    ignore: Vec<String>,
}

/// The meaning of a name.
pub(super) enum Meaning {
    /// A quantity of the step.
    Quantity(Quantity),
    /// Not compared.
    Ignored,
    /// Nothing in a step has this name.
    Unknown,
}

impl Names {
    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be read, has another structure, or maps to an invalid key.
    pub fn read(path: &Path) -> Result<Self, GoldenError> {
        let text = files::read(path, MOST_BYTES).map_err(GoldenError::unreadable(path))?;
        let names: Self = serde_yaml::from_slice(json::without_mark(&text)).map_err(|error| malformed(path, error))?;
        if let Some((name, key)) = names.names.iter().find(|(_, key)| Quantity::parse(key).is_none()) {
            return Err(malformed(path, format!("`{name}: {key}`: a key is {KEYS}")));
        }
        Ok(names)
    }

    /// The meaning of a name. `parsed` is its meaning without this file.
    pub(super) fn meaning(&self, name: &str, parsed: Option<Quantity>) -> Meaning {
        let is_ignored = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == pattern,
        };
        if let Some(key) = self.names.get(name) {
            return Quantity::parse(key).map_or(Meaning::Unknown, Meaning::Quantity);
        }
        if self.ignore.iter().any(is_ignored) {
            return Meaning::Ignored;
        }
        match parsed {
            Some(quantity) => Meaning::Quantity(quantity.renamed(|path| self.module(path))),
            None => Meaning::Unknown,
        }
    }

    /// Path in the recipe for a path in the recording: the innermost renamed module is replaced.
    fn module(&self, path: &str) -> String {
        let inside = |theirs: &String| {
            let rest = path.strip_prefix(theirs.as_str())?;
            (rest.is_empty() || rest.starts_with('.')).then(|| rest.trim_start_matches('.'))
        };
        let renamed = self.modules.iter().filter_map(|(theirs, ours)| Some((theirs.len(), ours, inside(theirs)?)));
        match renamed.max_by_key(|(length, ..)| *length) {
            Some((_, ours, rest)) if ours.is_empty() || rest.is_empty() => format!("{ours}{rest}"),
            Some((_, ours, rest)) => format!("{ours}.{rest}"),
            None => path.to_owned(),
        }
    }
}

/// The valid keys, for messages.
pub(crate) const KEYS: &str = "start/NAME, input/NAME, out/MODULE#CALL, loss, grad/NAME, param1/NAME, buffer1/NAME or \
                               SLOT1/NAME, with the recipe's names";

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Names {
        serde_yaml::from_str(text).unwrap()
    }

    #[test]
    fn the_innermost_module_decides() {
        let names = names("modules: {module: '', module.stem: conv1, blocks: layer1}");
        assert_eq!(names.module("module.fc.weight"), "fc.weight");
        assert_eq!(names.module("module.stem.weight"), "conv1.weight");
        assert_eq!(names.module("module.stem"), "conv1");
        assert_eq!(names.module("blocks.0.bn"), "layer1.0.bn");
        assert_eq!(names.module("blocksmith"), "blocksmith");
    }

    #[test]
    fn names_come_before_what_they_say_and_ignored_ones_do_not_count() {
        let names = names("names: {y: out/fc#0}\nignore: [aux.*]");
        assert!(matches!(names.meaning("y", None), Meaning::Quantity(Quantity::Output(tap)) if tap == "fc#0"));
        assert!(matches!(names.meaning("aux.fc", None), Meaning::Ignored));
        assert!(matches!(names.meaning("z", None), Meaning::Unknown));
    }

    #[test]
    fn a_file_that_is_wrong_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("names.yaml");
        for (text, reason) in [("names: {y: fc}", "a key is"), ("modul: {}", "unknown field"), ("[1", "names.yaml")] {
            std::fs::write(&path, text).unwrap();
            assert!(Names::read(&path).unwrap_err().to_string().contains(reason), "{text}");
        }
    }
}
