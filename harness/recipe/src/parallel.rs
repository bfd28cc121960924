//! How a step is split over ranks: `--parallel tensor=2,sequence,data=2`.

use crate::did_you_mean;
use std::{fmt, str::FromStr};
use zoo_graph::parallel::{Mesh, MeshAxis};

/// A split of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parallel {
    /// Ranks that share samples.
    pub data: usize,
    /// Ranks that share heads, hidden units and rows of the vocabulary.
    pub tensor: usize,
    /// Whether the ranks of [`Self::tensor`] share the tokens between the layers that they share.
    pub sequence: bool,
}

/// What can be written.
const WORDS: [&str; 3] = ["data", "sequence", "tensor"];

impl Parallel {
    /// Parts of a batch.
    pub fn parts_of_batch(&self) -> usize {
        self.data
    }

    /// The ranks.
    pub fn mesh(&self) -> Mesh {
        Mesh::new(|axis| match axis {
            MeshAxis::Data => self.data,
            MeshAxis::Tensor => self.tensor,
            MeshAxis::Context | MeshAxis::Expert => 1,
        })
    }
}

impl FromStr for Parallel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parallel = Self { data: 1, tensor: 1, sequence: false };
        let mut seen = Vec::new();
        for item in text.split(',').map(str::trim) {
            let (word, value) = match item.split_once('=') {
                Some((word, value)) => (word.trim(), Some(value.trim())),
                None => (item, None),
            };
            if seen.contains(&word) {
                return Err(format!("`{word}` is given twice"));
            }
            seen.push(word);
            let ranks = || match value.map(str::parse) {
                Some(Ok(ranks)) if ranks > 0 => Ok(ranks),
                _ => Err(format!("`{item}`: write a number of ranks, such as `{word}=2`")),
            };
            match word {
                "data" => parallel.data = ranks()?,
                "tensor" => parallel.tensor = ranks()?,
                "sequence" if value.is_none() => parallel.sequence = true,
                "sequence" => return Err(format!("`{item}`: `sequence` has no value")),
                _ => {
                    let hint = did_you_mean(word, WORDS).map(|word| format!(": did you mean `{word}`?"));
                    let known = || format!(": known are {}", WORDS.join(", "));
                    return Err(format!("unknown split `{}`{}", word.escape_debug(), hint.unwrap_or_else(known)));
                }
            }
        }
        if parallel.sequence && parallel.tensor == 1 {
            return Err("`sequence` divides tokens over the ranks of `tensor`: add `tensor=2`".to_owned());
        }
        if parallel.mesh().ranks() == 1 {
            return Err(format!("`{text}` is one rank: nothing is split"));
        }
        Ok(parallel)
    }
}

impl fmt::Display for Parallel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = [("data", self.data), ("tensor", self.tensor)].into_iter().filter(|(_, ranks)| *ranks > 1);
        let mut words: Vec<String> = ranks.map(|(word, ranks)| format!("{word}={ranks}")).collect();
        words.extend(self.sequence.then(|| "sequence".to_owned()));
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let parallel: Parallel = "tensor=2, sequence,data=4".parse().unwrap();
        assert_eq!(parallel, Parallel { data: 4, tensor: 2, sequence: true });
        assert_eq!(parallel.to_string(), "data=4,tensor=2,sequence");
        assert_eq!(parallel.mesh().ranks(), 8);
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| text.parse::<Parallel>().unwrap_err();
        assert_eq!(error("tenser=2"), "unknown split `tenser`: did you mean `tensor`?");
        assert_eq!(error("tensor"), "`tensor`: write a number of ranks, such as `tensor=2`");
        assert_eq!(error("tensor=0"), "`tensor=0`: write a number of ranks, such as `tensor=2`");
        assert_eq!(error("tensor=2,tensor=4"), "`tensor` is given twice");
        assert_eq!(error("sequence"), "`sequence` divides tokens over the ranks of `tensor`: add `tensor=2`");
        assert_eq!(error("data=1"), "`data=1` is one rank: nothing is split");
        assert!(error("").starts_with("unknown split ``: known are"));
    }
}
