//! Texts of files, one after the other, and their division into a part that trains and one that is held out.

use std::{ops::Range, path::Path};

use walkdir::WalkDir;

use super::{Text, Unencodable, Vocabulary};
use crate::DataError;
use crate::files::{self, Leftovers};

/// Most bytes of text that are read.
const MOST_BYTES: u64 = 1 << 30;

/// The texts of one or several files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corpus {
    name: String,
    content: String,
    /// Where each file begins, in bytes, and its name.
    files: Vec<(usize, String)>,
}

/// A part of a corpus.
#[derive(Debug, Clone)]
pub struct Excerpt<'a> {
    corpus: &'a Corpus,
    /// Its name in messages.
    name: String,
    bytes: Range<usize>,
}

impl Corpus {
    /// A text that is in no file.
    pub fn written(name: impl Into<String>, content: String) -> Self {
        let name = name.into();
        Self { files: vec![(0, name.clone())], name, content }
    }

    /// A file in UTF-8, or the files `*.txt` of a folder and the folders in it, in the order of their paths. Byte order
    /// marks are left out, lines end as in Unix ([`files::read_text`]), and each file ends with a line.
    ///
    /// # Errors
    /// Files that cannot be read, are empty, or are not UTF-8; a folder without such files.
    pub fn read(path: &Path) -> Result<Self, DataError> {
        let mut corpus = Self { name: path.display().to_string(), content: String::new(), files: Vec::new() };
        if !path.exists() {
            let expected = "a text file, or a folder with text files (*.txt)";
            return Err(DataError::absent(path, expected));
        }
        if !path.is_dir() {
            corpus.add(path)?;
            return Ok(corpus);
        }
        let mut leftovers = Leftovers::below(path);
        let walk = WalkDir::new(path).sort_by_file_name().into_iter();
        for entry in walk.filter_entry(|entry| entry.depth() == 0 || !leftovers.take(entry.path())) {
            let entry = entry.map_err(|error| {
                let path = error.path().unwrap_or(path).to_owned();
                DataError::io(&path)(error.into())
            })?;
            if entry.file_type().is_file()
                && entry.path().extension().is_some_and(|extension| extension.eq_ignore_ascii_case("txt"))
            {
                corpus.add(entry.path())?;
                if !corpus.content.ends_with('\n') {
                    corpus.content.push('\n');
                }
            }
        }
        if corpus.files.is_empty() {
            let reason = "no files *.txt found in this folder".to_owned();
            return Err(DataError::Absent { path: path.to_owned(), reason });
        }
        Ok(corpus)
    }

    fn add(&mut self, path: &Path) -> Result<(), DataError> {
        let left = MOST_BYTES.saturating_sub(self.content.len() as u64);
        let content = files::read_text(path, left)?;
        if content.is_empty() {
            return Err(DataError::malformed(path.display(), "the file is empty"));
        }
        self.files.push((self.content.len(), path.display().to_string()));
        self.content.push_str(&content);
        Ok(())
    }

    /// All of it.
    pub fn content(&self) -> &str {
        &self.content
    }

    /// How many files there are.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// The whole as one part.
    pub fn whole(&self) -> Excerpt<'_> {
        Excerpt { corpus: self, name: self.name.clone(), bytes: 0..self.content.len() }
    }

    /// The beginning, and the end that is held out: of n characters the first floor((1 - share) * n) train, as
    /// data/shakespeare_char/prepare.py of nanoGPT divides them.
    pub fn split(&self, held_out: f64) -> [Excerpt<'_>; 2] {
        let trained = ((1.0 - held_out) * self.content.chars().count() as f64) as usize;
        let at = self.content.char_indices().nth(trained).map_or(self.content.len(), |(byte, _)| byte);
        let part = |what: &str, bytes| Excerpt { corpus: self, name: format!("{}, what {what}", self.name), bytes };
        [part("trains", 0..at), part("is held out", at..self.content.len())]
    }

    /// File, line and column of a byte, the latter two from 1.
    fn place(&self, byte: usize) -> (&str, usize, usize) {
        let file = self.files.partition_point(|(start, _)| *start <= byte).saturating_sub(1);
        let (start, name) = self.files.get(file).map_or((0, self.name.as_str()), |(start, name)| (*start, name));
        let before = &self.content[start..byte];
        let line = 1 + before.matches('\n').count();
        let column = 1 + before.rsplit('\n').next().unwrap_or_default().chars().count();
        (name, line, column)
    }
}

