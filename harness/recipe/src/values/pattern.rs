//! Patterns of names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One or more patterns of names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Patterns {
    /// One.
    One(String),
    /// Any of several.
    Any(#[schemars(length(min = 1))] Vec<String>),
}

impl Patterns {
    /// The patterns.
    pub fn all(&self) -> &[String] {
        match self {
            Self::One(pattern) => std::slice::from_ref(pattern),
            Self::Any(patterns) => patterns,
        }
    }
}

/// Whether a name has the form of a pattern, in which `*` stands for any characters.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("fc.bias", "fc.bias", true),
            ("fc.bias", "fc.bias2", false),
            ("*.bias", "layer1.0.bn1.bias", true),
            ("*.bias", "bias", false),
            ("layer*.conv1.*", "layer1.0.conv1.weight", true),
            ("layer*.conv1.*", "layer1.0.conv2.weight", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a*b*b", "abb", true),
            ("a*b*b", "ab", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    proptest! {
        #[test]
        fn a_name_with_parts_left_out_matches(parts in prop::collection::vec("[ab.]{0,3}", 1..5), gap in "[ab.*]{0,2}") {
            let name = parts.join(&gap.replace('*', "ab"));
            prop_assert!(matches(&parts.join("*"), &name), "{} {}", parts.join("*"), name);
        }
    }
}
