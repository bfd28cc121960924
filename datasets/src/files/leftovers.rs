//! What file systems, editors and archives leave in folders.

use std::path::{Path, PathBuf};

/// Names in lower case that belong to no data set.
const NAMES: [&str; 17] = [
    // Windows.
    "thumbs.db",
    "ehthumbs.db",
    "ehthumbs_vista.db",
    "desktop.ini",
    "$recycle.bin",
    "system volume information",
    "picasa.ini",
    // macOS, and its archives elsewhere.
    "__macosx",
    "icon\r",
    "network trash folder",
    "temporary items",
    // Network storage and Linux.
    "@eadir",
    "@synoresource",
    "#recycle",
    "#snapshot",
    "lost+found",
    // Python.
    "__pycache__",
];

/// Ends of names in lower case: backups of editors and tools, and the marks that Windows keeps of downloaded files.
const ENDS: [&str; 8] = ["~", ".bak", ".orig", ".swp", ".swo", ".tmp", "zone.identifier", "@synoeastream"];

/// Whether an entry of a folder belongs to a file system, an editor or an archive, by its name: everything hidden (a
/// name that begins with a dot: `.DS_Store`, `._1.jpg`, `.ipynb_checkpoints`, `.git`, `.1.jpg.swp`), and the likes of
/// `Thumbs.db`, `__MACOSX`, `@eaDir`, `lost+found`, `1.jpg~`, `#1.jpg#`.
pub fn is_leftover(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let of_emacs = name.len() > 2 && name.starts_with('#') && name.ends_with('#');
    // `~$table.xlsx`: an opened document of Office.
    let hidden = name.starts_with('.') || name.starts_with("~$");
    hidden || of_emacs || NAMES.contains(&name.as_str()) || ENDS.iter().any(|end| name.ends_with(end))
}

/// Counts the [leftovers](is_leftover) below a folder, and reports them at -v.
#[derive(Debug)]
pub struct Leftovers {
    root: PathBuf,
    count: usize,
    /// The first few of them.
    first: Vec<String>,
}

impl Leftovers {
    /// None so far.
    pub fn below(root: &Path) -> Self {
        Self { root: root.to_owned(), count: 0, first: Vec::new() }
    }

    /// Whether an entry is one, which is then counted.
    pub fn take(&mut self, path: &Path) -> bool {
        const SHOWN: usize = 3;
        let taken = is_leftover(path);
        if taken {
            self.count += 1;
            if self.first.len() < SHOWN {
                let name = path.strip_prefix(&self.root).unwrap_or(path);
                self.first.push(name.to_string_lossy().escape_debug().to_string());
            }
        }
        taken
    }
}

impl Drop for Leftovers {
    /// Reports them, whatever ends the listing.
    fn drop(&mut self) {
        let more = if self.count > self.first.len() { ", ..." } else { "" };
        if self.count > 0 {
            let (root, count, first) = (self.root.display(), self.count, self.first.join(", "));
            let entries = if count == 1 { "entry" } else { "entries" };
            tracing::debug!("{root}: {count} {entries} of file systems, editors or archives ignored: {first}{more}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_are_told_from_data() {
        for name in [
            ".DS_Store",
            "._001.jpg",
            ".ipynb_checkpoints",
            ".git",
            ".gitkeep",
            ".directory",
            ".1.jpg.swp",
            ".~lock.classes.txt#",
            ".nfs0001",
            "Thumbs.db",
            "THUMBS.DB",
            "desktop.ini",
            "$RECYCLE.BIN",
            "__MACOSX",
            "@eaDir",
            "lost+found",
            "1.jpg~",
            "classes.txt.~1~",
            "#1.txt#",
            "list.txt.bak",
            "~$classes.xlsx",
            "1.jpg:Zone.Identifier",
            "Icon\r",
        ] {
            assert!(is_leftover(&Path::new("photos").join(name)), "{name}");
        }
        for name in ["1.jpg", "a", "#1.jpg", "c#", "##", "C++", "tmp", "thumbs", "_1.png", "n01440764", "a.b.png"] {
            assert!(!is_leftover(&Path::new(".cache").join(name)), "{name}");
        }
    }
}
