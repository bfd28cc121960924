//! Reads recipe files, refusing early what cannot be one.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use crate::diagnostic::Diagnostic;
use crate::span::{ConfigPath, Span};

/// Largest recipe file in bytes.
pub const MAX_FILE_BYTES: u64 = 256 * 1024;

/// The text of the file at `path`.
///
/// # Errors
/// Not a readable file, larger than [`MAX_FILE_BYTES`], or not text in UTF-8.
pub(crate) fn read(path: &Path) -> Result<(Arc<str>, Arc<str>), Diagnostic> {
    let name: Arc<str> = Arc::from(path.display().to_string());
    let fail = |line, column, message: String| {
        Diagnostic::error(Span { file: name.clone(), line, column }, ConfigPath::default(), message)
    };
    let start = |message: String| fail(1, 1, message);
    let unreadable = |error: std::io::Error| start(format!("cannot read this file: {error}"));
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(start("not a file".to_owned()));
    }
    let too_large = |size: String| {
        let error = start(format!("{size}, but recipes can have at most {} KiB", MAX_FILE_BYTES / 1024));
        error.with_hint("is this a recipe?")
    };
    if metadata.len() > MAX_FILE_BYTES {
        return Err(too_large(format!("this file has {} KiB", metadata.len() / 1024)));
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(too_large("this file is larger".to_owned()));
    }
    let not_text = |valid: &[u8], what: &str| {
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        let last = valid.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        fail(line, String::from_utf8_lossy(last).chars().count() + 1, format!("not text: {what}"))
    };
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text,
        Err(error) => return Err(not_text(&bytes[..error.valid_up_to()], "these bytes are not UTF-8")),
    };
    let control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    if let Some(place) = text.find(control) {
        return Err(not_text(&bytes[..place], "unexpected control character"));
    }
    Ok((name, Arc::from(text.trim_start_matches('\u{feff}'))))
}
