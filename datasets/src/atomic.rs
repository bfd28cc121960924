//! Files that are either complete or absent (atomic writes).

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// The suffix of incomplete files, after the number of the process that writes them.
const PARTIAL: &str = ".partial";

/// Writes `path` through `write`, so that a crash at any moment leaves the old file or the new one, never a part. Of
/// several concurrent writers, one wins. Links are followed; existing files that are not regular, such as terminals or
/// pipes, are written directly.
///
/// # Errors
/// The first refusal of the operating system, or `write`'s own error; the old file is untouched then.
pub fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => {
            let mut out = BufWriter::new(File::options().write(true).open(path)?);
            write(&mut out)?;
            out.flush()
        }
        _ => Aside::write(path, write)?.commit(),
    }
}

/// A complete temporary file next to the one that it will replace, so that several can be replaced together. Removed on
/// drop.
#[derive(Debug)]
pub struct Aside {
    partial: PathBuf,
    path: PathBuf,
    committed: bool,
}

impl Aside {
    /// Writes the new content of `path` to a temporary file, and syncs it.
    ///
    /// # Errors
    /// The first refusal of the operating system, or `write`'s own error.
    pub fn write(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<Self> {
        // The file that a link leads to; nothing else is moved.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let aside = Self { partial: partial(&path), path, committed: false };
        fill(&aside.partial, write)?;
        Ok(aside)
    }

    /// Puts it in its place, and forces the folder to the disk.
    ///
    /// # Errors
    /// What the operating system refuses.
    pub fn commit(mut self) -> io::Result<()> {
        fs::rename(&self.partial, &self.path)?;
        self.committed = true;
        sync_folder(&self.path)
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.committed {
            // Remaining files are removed by the next `remove_partial`; the first error is reported.
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// Removes files that crashes of [`replace`] left in `folder`, and no other files.
///
/// # Errors
/// If the folder cannot be listed, or a file not removed.
pub fn remove_partial(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if is_partial(&entry.file_name()) && !entry.file_type()?.is_dir() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// `report.html` is written as `report.html.4711.partial`.
fn partial(path: &Path) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(format!(".{}{PARTIAL}", std::process::id()));
    path.with_file_name(name)
}

fn is_partial(name: &OsStr) -> bool {
    let process = name.to_str().and_then(|name| name.strip_suffix(PARTIAL)?.rsplit_once('.'));
    process.is_some_and(|(file, process)| !file.is_empty() && process.parse::<u32>().is_ok())
}

fn fill(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    write(&mut file)?;
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Makes a rename in the folder of `path` survive a power failure.
fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_at_any_byte_leaves_the_old_file_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        replace(&path, |out| out.write_all(b"old")).unwrap();
        for length in 0..4 {
            let error = replace(&path, |out| {
                out.write_all(&b"new!"[..length])?;
                Err(io::Error::from(io::ErrorKind::StorageFull))
            });
            assert_eq!(error.unwrap_err().kind(), io::ErrorKind::StorageFull);
            assert_eq!(fs::read(&path).unwrap(), b"old");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
        replace(&path, |out| out.write_all(b"new!")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new!");
    }

    #[test]
    fn leftovers_of_a_crash_are_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("folder.12.partial")).unwrap();
        for name in ["a.12.partial", "a", "mine.partial", ".12.partial", "a.b.partial"] {
            fs::write(dir.path().join(name), b"content").unwrap();
        }
        remove_partial(dir.path()).unwrap();
        let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [".12.partial", "a", "a.b.partial", "folder.12.partial", "mine.partial"]);
    }

    #[test]
    fn several_files_are_replaced_together_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, b"old").unwrap();
        drop(Aside::write(&path, |out| out.write_all(b"new")).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_stay_what_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link, device) = (dir.path().join("file"), dir.path().join("link"), dir.path().join("device"));
        fs::write(&file, b"old").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        std::os::unix::fs::symlink("/dev/null", &device).unwrap();
        replace(&link, |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert!(link.is_symlink());
        replace(&device, |out| out.write_all(b"new")).unwrap();
        assert!(!Path::new("/dev/null").metadata().unwrap().is_file());
        assert!(replace(dir.path(), |_| Ok(())).is_err(), "a folder");
    }

    #[test]
    fn a_missing_folder_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(replace(&dir.path().join("no/file"), |_| Ok(())).is_err());
    }
}
