//! References between recipes: `extends: NAME`, `extends: PATH`, and `from` of a block. Paths are relative to the
//! folder of the file that contains them.

use crate::Failure;
use crate::catalog::Catalog;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Whether this is a path of a recipe rather than its name.
pub fn is_path(reference: &str) -> bool {
    is_yaml(reference) || reference.contains(['/', '\\'])
}

fn is_yaml(reference: &str) -> bool {
    reference.ends_with(".yaml") || reference.ends_with(".yml")
}

/// The recipe to which the file `from` refers.
pub fn find(catalog: &Catalog, reference: &str, from: &Path) -> Option<PathBuf> {
    let beside = from.parent().unwrap_or(Path::new(""));
    if is_path(reference) {
        return Some(beside.join(reference)).filter(|path| is_yaml(reference) && path.is_file());
    }
    let file = format!("{reference}.yaml");
    let dirs = std::iter::once(beside).chain(catalog.dirs().iter().map(PathBuf::as_path));
    dirs.map(|dir| dir.join(&file)).find(|path| path.is_file())
}

/// How a file in the existing folder `folder` refers to the recipe `target`, which is called `reference` elsewhere: by
/// the same text if that means the same there, otherwise by a path.
pub fn from_folder(catalog: &Catalog, reference: &str, target: &Path, folder: &Path) -> Result<String, Failure> {
    let is_target = |found: PathBuf| found.canonicalize().ok() == target.canonicalize().ok();
    let is_built_in = !is_path(reference) && catalog.is_built_in(target);
    if is_built_in || find(catalog, reference, &folder.join("recipe.yaml")).is_some_and(is_target) {
        return Ok(reference.to_owned());
    }
    let unreadable = |source| Failure::Unreadable { path: target.to_owned(), source };
    let relative = relative(target, folder).map_err(unreadable)?;
    match relative.to_str() {
        Some(path) if is_yaml(path) => Ok(path.to_owned()),
        _ => Err(Failure::Usage(format!(
            "{}: another recipe can only refer to a file whose name is UTF-8 and ends in .yaml",
            target.display()
        ))),
    }
}

/// The path of an existing file from an existing folder.
fn relative(file: &Path, folder: &Path) -> io::Result<PathBuf> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let (file, folder) = (file.canonicalize()?, folder.canonicalize()?);
    let common = file.components().zip(folder.components()).take_while(|(a, b)| a == b).count();
    let up = folder.components().skip(common).map(|_| "..");
    Ok(up.collect::<PathBuf>().join(file.components().skip(common).collect::<PathBuf>()))
}

/// The recipe that a text extends.
pub fn extended(text: &str) -> Option<String> {
    text.lines().find_map(|line| Some(scalar(line, line.strip_prefix("extends:")?, &[])?.1))
}

/// The text of a recipe in `from`, for a file in `folder`: its references mean the same recipes there.
pub fn moved(catalog: &Catalog, text: &str, from: &Path, folder: &Path) -> Result<String, Failure> {
    let mut result = String::new();
    for line in text.lines() {
        let mut done = 0;
        for (range, reference) in references(line) {
            let Some(target) = find(catalog, &reference, from) else { continue };
            let there = from_folder(catalog, &reference, &target, folder)?;
            if there != reference {
                result.push_str(&line[done..range.start]);
                result.push_str(&written(&there));
                done = range.end;
            }
        }
        result.push_str(&line[done..]);
        result.push('\n');
    }
    Ok(result)
}

/// The values of `extends` and of all `from` in a line, with their places.
fn references(line: &str) -> Vec<(Range<usize>, String)> {
    if line.trim_start().starts_with('#') {
        return Vec::new();
    }
    if let Some(rest) = line.strip_prefix("extends:") {
        return scalar(line, rest, &[]).into_iter().collect();
    }
    let begins_key =
        |at: usize| line[..at].chars().next_back().is_none_or(|before| before.is_whitespace() || "{,".contains(before));
    let values = line.match_indices("from:").filter(|(at, _)| begins_key(*at));
    values.filter_map(|(at, key)| scalar(line, &line[at + key.len()..], &[',', '}'])).collect()
}

/// The text at the beginning of `rest`, the end of a line, with its place in the line. Without quotes, it ends before
/// one of `ends`.
fn scalar(line: &str, rest: &str, ends: &[char]) -> Option<(Range<usize>, String)> {
    let rest = rest.trim_start();
    let start = line.len() - rest.len();
    let (length, value) = match rest.chars().next()? {
        '\'' => {
            let mut quotes = rest[1..].match_indices('\'').map(|(at, _)| at + 1);
            // A quote within the text is doubled.
            let end = loop {
                let quote = quotes.next()?;
                if !rest[quote + 1..].starts_with('\'') {
                    break quote;
                }
                quotes.next();
            };
            (end + 1, rest[1..end].replace("''", "'"))
        }
        '"' => {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<String>();
            let value = values.next()?.ok()?;
            (values.byte_offset(), value)
        }
        _ => {
            let end = rest.find(ends).unwrap_or(rest.len());
            let plain = rest[..end].split(" #").next().unwrap_or_default().trim_end();
            (plain.len(), plain.to_owned())
        }
    };
    Some((start..start + length, value))
}

/// A reference as YAML.
pub fn written(reference: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    match reference.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '.') && reference.chars().all(plain) {
        true => reference.to_owned(),
        // A JSON string is also a YAML string.
        false => serde_json::Value::from(reference).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_found_however_they_are_quoted() {
        let of = |line: &str| {
            let found = references(line);
            found.into_iter().map(|(range, value)| (line[range].to_owned(), value)).collect::<Vec<_>>()
        };
        let one = |written: &str, value: &str| vec![(written.to_owned(), value.to_owned())];
        assert_eq!(of("extends: base.yaml # why"), one("base.yaml", "base.yaml"));
        assert_eq!(of("extends: 'it''s #1.yaml' # why"), one("'it''s #1.yaml'", "it's #1.yaml"));
        assert_eq!(of(r#"extends: "a \"b\".yaml""#), one(r#""a \"b\".yaml""#, r#"a "b".yaml"#));
        assert_eq!(of("    b: {from: ../x.yaml, args: {a: 1}}"), one("../x.yaml", "../x.yaml"));
        assert_eq!(of("  from: x.yml"), one("x.yml", "x.yml"));
        assert_eq!(of("# extends: base.yaml"), []);
        assert_eq!(of("  transform: 1"), []);
        assert_eq!(of("extends: 'open"), []);
    }

    #[test]
    fn a_written_reference_is_read_again() {
        for reference in ["resnet50", "../a/b.yaml", "dir/my net.yaml", "a#b: 'c' \"d\".yaml", "ä.yaml", "-x.yaml"] {
            assert_eq!(extended(&format!("extends: {}\n", written(reference))).as_deref(), Some(reference));
        }
    }

    #[test]
    fn a_relative_path_leads_to_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let (file, folder) = (dir.path().join("a/b.yaml"), dir.path().join("c/d"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(dir.path().join("a")).unwrap();
        std::fs::write(&file, "").unwrap();
        assert_eq!(relative(&file, &folder).unwrap(), Path::new("../../a/b.yaml"));
        assert_eq!(relative(&file, &dir.path().join("a")).unwrap(), Path::new("b.yaml"));
    }
}
