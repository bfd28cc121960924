//! How a step is split over ranks: `--parallel tensor=2,sequence,data=2`.

use crate::did_you_mean;
use std::{fmt, str::FromStr};
use zoo_graph::parallel::{Mesh, MeshAxis, Stages};

/// A split of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parallel {
    /// Ranks that share layers, and stages of each of them.
    pub pipeline: Stages,
    /// Ranks that share samples.
    pub data: usize,
    /// Ranks that share samples and experts.
    pub expert: usize,
    /// Ranks that share the tokens of each sample.
    pub context: usize,
    /// Ranks that share heads, hidden units and rows of the vocabulary.
    pub tensor: usize,
    /// Whether the ranks of [`Self::tensor`] share the tokens between the layers that they share.
    pub sequence: bool,
    /// What the ranks of [`Self::data`] share besides samples (ZeRO, arXiv 1910.02054): nothing (0), the optimizer's
    /// slots (1), gradients too (2), parameters too (3).
    pub zero: u8,
    /// Samples of a micro-batch of a rank; `None`: all of its samples are one.
    pub micro_batch: Option<usize>,
}

/// What can be written.
const WORDS: [&str; 8] = ["context", "data", "expert", "micro_batch", "pipeline", "sequence", "tensor", "zero"];

impl Parallel {
    /// One rank.
    pub const ALONE: Self = Self {
        pipeline: Stages { ranks: 1, interleave: 1 },
        data: 1,
        expert: 1,
        context: 1,
        tensor: 1,
        sequence: false,
        zero: 0,
        micro_batch: None,
    };

    /// Ranks that have different samples.
    pub fn parts_of_batch(&self) -> usize {
        self.data * self.expert
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.pipeline.ranks * self.data * self.expert * self.context * self.tensor
    }

    /// The ranks, and the micro-batches of a batch of all of them together.
    ///
    /// # Errors
    /// A batch that they cannot share equally.
    pub fn mesh(&self, batch: usize) -> Result<Mesh, String> {
        let micro_batches = match self.micro_batch {
            None => 1,
            Some(samples) => {
                let each = samples * self.parts_of_batch();
                if batch == 0 || !batch.is_multiple_of(each) {
                    let (ranks, other) = (self.parts_of_batch(), batch.div_ceil(each).max(1) * each);
                    return Err(format!(
                        "a batch of {batch} is no multiple of {each}, a micro-batch of {samples} of each of {ranks} \
                         ranks: a batch of {other} is"
                    ));
                }
                batch / each
            }
        };
        Ok(Mesh::new(|axis| match axis {
            MeshAxis::MicroBatch => micro_batches,
            MeshAxis::Pipeline => self.pipeline.ranks,
            MeshAxis::Data => self.data,
            MeshAxis::Expert => self.expert,
            MeshAxis::Context => self.context,
            MeshAxis::Tensor => self.tensor,
        }))
    }
}

