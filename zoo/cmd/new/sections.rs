//! Sections of recipe files as text, with their comments.

use crate::Failure;
use crate::catalog::Catalog;
use crate::recipe_file::reference;
use std::fs;
use std::path::Path;

/// The texts of a recipe and of the recipes that it extends, nearest first.
pub(super) fn chain(catalog: &Catalog, path: &Path) -> Result<Vec<String>, Failure> {
    let mut texts: Vec<String> = Vec::new();
    let mut next = Some(path.to_owned());
    while let Some(path) = next {
        let text = fs::read_to_string(&path).map_err(|source| Failure::Unreadable { path: path.clone(), source })?;
        next = reference::extended(&text).and_then(|parent| reference::find(catalog, &parent, &path));
        texts.push(text);
    }
    Ok(texts)
}

/// The lines of a top-level section, without blank lines and comments at its end.
pub(super) fn section_of<'t>(text: &'t str, section: &str) -> Option<Vec<&'t str>> {
    let begins = |line: &&str| line.strip_prefix(section).is_some_and(|rest| rest.starts_with(':'));
    let mut lines = text.lines().skip_while(|line| !begins(line));
    let first = lines.next()?;
    let body = lines.take_while(|line| line.is_empty() || line.starts_with([' ', '#']));
    let mut found: Vec<&str> = std::iter::once(first).chain(body).collect();
    while found.last().is_some_and(|line| line.is_empty() || line.starts_with('#')) {
        found.pop();
    }
    Some(found)
}

/// Whether the section `set` of a recipe may change a value in `section`: one of its lines has a path that begins with
/// it. Too many are harmless.
pub(super) fn is_set(text: &str, section: &str) -> bool {
    let begins_path = |line: &str| {
        line.match_indices(section).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let is_first = before.is_none_or(|before| before.is_whitespace() || "{,'\"".contains(before));
            is_first && line[at + section.len()..].starts_with(['.', ':', '[', '\'', '"'])
        })
    };
    section_of(text, "set").is_some_and(|lines| lines.into_iter().any(begins_path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_ends_where_the_next_begins() {
        let text = "a: 1\nloss:\n  x: {y: 1} # why\n\n  z: 2\n\n# about b\nb: 2\n";
        assert_eq!(section_of(text, "loss").unwrap(), ["loss:", "  x: {y: 1} # why", "", "  z: 2"]);
        assert_eq!(section_of(text, "a").unwrap(), ["a: 1"]);
        assert_eq!(section_of(text, "los"), None);
    }

    #[test]
    fn set_changes_the_sections_of_its_paths() {
        let block = "train: {}\nset: # why\n  train.batch: 7\n  loss: {l2: {}}\n  model.data.x: 1\nprofiles: {}\n";
        let flow = "set: {schedule.cosine.base_lr: 1, 'target': ~}\n";
        let set = |text| ["train", "loss", "data", "schedule", "target"].map(|section| is_set(text, section));
        assert_eq!(set(block), [true, true, false, false, false]);
        assert_eq!(set(flow), [false, false, false, true, true]);
        assert_eq!(set("train: {batch: 1}\nprofiles: {mini: {set: {train.batch: 2}}}\n"), [false; 5]);
    }
}
