//! Documents of sentences, and pairs of sentences: does the second follow the first?

use std::{ops::Range, sync::Arc};

use rayon::prelude::*;

use super::{Excerpt, Special, Text, Vocabulary, masking::Sequence};
use crate::{DataError, Rng, Samples};

/// Documents: a sentence per line, an empty line after each document (BERT's `create_pretraining_data.py`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Documents {
    /// Their name in messages.
    name: String,
    /// The tokens of each sentence.
    sentences: Vec<Vec<u32>>,
    /// How many characters the sentences have.
    characters: usize,
    /// The sentences of each document.
    documents: Vec<Range<usize>>,
}

impl Documents {
    /// The sentences of a part of a corpus.
    ///
    /// # Errors
    /// A line that the vocabulary cannot encode; fewer than two documents.
    pub fn of(part: &Excerpt<'_>, vocabulary: &Vocabulary) -> Result<Self, DataError> {
        let text = part.text();
        let (mut lines, mut documents, mut first) = (Vec::new(), Vec::new(), 0);
        for line in text.split('\n').chain([""]) {
            let sentence = line.trim();
            if !sentence.is_empty() {
                lines.push(sentence);
            } else if lines.len() > first {
                documents.push(first..lines.len());
                first = lines.len();
            }
        }
        if documents.len() < 2 {
            let documents = if documents.len() == 1 { "1 document" } else { "0 documents" };
            let reason = format!(
                "{documents}; pairs of sentences take at least 2: a sentence per line, an empty line after each document"
            );
            return Err(DataError::malformed(part.name(), reason));
        }
        let encode = |line: &&str| {
            let start = line.as_ptr() as usize - text.as_ptr() as usize;
            vocabulary.encode(line).map_err(|error| part.unencodable(error, start, vocabulary))
        };
        let sentences: Vec<Vec<u32>> = lines.par_iter().map(encode).collect::<Result<_, _>>()?;
        let characters: usize = lines.iter().map(|line| line.chars().count()).sum();
        let characters = characters - part.lost(&sentences.concat(), vocabulary);
        Ok(Self { name: part.name().to_owned(), sentences, characters, documents })
    }

    /// All sentences as one text.
    pub fn text(&self) -> Text {
        Text { name: self.name.clone(), tokens: self.sentences.concat(), characters: self.characters }
    }

    /// Sentences in a row within a document, each time until they have `tokens` tokens.
    fn runs(&self, tokens: usize) -> Vec<Run> {
        let mut runs = Vec::new();
        for (document, sentences) in self.documents.iter().enumerate() {
            let (mut first, mut length) = (sentences.start, 0);
            for sentence in sentences.clone() {
                length += self.sentences[sentence].len();
                if length >= tokens || sentence + 1 == sentences.end {
                    runs.push(Run { document, sentences: first..sentence + 1 });
                    (first, length) = (sentence + 1, 0);
                }
            }
        }
        runs
    }

    fn tokens(&self, sentences: Range<usize>) -> Vec<u32> {
        self.sentences[sentences].concat()
    }
}

/// Sentences in a row within a document.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    document: usize,
    sentences: Range<usize>,
}

/// Pairs `[CLS] A [SEP] B [SEP]`, padded: half of the B follow A in their document, the others come from another
/// document.
///
/// The rules are those of BERT's `create_instances_from_document` (google-research/bert, create_pretraining_data.py)
/// with two exceptions: no sequence is shortened at random, and sentences whose place a B of another document takes
/// are not used again in the same epoch.
#[derive(Debug, Clone)]
pub struct SentencePairs {
    documents: Arc<Documents>,
    runs: Vec<Run>,
    /// Samples per epoch, each of a random run; by default each run once.
    count: Option<usize>,
    length: usize,
    padding: u32,
    start: u32,
    separator: u32,
}

