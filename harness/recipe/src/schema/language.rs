//! Text for language modelling.

use std::path::PathBuf;

use zoo_settings::settings;

use super::Metric;

settings! {
    /// A text file in UTF-8, or a folder with files `*.txt`, which are read in the order of their paths. The first part
    /// is used for training, the rest is held out. The length of windows is the one of the input of the network. The
    /// classes are characters, or the tokens of a tokenizer. With `preprocess.masking`, `[PAD]`, `[CLS]`, `[SEP]` and
    /// `[MASK]` follow the characters; a tokenizer must have these tokens (or RoBERTa's `<pad>`, `<s>`, `</s>` and
    /// `<mask>`).
    pub struct TextFile {
        /// The file or folder; `--data` replaces it.
        pub path: PathBuf,
        /// Share of the characters that are held out.
        #[schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 1))]
        pub validation: f64 = TextFile::VALIDATION,
        /// Windows per epoch, each from a random position; by default the number of windows that fit side by side.
        #[schemars(range(min = 1, max = 1000000000))]
        pub windows?: usize,
        /// A tokenizer (BPE, WordPiece or Unigram) of Hugging Face's `tokenizers`: the path of a `tokenizer.json`. Its
        /// post-processor, truncation and padding are not used. By default text is read by characters.
        pub tokenizer?: PathBuf,
        /// The vocabulary of a text without `tokenizer`: characters in the order of their classes; by default those of
        /// the file by code point. A run stores its vocabulary and uses it for other files.
        pub vocabulary?: String,
    }
}

impl TextFile {
    /// Share of the text that nanoGPT holds out (data/shakespeare_char/prepare.py).
    pub const VALIDATION: f64 = 0.1;
}

settings! {
    /// How tokens are hidden (arXiv 1810.04805, section 3.1): of the chosen tokens, 80 % become `[MASK]`, 10 % a random
    /// token, and 10 % stay. In training other tokens are hidden in each epoch, in evaluation always the same. The loss
    /// `softmax_cross_entropy` ignores the other tokens: their label is its `ignore`.
    pub struct Masking {
        /// Share of the tokens of a sequence that are chosen; at least one is.
        #[schemars(extend("exclusiveMinimum" = 0), range(max = 1))]
        pub share: f64 = 0.15,
        /// Whether samples are pairs of sentences, `[CLS] A [SEP] B [SEP]` with padding. B follows A in half of the
        /// pairs; in the others it comes from another document (label `next_sentence_label`: 0 if B follows A, else 1).
        /// Texts then have a sentence per line and an empty line after each document. Further inputs, if the network
        /// has them: `token_type_ids` (1 for B) and `attention_mask` (0 for padding).
        pub sentence_pairs: bool = false,
    }
}

impl Masking {
    /// The metrics for sequences with hidden tokens, in display order; the first one is the default.
    pub fn metrics(&self) -> &'static [Metric] {
        match self.sentence_pairs {
            true => &[Metric::CrossEntropy, Metric::Perplexity, Metric::MaskedAccuracy, Metric::NextSentenceAccuracy],
            false => &[Metric::CrossEntropy, Metric::Perplexity, Metric::MaskedAccuracy],
        }
    }
}

settings! {
    /// Generated sentences about who saw what, each followed by a question and its answer. The answer occurs dozens of
    /// characters before the question.
    pub struct Sentences {
        /// Training sentences.
        #[schemars(range(min = 1, max = 1000000))]
        pub train: usize = 4000,
        /// Held-out sentences.
        #[schemars(range(min = 1, max = 1000000))]
        pub val: usize = 200,
        /// Windows per epoch, each from a random position; by default the number of windows that fit side by side.
        #[schemars(range(min = 1, max = 1000000000))]
        pub windows?: usize,
        /// Seed of the whole text.
        pub seed: u64 = 0,
    }
}
