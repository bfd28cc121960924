//! Text as YAML scalars.

/// Words that some reader of YAML takes for something else than text.
const RESERVED: [&str; 11] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "inf", "nan"];

/// A text as a key or a value, also in braces: as it is where every reader takes it for this text, otherwise in quotes.
pub fn scalar(text: &str) -> String {
    let begins = |c: char| c.is_ascii_alphabetic() || ['_', '$'].contains(&c);
    let is_word = text.starts_with(begins)
        && text.chars().all(|c| c.is_ascii_alphanumeric() || ['_', '$', '.', '-', '*', '/'].contains(&c))
        && !RESERVED.contains(&text.to_ascii_lowercase().as_str());
    if is_word || text == "." { text.to_owned() } else { quoted(text) }
}

/// A text in quotes.
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            // Line breaks of YAML, and what it does not print.
            c if c.is_control() || ['\u{2028}', '\u{2029}', '\u{feff}'].contains(&c) => {
                out += &format!("\\U{:08X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_plain_and_what_reads_as_something_else_is_quoted() {
        for plain in ["conv1", "layer1.0.t2", "$width*4", ".", "true_", "max-pool"] {
            assert_eq!(scalar(plain), plain);
        }
        for other in ["", "0", "1e5", "true", "NULL", "Off", "a: b", "#c", "-", "~", " a", "a\nb", "0.5 * x", "..", "ä"]
        {
            assert!(scalar(other).starts_with('"'), "{other}");
        }
    }

    proptest! {
        #[test]
        fn texts_are_read_back(text in any::<String>(), word in "[ -~]{0,6}") {
            for text in [&text, &word] {
                let yaml = format!("{{{}: [{}, 1]}}", scalar(text), scalar(text));
                let read: serde_yaml::Value = serde_yaml::from_str(&yaml).unwrap();
                let entry = read.as_mapping().and_then(|map| map.iter().next()).unwrap();
                prop_assert_eq!(entry.0.as_str(), Some(text.as_str()), "{}", yaml);
                prop_assert_eq!(entry.1[0].as_str(), Some(text.as_str()), "{}", yaml);
            }
        }
    }
}