impl FromStr for Parallel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parallel = Self::ALONE;
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
            let number = |of: &str| match value.map(str::parse) {
                Some(Ok(number)) if (1..=MOST).contains(&number) => Ok(number),
                _ => Err(format!("`{item}`: write a number of {of}, such as `{word}=2`")),
            };
            match word {
                "context" => parallel.context = number("ranks")?,
                "data" => parallel.data = number("ranks")?,
                "expert" => parallel.expert = number("ranks")?,
                "micro_batch" => parallel.micro_batch = Some(number("samples")?),
                "pipeline" => {
                    let stages = value.map(|value| value.split_once('x').unwrap_or((value, "1")));
                    let stages = stages.and_then(|(ranks, each)| Some((ranks.parse().ok()?, each.parse().ok()?)));
                    let stages = stages.filter(|(ranks, each)| (1..=MOST).contains(ranks) && (1..=MOST).contains(each));
                    let (ranks, interleave) = stages.ok_or_else(|| {
                        format!("`{item}`: write ranks, or ranks and stages of each: `pipeline=2`, `pipeline=2x2`")
                    })?;
                    parallel.pipeline = Stages { ranks, interleave };
                }
                "sequence" if value.is_none() => parallel.sequence = true,
                "sequence" => return Err(format!("`{item}`: `sequence` has no value")),
                "tensor" => parallel.tensor = number("ranks")?,
                "zero" => {
                    let stage = value.and_then(|value| value.parse().ok()).filter(|stage| *stage <= 3);
                    parallel.zero = stage.ok_or_else(|| format!("`{item}`: the stages of ZeRO are 0 to 3"))?;
                }
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
        if parallel.zero > 0 && parallel.data == 1 {
            return Err("`zero` divides state over the ranks of `data`: add `data=2`".to_owned());
        }
        if parallel.ranks() > MOST {
            return Err(format!("`{text}` are {} ranks, and at most {MOST} can be proven", parallel.ranks()));
        }
        if parallel.ranks() == 1 && parallel.micro_batch.is_none() {
            return Err(format!("`{text}` is one rank: nothing is split"));
        }
        Ok(parallel)
    }
}

/// Most ranks that run in lock-step.
const MOST: usize = 64;

impl fmt::Display for Parallel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { data, expert, context, tensor, zero, micro_batch, .. } = *self;
        let ranks = [("data", data), ("expert", expert), ("context", context), ("tensor", tensor)];
        let ranks = ranks.into_iter().filter(|(_, ranks)| *ranks > 1);
        let mut words: Vec<String> = ranks.map(|(word, ranks)| format!("{word}={ranks}")).collect();
        let Stages { ranks, interleave } = self.pipeline;
        if ranks > 1 {
            let each = if interleave > 1 { format!("x{interleave}") } else { String::new() };
            words.insert(0, format!("pipeline={ranks}{each}"));
        }
        words.extend(self.sequence.then(|| "sequence".to_owned()));
        words.extend((zero > 0).then(|| format!("zero={zero}")));
        words.extend(micro_batch.map(|samples| format!("micro_batch={samples}")));
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let parallel: Parallel = "tensor=2, sequence,data=4,zero=1,micro_batch=2".parse().unwrap();
        let expected =
            Parallel { data: 4, tensor: 2, sequence: true, zero: 1, micro_batch: Some(2), ..Parallel::ALONE };
        assert_eq!(parallel, expected);
        assert_eq!(parallel.to_string(), "data=4,tensor=2,sequence,zero=1,micro_batch=2");
        let mesh = parallel.mesh(24).unwrap();
        assert_eq!((mesh.ranks(), mesh.devices()), (24, 8));
        assert!(parallel.mesh(12).unwrap_err().ends_with("a batch of 16 is"));
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| text.parse::<Parallel>().unwrap_err();
        assert_eq!(error("tenser=2"), "unknown split `tenser`: did you mean `tensor`?");
        assert_eq!(error("tensor"), "`tensor`: write a number of ranks, such as `tensor=2`");
        assert_eq!(error("tensor=0"), "`tensor=0`: write a number of ranks, such as `tensor=2`");
        assert!(error("pipeline=2x").ends_with("`pipeline=2`, `pipeline=2x2`"));
        assert_eq!(error("tensor=2,tensor=4"), "`tensor` is given twice");
        assert_eq!(error("sequence"), "`sequence` divides tokens over the ranks of `tensor`: add `tensor=2`");
        assert_eq!(error("data=1"), "`data=1` is one rank: nothing is split");
        assert_eq!(error("zero=1"), "`zero` divides state over the ranks of `data`: add `data=2`");
        assert_eq!(error("data=2,zero=4"), "`zero=4`: the stages of ZeRO are 0 to 3");
        assert_eq!(error("data=9,tensor=9"), "`data=9,tensor=9` are 81 ranks, and at most 64 can be proven");
        assert!(error("").starts_with("unknown split ``: known are"));
    }
}
