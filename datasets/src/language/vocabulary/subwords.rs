//! Subwords as a vocabulary: the tokenizers of Hugging Face.

use std::cmp::Reverse;
use std::collections::HashMap;
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

/// What is wrong with a `tokenizer.json`.
pub(super) fn invalid(path: &Path, reason: &str) -> DataError {
    DataError::malformed(path.display(), format!("invalid tokenizer: {reason}"))
}

impl Subwords {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// A file that cannot be read, or that the `tokenizers` library refuses.
    pub fn read(path: &Path) -> Result<Self, DataError> {
        let text = files::read_text(path, MOST_BYTES)?;
        let refuse = |message: String| invalid(path, &message);
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
    /// A text of more than a MiB is cut once per MiB and its pieces are encoded in parallel, if the text around each cut
    /// has the same tokens with and without it ([`pieces`]); otherwise it is encoded as a whole.
    ///
    /// # Errors
    /// The message of the `tokenizers` library.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        let encoded: Result<Vec<Vec<u32>>, String> = pieces(text, |left, right| self.divides(left, right))
            .into_par_iter()
            .map(|piece| self.one(piece))
            .collect();
        Ok(encoded?.concat())
    }

    /// Whether the tokens of two parts of a text are those of both together. Tokenizers that put a space before a text,
    /// strip it, or merge across white space are not divided everywhere.
    fn divides(&self, left: &str, right: &str) -> bool {
        let whole = self.one(&format!("{left}{right}"));
        let parts = self.one(left).and_then(|left| Ok([left, self.one(right)?].concat()));
        whole.is_ok() && whole == parts
    }

    /// The characters of a text for which the tokenizer has no token, not even an unknown one, and how often each
    /// occurs, most frequent first. White space is not among them: many tokenizers leave it out.
    pub(super) fn dropped(&self, text: &str) -> Vec<(char, usize)> {
        let is_dropped = |character: char| self.one(character.encode_utf8(&mut [0; 4])).is_ok_and(|ids| ids.is_empty());
        // A rare letter: who has a token for it has an unknown token, or tokens of bytes.
        if !is_dropped('\u{13000}') {
            return Vec::new();
        }
        let mut counts = HashMap::<char, usize>::new();
        text.chars().filter(|c| !c.is_whitespace()).for_each(|c| *counts.entry(c).or_default() += 1);
        let mut dropped: Vec<(char, usize)> = counts.into_iter().filter(|(c, _)| is_dropped(*c)).collect();
        dropped.sort_unstable_by_key(|(character, count)| (Reverse(*count), *character));
        dropped
    }

