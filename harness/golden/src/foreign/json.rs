//! JSON as Python's tools write it: with `NaN`, `Infinity` and `-Infinity`, which JSON does not have, and perhaps with a
//! byte order mark.

use serde::de::DeserializeOwned;
use std::borrow::Cow;

/// Python's words for numbers that JSON does not have; each is read as null.
const WORDS: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];

/// Parses a text.
pub(super) fn parse<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(&strict(without_mark(text)))
}

/// A text without its byte order mark.
pub(super) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// The text with null for numbers that are not finite.
fn strict(text: &[u8]) -> Cow<'_, [u8]> {
    let mut strict: Vec<u8> = Vec::new();
    let (mut copied, mut at, mut in_string) = (0, 0, false);
    while let Some(byte) = text.get(at) {
        match byte {
            b'\\' if in_string => at += 1,
            b'"' => in_string = !in_string,
            b'-' | b'I' | b'N' if !in_string => {
                if let Some(word) = WORDS.iter().find(|word| text[at..].starts_with(word)) {
                    strict.extend_from_slice(&text[copied..at]);
                    strict.extend_from_slice(b"null");
                    at += word.len();
                    copied = at;
                    continue;
                }
            }
            _ => {}
        }
        at += 1;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    strict.extend_from_slice(&text[copied..]);
    Cow::Owned(strict)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn what_python_writes_is_read() {
        let read = |text: &str| parse::<Value>(text.as_bytes()).unwrap();
        assert_eq!(read(r#"{"a": NaN, "b": [Infinity, -Infinity, -1]}"#), json!({"a": null, "b": [null, null, -1]}));
        assert_eq!(read("\u{feff}{\"NaN\": \"-Infinity \\\" NaN\"}"), json!({"NaN": "-Infinity \" NaN"}));
        assert_eq!(read(r#"["\\", NaN]"#), json!(["\\", null]));
        assert_eq!(read("NaN"), Value::Null);
    }

    #[test]
    fn what_is_no_json_stays_wrong() {
        for text in ["{\"a\": Nan}", "{\"a\": -Inf}", "{\"a\": NaN", "{\"a\": NaNNaN}", "\"\\"] {
            assert!(parse::<Value>(text.as_bytes()).is_err(), "{text}");
        }
    }
}
