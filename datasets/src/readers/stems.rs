//! Files found by their names without extension.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::parts::{name, only};
use crate::{DataError, files};

/// The files of a folder with one of some extensions, in any case, found by their stems: `a.b` for `a.b.JPG`.
#[derive(Debug)]
pub(super) struct Stems {
    folder: PathBuf,
    extensions: &'static [&'static str],
    /// Files by folder and stem in lower case; folders are listed when they are needed.
    listed: HashMap<PathBuf, HashMap<String, Vec<PathBuf>>>,
}

impl Stems {
    /// Files in `folder` with `extensions` (lower case, without dot).
    pub fn of(folder: &Path, extensions: &'static [&'static str]) -> Self {
        Self { folder: folder.to_owned(), extensions, listed: HashMap::new() }
    }

    /// The file of a stem, which may be a path below the folder; one of another case if no other file fits.
    ///
    /// # Errors
    /// Several such files, and a folder that cannot be read.
    pub fn find(&mut self, wanted: &str) -> Result<Option<PathBuf>, DataError> {
        let path = self.folder.join(wanted);
        let folder = path.parent().unwrap_or(&self.folder).to_owned();
        if !folder.is_dir() {
            return Ok(None);
        }
        if !self.listed.contains_key(&folder) {
            let mut files: HashMap<String, Vec<PathBuf>> = HashMap::new();
            for file in files::entries(&folder)?.into_iter().filter(|file| has_extension(file, self.extensions)) {
                files.entry(stem(&file).to_lowercase()).or_default().push(file);
            }
            self.listed.insert(folder.clone(), files);
        }
        let own = name(&path);
        let found = self.listed.get(&folder).and_then(|files| files.get(&own.to_lowercase()));
        let found: Vec<&PathBuf> = found.into_iter().flatten().collect();
        let exact: Vec<&PathBuf> = found.iter().copied().filter(|file| stem(file) == own).collect();
        only(if exact.is_empty() { found } else { exact }, || format!("the name `{wanted}`"))
    }
}

/// The name of a file without its last extension.
pub(super) fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whether a file has one of these extensions (lower case, without dot), in any case.
pub(super) fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    extensions.iter().any(|known| extension.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_their_names_without_extension() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("below")).unwrap();
        for file in ["a.JPG", "a.txt", "b.c.png", "b.png", "D.png", "d.jpg", "E.png", "f.png", "f.PNG", "below/g.Jpeg"]
        {
            std::fs::write(dir.path().join(file), "").unwrap();
        }
        let mut stems = Stems::of(dir.path(), &["jpg", "jpeg", "png"]);
        let mut find = |wanted: &str| {
            stems.find(wanted).map(|found| found.map(|path| path.strip_prefix(dir.path()).unwrap().to_owned()))
        };
        for (wanted, expected) in [
            ("a", Some("a.JPG")),
            ("b.c", Some("b.c.png")),
            ("b", Some("b.png")),
            ("D", Some("D.png")),
            ("d", Some("d.jpg")),
            ("e", Some("E.png")),
            ("below/g", Some("below/g.Jpeg")),
            ("c", None),
            ("beyond/g", None),
        ] {
            assert_eq!(find(wanted).unwrap(), expected.map(PathBuf::from), "{wanted}");
        }
        let message = find("f").unwrap_err().to_string();
        assert!(message.starts_with("several fit the name `f`: ") && message.contains("f.PNG, "), "{message}");
    }
}
