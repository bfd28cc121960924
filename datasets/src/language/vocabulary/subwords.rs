//! Subwords as a vocabulary: the tokenizers of Hugging Face.

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use tokenizers::Tokenizer;

use super::Special;
use crate::{DataError, files, hash::fnv1a64};

/// Most bytes of a tokenizer file.
const MOST_BYTES: u64 = 64 << 20;
/// Largest number of a token: vocabularies of language models have at most some 260,000.
const MOST_TOKENS: u32 = 1 << 22;
/// Texts are encoded in pieces of at least this many bytes.
const PIECE: usize = 1 << 20;

/// A vocabulary of byte pairs, word pieces or unigrams from a `tokenizer.json`, the file of the `tokenizers` library.
///
/// Truncation, padding and the post-processor (which adds special tokens) of the file are not used.
#[derive(Debug, Clone)]
pub struct Subwords {
    tokenizer: Box<Tokenizer>,
    path: PathBuf,
    fingerprint: u64,
    names: Vec<String>,
}

impl Subwords {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// A file that cannot be read, or that the `tokenizers` library refuses.
    pub fn read(path: &Path) -> Result<Self, DataError> {
        let text = files::read_text(path, MOST_BYTES)?;
        let refuse = |message: String| DataError::Tokenizer { path: path.to_owned(), message };
        // The library panics on strings that are invalid JSON.
        serde_json::from_str::<serde_json::Value>(&text).map_err(|error| refuse(error.to_string()))?;
        let mut tokenizer = Tokenizer::from_bytes(&text).map_err(|error| refuse(error.to_string()))?;
        tokenizer.with_padding(None).with_truncation(None).map_err(|error| refuse(error.to_string()))?;
        let vocabulary = tokenizer.get_vocab(true);
        let last = vocabulary.values().copied().max().ok_or_else(|| refuse("it has no tokens".to_owned()))?;
        if last >= MOST_TOKENS {
            return Err(refuse(format!(
                "token number {last} is too large: at most {MOST_TOKENS} tokens are supported"
            )));
        }
        let mut names = vec![String::new(); last as usize + 1];
        vocabulary.into_iter().for_each(|(name, number)| names[number as usize] = name);
        Ok(Self { tokenizer: Box::new(tokenizer), path: path.to_owned(), fingerprint: fnv1a64(text.as_bytes()), names })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Hash of the text of the file.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The name of each token as in the file; empty where a number has no token.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The number of a special token, if the file has it.
    pub fn special(&self, token: Special) -> Option<u32> {
        token.names().iter().find_map(|name| self.tokenizer.token_to_id(name))
    }

    /// The tokens of a text, without added special tokens.
    ///
    /// A text of more than a MiB is cut before the first line of each further MiB for which the line end is the only
    /// white space between two characters, and its pieces are encoded in parallel. Byte-level tokenizers without a
    /// prefix space (GPT-2) give the same tokens as for the whole text: they take a single line end as a part of its
    /// own, but divide longer white space differently at the end of a text.
    ///
    /// # Errors
    /// The message of the `tokenizers` library.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        let encoded: Result<Vec<Vec<u32>>, String> =
            pieces(text).into_par_iter().map(|piece| self.one(piece)).collect();
        Ok(encoded?.concat())
    }

    fn one(&self, text: &str) -> Result<Vec<u32>, String> {
        self.tokenizer.encode_fast(text, false).map(|encoding| encoding.get_ids().to_vec()).map_err(|e| e.to_string())
    }

    /// The text of the tokens, with U+FFFD for bytes that do not make a character.
    ///
    /// # Errors
    /// The message of the `tokenizers` library.
    pub(super) fn decode(&self, tokens: &[u32]) -> Result<String, String> {
        self.tokenizer.decode(tokens, false).map_err(|error| error.to_string())
    }
}