impl SentencePairs {
    /// Sequences of `length` tokens, `count` per epoch.
    ///
    /// # Errors
    /// A vocabulary without the special tokens, or sequences of fewer than five tokens.
    pub fn new(
        documents: Arc<Documents>,
        length: usize,
        count: Option<usize>,
        vocabulary: &Vocabulary,
    ) -> Result<Self, DataError> {
        if length < 5 {
            let message = format!("two sentences and the three tokens around them do not fit into {length} tokens");
            return Err(DataError::Config(message));
        }
        let [padding, start, separator] =
            [Special::Padding, Special::Start, Special::Separator].map(|token| vocabulary.special(token));
        let runs = documents.runs(length - 3);
        Ok(Self { documents, runs, count, length, padding: padding?, start: start?, separator: separator? })
    }

    /// The sentences after A: of the run itself, or of another document.
    fn second(&self, run: &Run, after: usize, most: usize, rng: &mut Rng) -> (Vec<u32>, bool) {
        let documents = &self.documents;
        if run.sentences.len() > 1 && !rng.chance(0.5) {
            return (documents.tokens(after..run.sentences.end), true);
        }
        let other = rng.below(documents.documents.len() - 1);
        let other = documents.documents[if other < run.document { other } else { other + 1 }].clone();
        let (mut tokens, first) = (Vec::new(), other.start + rng.below(other.len()));
        for sentence in first..other.end {
            tokens.extend(&documents.sentences[sentence]);
            if tokens.len() >= most {
                break;
            }
        }
        (tokens, false)
    }
}

/// Removes tokens from the longer of two sequences, at either end, until both have `most` together.
fn shorten<'a>(mut a: &'a [u32], mut b: &'a [u32], most: usize, rng: &mut Rng) -> [Vec<u32>; 2] {
    while a.len() + b.len() > most {
        let longer = if a.len() > b.len() { &mut a } else { &mut b };
        *longer = if rng.chance(0.5) { &longer[1..] } else { &longer[..longer.len() - 1] };
    }
    [a.to_vec(), b.to_vec()]
}

impl Samples for SentencePairs {
    type Sample = Sequence;

    fn len(&self) -> usize {
        self.count.unwrap_or(self.runs.len())
    }

