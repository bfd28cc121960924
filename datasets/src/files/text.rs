//! Texts: lists, JSON, XML, annotations, corpora.

use std::path::Path;

use crate::DataError;

/// The text of a file of at most `most` bytes in UTF-8, without byte order mark. Line ends of Windows and of old Macs
/// become line feeds, as Python's `open` reads them.
///
/// # Errors
/// A file that cannot be read; a text in UTF-16 or UTF-32, by name; bytes that are not UTF-8, with their place.
pub fn read_text(path: &Path, most: u64) -> Result<String, DataError> {
    let text = String::from_utf8(bytes(path, most)?).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        DataError::line(path, line, format!("invalid UTF-8 at byte {}", valid.len()))
    })?;
    Ok(plain(text))
}

/// The same, with U+FFFD in place of bytes that are not UTF-8: for files of which only numbers and some names are used.
///
/// # Errors
/// As [`read_text`], but for such bytes.
pub fn read_text_lossy(path: &Path, most: u64) -> Result<String, DataError> {
    let bytes = bytes(path, most)?;
    Ok(plain(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())))
}

fn bytes(path: &Path, most: u64) -> Result<Vec<u8>, DataError> {
    let bytes = super::read(path, most).map_err(DataError::io(path))?;
    match wide(&bytes) {
        Some(encoding) => {
            let reason = format!("a text in {encoding}, expected UTF-8: convert it (iconv -f {encoding} -t UTF-8)");
            Err(DataError::malformed(path.display(), reason))
        }
        None => Ok(bytes),
    }
}

/// The name of an encoding of two or four bytes per character: by its byte order mark, or by the zero in the first
/// character.
fn wide(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => Some("UTF-32"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some("UTF-16"),
        [first, second, ..] if (*first == 0) != (*second == 0) => Some("UTF-16"),
        _ => None,
    }
}

fn plain(mut text: String) -> String {
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_line_ends_are_no_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list.txt");
        let of = |content: &[u8], read: fn(&Path, u64) -> Result<String, DataError>| {
            std::fs::write(&path, content).unwrap();
            read(&path, 99).map_err(|error| error.to_string().rsplit_once("list.txt").unwrap().1.to_owned())
        };
        for read in [read_text, read_text_lossy] {
            assert_eq!(of(b"\xef\xbb\xbfa\r\nb\rc\n", read).unwrap(), "a\nb\nc\n");
            assert_eq!(of(b"", read).unwrap(), "");
            for wide in ["\u{feff}a\n", "a\n"] {
                let [little, big] = [u16::to_le_bytes, u16::to_be_bytes]
                    .map(|bytes| wide.encode_utf16().flat_map(bytes).collect::<Vec<u8>>());
                for content in [little, big] {
                    let message = of(&content, read).unwrap_err();
                    assert_eq!(message, ": a text in UTF-16, expected UTF-8: convert it (iconv -f UTF-16 -t UTF-8)");
                }
            }
            assert!(of(b"\xff\xfe\0\0a\0\0\0", read).unwrap_err().contains("UTF-32"));
            assert!(read(dir.path(), 99).is_err());
        }
        assert_eq!(of(b"one\ntwo \xff", read_text).unwrap_err(), ":2: invalid UTF-8 at byte 8");
        assert_eq!(of(b"caf\xe9,1", read_text_lossy).unwrap(), "caf\u{fffd},1");
    }
}
