//! Text for language modelling by characters.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A text file in UTF-8. Its first part is used for training, the rest is held out. The length of windows is the one of
/// the input of the network. The classes are characters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TextFile {
    /// The file; `--data` replaces it.
    pub path: PathBuf,
    /// Share of the characters that are held out.
    #[serde(default = "tenth")]
    #[schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 1))]
    pub validation: f64,
    /// Windows per epoch, each from a random position; by default the number of windows that fit side by side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000000000))]
    pub windows: Option<usize>,
    /// The vocabulary: characters in the order of their classes; by default those of the file by code point. A run
    /// stores its vocabulary and uses it for other files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vocabulary: Option<String>,
}

impl TextFile {
    /// Share of the text that nanoGPT holds out (data/shakespeare_char/prepare.py).
    pub const VALIDATION: f64 = 0.1;
}

fn tenth() -> f64 {
    TextFile::VALIDATION
}

/// Generated sentences about who saw what, each followed by a question and its answer. The answer occurs dozens of
/// characters before the question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sentences {
    /// Training sentences.
    #[schemars(range(min = 1, max = 1000000))]
    pub train: usize,
    /// Held-out sentences.
    #[schemars(range(min = 1, max = 1000000))]
    pub val: usize,
    /// Windows per epoch, each from a random position; by default the number of windows that fit side by side.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000000000))]
    pub windows: Option<usize>,
    /// Seed of the whole text.
    pub seed: u64,
}

impl Default for Sentences {
    fn default() -> Self {
        Self { train: 4000, val: 200, windows: None, seed: 0 }
    }
}
