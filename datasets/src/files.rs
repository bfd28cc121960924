//! Reading of files and folders that others made: what every reader of data goes through.
//!
//! Only regular files are opened, and no more is read than their size at that moment; otherwise zoo could wait forever
//! for a pipe, or read a device such as `/dev/zero` until memory is full. Texts come without byte order mark and with
//! one kind of line end ([`read_text`]), folders without what file systems, editors and archives leave in them
//! ([`entries`], [`Leftovers`]).

mod leftovers;
mod listing;
mod text;

pub use leftovers::{Leftovers, is_leftover};
pub use listing::{entries, natural};
pub use text::{read_text, read_text_lossy};

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Opens a regular file; links are followed. Also returns its size.
///
/// # Errors
/// Errors of the operating system; a folder, a pipe, a device or a socket.
pub fn open(path: &Path) -> io::Result<(File, u64)> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        let what = if metadata.is_dir() { "a folder, not a file" } else { "a pipe or device, not a file" };
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok((File::open(path)?, metadata.len()))
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
/// As [`open`]; a larger file.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let (file, size) = open(path)?;
    if size > most {
        let reason = format!("{size} bytes, more than the {most} that are read");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(size).unwrap_or(usize::MAX))?;
    file.take(size).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_bounded_size_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, b"content").unwrap();
        assert_eq!(read(&path, 7).unwrap(), b"content");
        assert!(read(&path, 6).unwrap_err().to_string().contains("7 bytes, more than the 6"));
        assert!(read(dir.path(), 7).unwrap_err().to_string().contains("a folder"));
        assert_eq!(read(&dir.path().join("none"), 7).unwrap_err().kind(), io::ErrorKind::NotFound);
        #[cfg(unix)]
        assert!(read(Path::new("/dev/zero"), 7).unwrap_err().to_string().contains("a pipe or device"));
    }
}