impl Excerpt<'_> {
    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.corpus.content[self.bytes.clone()]
    }

    /// Its tokens.
    ///
    /// # Errors
    /// A character that is not in the vocabulary, with its place; the message of a tokenizer.
    pub fn encode(&self, vocabulary: &Vocabulary) -> Result<Text, DataError> {
        let text = self.text();
        let tokens = vocabulary.encode(text).map_err(|error| self.unencodable(error, 0, vocabulary))?;
        let characters = text.chars().count() - self.lost(&tokens, vocabulary);
        Ok(Text { name: self.name.clone(), tokens, characters })
    }

    /// Warns of what the tokens do not say: characters without token, whose number is returned, and unknown words.
    pub(super) fn lost(&self, tokens: &[u32], vocabulary: &Vocabulary) -> usize {
        const SHOWN: usize = 5;
        let dropped = vocabulary.dropped(self.text());
        let lost = dropped.iter().map(|(_, count)| count).sum();
        if lost > 0 {
            let first: Vec<String> = dropped.iter().take(SHOWN).map(|(c, count)| format!("{c:?} ({count})")).collect();
            let more = if dropped.len() > SHOWN { ", ..." } else { "" };
            tracing::warn!(
                "{}: the tokenizer has no token for {lost} characters and no unknown token, so it drops them: {}{more}; \
                 bits_per_character counts the others",
                self.name,
                first.join(", ")
            );
        }
        let unknown =
            vocabulary.unknown().map_or(0, |unknown| tokens.iter().filter(|token| **token == unknown).count());
        if unknown > 0 {
            tracing::warn!(
                "{}: {unknown} of {} tokens are the unknown one; bits_per_character is too low, since it counts the \
                 characters behind them",
                self.name,
                tokens.len()
            );
        }
        lost
    }

    /// The error of a piece that begins at a byte of this part.
    pub(super) fn unencodable(&self, error: Unencodable, start: usize, vocabulary: &Vocabulary) -> DataError {
        match error {
            Unencodable::Character { byte, character } => {
                let (name, line, column) = self.corpus.place(self.bytes.start + start + byte);
                let known = vocabulary.len();
                let reason = format!("{character:?} is not in the vocabulary of {known} characters");
                DataError::malformed(format_args!("{name}:{line}:{column}"), reason)
            }
            Unencodable::Tokenizer(message) => {
                DataError::Config(format!("{}: the tokenizer cannot encode the text: {message}", self.name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::CharacterSet;
    use std::fs;

    fn characters(list: &str) -> Vocabulary {
        Vocabulary::Characters(CharacterSet::of(list))
    }

    #[test]
    fn the_end_is_held_out() {
        let corpus = Corpus::written("t", "abcdefghijklm".to_owned());
        let [train, val] = corpus.split(0.1).map(|part| part.encode(&characters(corpus.content())).unwrap());
        assert_eq!((train.tokens, val.tokens), ((0..11).collect(), vec![11, 12]));
        assert_eq!((train.characters, val.characters, val.name.as_str()), (11, 2, "t, what is held out"));
        // Tiny Shakespeare, as nanoGPT's prepare.py reports it.
        let shakespeare = Corpus::written("t", "a".repeat(1_115_394));
        let [train, val] = shakespeare.split(0.1);
        assert_eq!((train.text().len(), val.text().len()), (1_003_854, 111_540));
    }

    #[test]
    fn an_unknown_character_is_found_by_line_and_column() {
        let corpus = Corpus::written("a.txt", "ab\nba\nabéa".to_owned());
        let [_, held_out] = corpus.split(0.5);
        let error = held_out.encode(&characters("ab\n")).unwrap_err().to_string();
        assert_eq!(error, "a.txt:3:3: 'é' is not in the vocabulary of 3 characters");
    }

    #[test]
    fn files_that_are_no_text_are_refused_with_their_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        let refused = |content: &[u8]| {
            fs::write(&path, content).unwrap();
            Corpus::read(&path).unwrap_err().to_string()
        };
        assert!(refused(b"one\ntwo \xff").ends_with("a.txt:2: invalid UTF-8 at byte 8"));
        assert!(refused(b"").ends_with("a.txt: the file is empty"));
        assert!(refused(b"\xef\xbb\xbf").ends_with("a.txt: the file is empty"));
        fs::write(&path, b"\xef\xbb\xbfone").unwrap();
        assert_eq!(Corpus::read(&path).unwrap().content(), "one");
        assert!(Corpus::read(&folder.path().join("none.txt")).unwrap_err().to_string().contains("none.txt"));
    }

    #[test]
    fn the_texts_of_a_folder_follow_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let refused = Corpus::read(folder.path()).unwrap_err().to_string();
        assert!(refused.ends_with("no files *.txt found in this folder"), "{refused}");
        fs::create_dir(folder.path().join("b")).unwrap();
        for (name, content) in [("b/c.txt", "c\nx?"), ("a.txt", "a\n"), ("d.md", "d"), ("e.txt", "e")] {
            fs::write(folder.path().join(name), content).unwrap();
        }
        let corpus = Corpus::read(folder.path()).unwrap();
        assert_eq!((corpus.content(), corpus.files()), ("a\nc\nx?\ne\n", 3));
        let error = corpus.whole().encode(&characters("acex\n")).unwrap_err().to_string();
        assert!(error.ends_with("c.txt:2:2: '?' is not in the vocabulary of 5 characters"), "{error}");
    }
}