    fn sample(&self, seed: u64, epoch: u64, index: usize) -> Result<Sequence, DataError> {
        let mut rng = Rng::new(seed, epoch, index as u64);
        let run = match self.count {
            Some(_) => &self.runs[rng.below(self.runs.len())],
            None => &self.runs[index],
        };
        let sentences = &run.sentences;
        let after = sentences.start + if sentences.len() > 1 { 1 + rng.below(sentences.len() - 1) } else { 1 };
        let a = self.documents.tokens(sentences.start..after);
        let most = self.length - 3;
        let (b, follows) = self.second(run, after, most.saturating_sub(a.len()), &mut rng);
        let [a, b] = shorten(&a, &b, most, &mut rng);
        let end = [self.separator];
        let mut tokens = [&[self.start], a.as_slice(), &end, &b, &end].concat();
        let filled = tokens.len();
        let mut segments = vec![0; a.len() + 2];
        segments.resize(filled, 1);
        tokens.resize(self.length, self.padding);
        segments.resize(self.length, 0);
        Ok(Sequence { tokens, segments, filled, follows: Some(follows) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::{CharacterSet, Corpus};
    use proptest::prelude::*;

    /// Document d has the sentences "dddd", "dddd", ..., as many as asked for.
    fn documents(sentences: &[usize]) -> (Arc<Documents>, Vocabulary) {
        let text: String = ('a'..).zip(sentences).map(|(c, n)| format!("{c}{c}{c}{c}\n").repeat(*n) + "\n\n").collect();
        let vocabulary = Vocabulary::Characters(CharacterSet::of(&text.replace('\n', "")).with_special());
        (Arc::new(Documents::of(&Corpus::written("t", text).whole(), &vocabulary).unwrap()), vocabulary)
    }

    fn all(pairs: &SentencePairs, epoch: u64) -> Vec<Sequence> {
        (0..pairs.len()).map(|index| pairs.sample(5, epoch, index).unwrap()).collect()
    }

    #[test]
    fn runs_end_with_their_document() {
        let (documents, _) = documents(&[3, 1, 2]);
        let runs = documents.runs(8);
        assert_eq!((documents.text().tokens.len(), documents.text().characters), (24, 24));
        let found: Vec<_> = runs.into_iter().map(|run| (run.document, run.sentences)).collect();
        assert_eq!(found, [(0, 0..2), (0, 2..3), (1, 3..4), (2, 4..6)]);
    }

    #[test]
    fn a_pair_by_hand() {
        let (documents, vocabulary) = documents(&[2, 1]);
        let pairs = SentencePairs::new(documents, 13, None, &vocabulary).unwrap();
        let [pad, cls, sep, _] = Special::ALL.map(|token| vocabulary.special(token).unwrap());
        let sequences: Vec<Sequence> = (0..20).flat_map(|epoch| all(&pairs, epoch)).collect();
        let of = |second: u32, follows| Sequence {
            tokens: [&[cls], &[0; 4][..], &[sep], &[second; 4], &[sep, pad, pad]].concat(),
            segments: [[0; 6].as_slice(), &[1; 5], &[0; 2]].concat(),
            filled: 11,
            follows: Some(follows),
        };
        // The run of document a is continued by its own sentence or by the one of document b.
        for first in sequences.iter().step_by(2) {
            assert!(*first == of(0, true) || *first == of(1, false), "{first:?}");
        }
        assert!(sequences.contains(&of(0, true)) && sequences.contains(&of(1, false)));
        // A document of one sentence has nothing that follows.
        assert!(sequences.iter().skip(1).step_by(2).all(|second| second.follows == Some(false)));
    }

    #[test]
    fn half_of_the_pairs_follow() {
        let (documents, vocabulary) = documents(&[4; 20]);
        let pairs = SentencePairs::new(documents, 40, Some(2000), &vocabulary).unwrap();
        let following = all(&pairs, 0).iter().filter(|sequence| sequence.follows == Some(true)).count();
        // Six deviations of a binomial are 134.
        assert!(following.abs_diff(1000) < 134, "{following}");
    }

    #[test]
    fn texts_that_have_no_pairs_are_refused() {
        let vocabulary = Vocabulary::Characters(CharacterSet::of("ab").with_special());
        let of = |text: &str| Documents::of(&Corpus::written("t", text.to_owned()).whole(), &vocabulary);
        let error = of("a\nb\n\n\n").unwrap_err().to_string();
        assert!(error.starts_with("t: 1 document; pairs of sentences take at least 2"), "{error}");
        assert!(of("a\n\nb\nac").unwrap_err().to_string().starts_with("t:4:2: 'c'"));
        let two = Arc::new(of("a\n \nb").unwrap());
        assert!(SentencePairs::new(two.clone(), 4, None, &vocabulary).is_err());
        let plain = Vocabulary::Characters(CharacterSet::of("ab"));
        assert!(SentencePairs::new(two, 5, None, &plain).unwrap_err().to_string().contains("no `[PAD]`"));
    }

    proptest! {
        #[test]
        fn every_pair_fits(sentences in prop::collection::vec(1usize..6, 2..5), length in 5usize..60, seed: u64) {
            let (documents, vocabulary) = documents(&sentences);
            let pairs = SentencePairs::new(documents, length, None, &vocabulary).unwrap();
            let [pad, _, sep, _] = Special::ALL.map(|token| vocabulary.special(token).unwrap());
            for index in 0..pairs.len() {
                let Sequence { tokens, segments, filled, follows } = pairs.sample(seed, 0, index).unwrap();
                prop_assert!(tokens.len() == length && segments.len() == length && filled <= length);
                prop_assert!(tokens[filled..].iter().all(|token| *token == pad));
                prop_assert_eq!(tokens.iter().filter(|token| **token == sep).count(), 2);
                let of = |segment| tokens.iter().zip(&segments).filter(move |(_, s)| **s == segment);
                let letter = |segment| of(segment).map(|(token, _)| *token).find(|t| (*t as usize) < sentences.len());
                prop_assert!(letter(0).is_some() && letter(1).is_some());
                prop_assert_eq!(follows, Some(letter(0) == letter(1)));
            }
        }
    }
}
