//! Files that are either complete or not there.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// What the name of a file that is not complete yet ends in.
const PARTIAL: &str = ".partial";

/// Writes `path` through `write`, so that a crash at any moment leaves the old file or the new one, never a part.
///
/// The content goes to a neighbouring file first, which is forced to the disk and renamed; then the folder is forced
/// too. If anything fails the old file is untouched and the partial one removed.
///
/// # Errors
/// The first refusal of the operating system, or `write`'s own error.
pub fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let partial = partial(path);
    let result = fill(&partial, write).and_then(|()| fs::rename(&partial, path));
    if result.is_err() {
        // What stays behind is removed with the next `remove_partial`; the first error is the one to report.
        let _ = fs::remove_file(&partial);
    }
    result.and_then(|()| sync_folder(path))
}

/// Removes what crashes have left of [`replace`] in `folder`.
///
/// # Errors
/// If the folder cannot be listed, or a file not removed.
pub fn remove_partial(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.as_os_str().as_encoded_bytes().ends_with(PARTIAL.as_bytes()) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn partial(path: &Path) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(PARTIAL);
    path.with_file_name(name)
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
        fs::write(dir.path().join("a.partial"), b"half").unwrap();
        fs::write(dir.path().join("a"), b"whole").unwrap();
        remove_partial(dir.path()).unwrap();
        assert!(!dir.path().join("a.partial").exists() && dir.path().join("a").exists());
    }

    #[test]
    fn a_missing_folder_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(replace(&dir.path().join("no/file"), |_| Ok(())).is_err());
    }
}
