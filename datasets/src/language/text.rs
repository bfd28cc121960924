//! A text as a sequence of character indices.

use std::path::Path;

use super::Vocabulary;
use crate::{DataError, files};

/// Most bytes of a text file that are read.
const MOST_BYTES: u64 = 1 << 30;

/// The content of a text file in UTF-8, without a byte order mark.
///
/// # Errors
/// A file that cannot be read, is empty, or is not UTF-8.
pub fn read_text(path: &Path) -> Result<String, DataError> {
    let bytes = files::read(path, MOST_BYTES).map_err(|source| DataError::Io { path: path.to_owned(), source })?;
    let content = String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        DataError::NotUtf8 { path: path.to_owned(), line, byte: valid.len() }
    })?;
    let content = content.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(content);
    if content.is_empty() { Err(DataError::EmptyText(path.to_owned())) } else { Ok(content) }
}

/// A text as a sequence of character indices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// Its name in messages.
    pub name: String,
    /// The numbers.
    pub tokens: Vec<u32>,
}

impl Text {
    /// Looks every character up.
    ///
    /// # Errors
    /// A character that is not in the vocabulary.
    pub fn new(name: impl Into<String>, content: &str, vocabulary: &Vocabulary) -> Result<Self, DataError> {
        let name = name.into();
        let mut tokens = Vec::with_capacity(content.len());
        let (mut line, mut column) = (1, 1);
        for character in content.chars() {
            let Some(number) = vocabulary.number(character) else {
                let known = vocabulary.len();
                return Err(DataError::UnknownCharacter { name, line, column, character, known });
            };
            tokens.push(number);
            (line, column) = if character == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        Ok(Self { name, tokens })
    }

    /// The beginning, and the end that is held out: of n characters the first floor((1 - share) * n) train, as
    /// data/shakespeare_char/prepare.py of nanoGPT divides them.
    pub fn split(mut self, held_out: f64) -> [Self; 2] {
        let tokens = self.tokens.split_off(((1.0 - held_out) * self.tokens.len() as f64) as usize);
        let held_out = Self { name: format!("{}, what is held out", self.name), tokens };
        self.name.push_str(", what trains");
        [self, held_out]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_end_is_held_out() {
        let text = "abcdefghijklm";
        let vocabulary = Vocabulary::of(text);
        let [train, val] = Text::new("t", text, &vocabulary).unwrap().split(0.1);
        assert_eq!((train.tokens, val.tokens), ((0..11).collect(), vec![11, 12]));
        // Tiny Shakespeare, as nanoGPT's prepare.py reports it.
        let [train, val] = Text { name: String::new(), tokens: vec![0; 1_115_394] }.split(0.1);
        assert_eq!((train.tokens.len(), val.tokens.len()), (1_003_854, 111_540));
    }

    #[test]
    fn an_unknown_character_is_found_by_line_and_column() {
        let error = Text::new("a.txt", "ab\nba\nabéa", &Vocabulary::of("ab\n")).unwrap_err().to_string();
        assert_eq!(error, "a.txt:3:3: 'é' is not in the vocabulary of 3 characters");
    }

    #[test]
    fn files_that_are_no_text_are_refused_with_their_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        let refused = |content: &[u8]| {
            fs::write(&path, content).unwrap();
            read_text(&path).unwrap_err().to_string()
        };
        assert!(refused(b"one\ntwo \xff").ends_with("a.txt:2: invalid UTF-8 at byte 8"));
        assert!(refused(b"").ends_with("a.txt: the file is empty"));
        assert!(refused(b"\xef\xbb\xbf").ends_with("a.txt: the file is empty"));
        fs::write(&path, b"\xef\xbb\xbfone").unwrap();
        assert_eq!(read_text(&path).unwrap(), "one");
        assert!(read_text(folder.path()).unwrap_err().to_string().contains("a folder, not a file"));
    }
}