/// Cuts a text before lines, in pieces of at least [`PIECE`] bytes; only at line ends that are the only white space
/// between two characters.
fn pieces(text: &str) -> Vec<&str> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    let is_text = |character: Option<char>| character.is_some_and(|character| !character.is_whitespace());
    while rest.len() > PIECE {
        let alone = |(place, _): &(usize, &str)| {
            is_text(rest[..*place].chars().next_back()) && is_text(rest[place + 1..].chars().next())
        };
        let lines = rest.match_indices('\n').skip_while(|(place, _)| *place < PIECE);
        let Some((place, _)) = lines.into_iter().find(alone) else { break };
        let (piece, after) = rest.split_at(place + 1);
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Byte pairs over bytes, as GPT-2's, and word pieces as BERT's.
    const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tokenizers");

    fn fixture(name: &str) -> Subwords {
        Subwords::read(&Path::new(FIXTURES).join(name)).unwrap()
    }

    #[test]
    fn tokens_are_those_of_the_python_library() {
        // tests/tokenizers/make.py prints them.
        let bytes = fixture("byte_pairs.json");
        let expected = [257, 220, 66, 64, 83, 11, 258, 220, 127, 102];
        assert_eq!(bytes.encode("the cat, the é").unwrap(), expected);
        assert_eq!(bytes.decode(&expected).unwrap(), "the cat, the é");
        assert_eq!(bytes.decode(&expected[..9]).unwrap(), "the cat, the \u{fffd}");
        let words = fixture("word_pieces.json");
        assert_eq!(words.encode("The cats, zebra").unwrap(), [63, 64, 52, 32, 30, 38, 35, 51, 34]);
        let special = |token| words.special(token);
        assert_eq!(Special::ALL.map(special), [Some(0), Some(2), Some(3), Some(4)]);
        assert_eq!(bytes.special(Special::Mask), None);
    }

    #[test]
    fn a_file_that_is_no_tokenizer_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        for content in ["", "{}", "{\"model\": {\"type\": \"BPE\"}}", "[1, 2"] {
            std::fs::write(&path, content).unwrap();
            let error = Subwords::read(&path).unwrap_err().to_string();
            assert!(error.contains("tokenizer.json: invalid tokenizer: "), "{error}");
        }
    }

    #[test]
    fn pieces_begin_with_a_line() {
        let line = format!("{}end\n", "word ".repeat(2000));
        let text = line.repeat(400) + "\n\n  indented\n" + &line.repeat(400);
        let cut = pieces(&text);
        assert!(cut.len() > 3 && cut.concat() == text);
        assert!(cut.iter().rev().skip(1).all(|piece| piece.len() > PIECE && piece.ends_with('\n')));
        assert!(cut.iter().all(|piece| piece.starts_with("word")));
    }

    /// A tokenizer like GPT-2's with tokens of two white spaces: "word \n" at the end of a text has one of them, before
    /// another line it has two tokens of one.
    #[test]
    fn pieces_have_the_tokens_of_the_whole() {
        let fixture = std::fs::read(Path::new(FIXTURES).join("byte_pairs.json")).unwrap();
        let mut json: serde_json::Value = serde_json::from_slice(&fixture).unwrap();
        let model = &mut json["model"];
        for (token, pair) in [("ĠĊ", ["Ġ", "Ċ"]), ("ĊĊ", ["Ċ", "Ċ"])] {
            let number = model["vocab"].as_object().unwrap().len();
            model["vocab"][token] = number.into();
            model["merges"].as_array_mut().unwrap().push(pair.map(serde_json::Value::from).to_vec().into());
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        std::fs::write(&path, json.to_string()).unwrap();
        let tokenizer = Subwords::read(&path).unwrap();
        let lines = |end: &str| format!("{}the{end}", "the cat, ".repeat(200)).repeat(700);
        for end in ["\n", " \n", "\n\n"] {
            // The second part can be cut in any case.
            let text = lines(end) + &lines("\n");
            assert!(pieces(&text).len() > 1);
            assert!(tokenizer.encode(&text).unwrap() == tokenizer.one(&text).unwrap(), "{end:?}");
        }
        assert_eq!(["the \n", "the \nthe"].map(|text| tokenizer.one(text).unwrap().len()), [2, 4]);
    }

    proptest! {
        #[test]
        fn bytes_are_decoded_to_their_text(text in "\\PC{0,60}") {
            let bytes = fixture("byte_pairs.json");
            prop_assert_eq!(bytes.decode(&bytes.encode(&text).unwrap()).unwrap(), text);
        }
    }
}