    /// The token of unknown words, by its usual names.
    pub(super) fn unknown(&self) -> Option<u32> {
        ["[UNK]", "<unk>", "<UNK>", "unk"].iter().find_map(|name| self.tokenizer.token_to_id(name))
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

/// Cuts a text in pieces of at least [`PIECE`] bytes: before line ends, or else spaces, that are the only white space
/// between two characters, where the text around them `divides` into a left and a right part.
fn pieces(text: &str, divides: impl Fn(&str, &str) -> bool) -> Vec<&str> {
    // So many places of each kind are tried, with so many bytes around them.
    const TRIED: usize = 8;
    const AROUND: usize = 500;
    let (mut pieces, mut rest) = (Vec::new(), text);
    let is_text = |character: Option<char>| character.is_some_and(|character| !character.is_whitespace());
    while rest.len() > PIECE {
        let alone =
            |place: &usize| is_text(rest[..*place].chars().next_back()) && is_text(rest[place + 1..].chars().next());
        let start = rest.ceil_char_boundary(PIECE);
        let places = |mark: char| rest[start..].match_indices(mark).map(move |(place, _)| start + place);
        let divided = |place: &usize| {
            let (from, to) = (rest.floor_char_boundary(place - AROUND), rest.ceil_char_boundary(place + AROUND));
            divides(&rest[from..*place], &rest[*place..to])
        };
        let [lines, spaces] = ['\n', ' '].map(|mark| places(mark).filter(alone).take(TRIED));
        let Some(place) = lines.chain(spaces).find(divided) else { break };
        let (piece, after) = rest.split_at(place);
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
    fn pieces_begin_with_the_end_of_a_line() {
        let line = format!("{}end\n", "word ".repeat(2000));
        let text = line.repeat(400) + "\n\n  indented\n" + &line.repeat(400);
        let cut = pieces(&text, |_, _| true);
        assert!(cut.len() > 3 && cut.concat() == text);
        assert!(cut.iter().rev().skip(1).all(|piece| piece.len() > PIECE && piece.ends_with("end")));
        assert!(cut.iter().skip(1).all(|piece| piece.starts_with("\nword")));
        let spaces = pieces(&text, |_, right| !right.starts_with('\n'));
        assert!(spaces.len() > 3 && spaces.concat() == text && spaces[1].starts_with(" word"));
        assert_eq!(pieces(&text, |_, _| false).len(), 1);
    }

    /// A tokenizer of the fixture's tokens with other settings.
    fn changed(name: &str, change: impl Fn(&mut serde_json::Value)) -> Subwords {
        let fixture = std::fs::read(Path::new(FIXTURES).join(name)).unwrap();
        let mut json: serde_json::Value = serde_json::from_slice(&fixture).unwrap();
        change(&mut json);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        std::fs::write(&path, format!("\u{feff}{json}")).unwrap();
        Subwords::read(&path).unwrap()
    }

    #[test]
    fn a_space_before_the_text_is_put_before_the_whole_alone() {
        let text = format!("the cat{}\n", ", the cat the".repeat(70)).repeat(2400);
        let prefixed = changed("byte_pairs.json", |json| json["pre_tokenizer"]["add_prefix_space"] = true.into());
        assert_eq!(prefixed.one("cat").unwrap(), prefixed.one(" cat").unwrap());
        let metaspace = changed("byte_pairs.json", |json| {
            json["pre_tokenizer"] =
                serde_json::json!({"type": "Metaspace", "replacement": "Ġ", "prepend_scheme": "always", "split": true});
        });
        for tokenizer in [prefixed, metaspace] {
            let cuts = pieces(&text, |left, right| tokenizer.divides(left, right)).len();
            assert!(cuts > 1 && tokenizer.encode(&text).unwrap() == tokenizer.one(&text).unwrap(), "{cuts}");
        }
    }

    #[test]
    fn characters_without_token_are_found() {
        let text = "the ш, thш cat 東 \t";
        assert_eq!(fixture("byte_pairs.json").dropped(text), []);
        let without = changed("byte_pairs.json", |json| {
            json["pre_tokenizer"] = serde_json::json!({"type": "WhitespaceSplit"});
        });
        assert_eq!(without.dropped(text), [('ш', 2), ('東', 1)]);
        assert_eq!(without.unknown(), None);
        let words = fixture("word_pieces.json");
        assert_eq!(words.dropped(text), []);
        assert_eq!(words.one("東").unwrap(), [words.unknown().unwrap()]);
    }

    /// A tokenizer like GPT-2's with tokens of two white spaces: "word \n" at the end of a text has one of them, before
    /// another line it has two tokens of one.
    #[test]
    fn pieces_have_the_tokens_of_the_whole() {
        let tokenizer = changed("byte_pairs.json", |json| {
            let model = &mut json["model"];
            for (token, pair) in [("ĠĊ", ["Ġ", "Ċ"]), ("ĊĊ", ["Ċ", "Ċ"])] {
                let number = model["vocab"].as_object().unwrap().len();
                model["vocab"][token] = number.into();
                model["merges"].as_array_mut().unwrap().push(pair.map(serde_json::Value::from).to_vec().into());
            }
        });
        let lines = |end: &str| format!("{}the{end}", "the cat, ".repeat(200)).repeat(700);
        for end in ["\n", " \n", "\n\n"] {
            // The second part can be cut in any case.
            let text = lines(end) + &lines("\n");
            assert!(pieces(&text, |left, right| tokenizer.divides(left, right)).len() > 1);
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
