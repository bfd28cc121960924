//! Text that a network learns to continue, character by character.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A text file in UTF-8. Its beginning trains, its end is held out. The network's input says how long windows are, and
/// characters are its classes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TextFile {
    /// The file; `--data` replaces it.
    pub path: PathBuf,
    /// Share of the characters that is held out.
    #[serde(default = "tenth")]
    #[schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 1))]
    pub validation: f64,
    /// Windows per epoch, each from a random place; absent: as many as the text has side by side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000000000))]
    pub windows: Option<usize>,
    /// The characters that the network knows, in the order of their classes; absent: those of the file by code point. A
    /// run keeps them, so that it reads other files as its own.
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

/// Generated sentences about who saw what, each followed by a question and its answer: what is asked for stands dozens
/// of characters before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sentences {
    /// Sentences to train on.
    #[schemars(range(min = 1, max = 1000000))]
    pub train: usize,
    /// Sentences held out.
    #[schemars(range(min = 1, max = 1000000))]
    pub val: usize,
    /// Windows per epoch, each from a random place; absent: as many as the text has side by side.
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
