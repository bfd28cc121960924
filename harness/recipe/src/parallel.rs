//! How several ranks share a step: the section `parallel` of a recipe, and `--parallel tensor=2,sequence,data=2`.

use crate::did_you_mean;
use std::{fmt, str::FromStr};
use zoo_graph::{
    parallel::{Mesh, MeshAxis, Stages},
    passes::{Pass, Pipeline, Recompute, RecomputeScores},
};

zoo_settings::settings! {
    /// How several ranks share a step. `zoo check R --parallel` proves it, and `zoo judge R RECORDING --parallel`
    /// judges what such ranks recorded; a training of zoo does not split its step.
    pub struct Parallel {
        /// Ranks that share samples.
        #[schemars(range(min = 1, max = 64))]
        pub data: usize = 1,
        /// Ranks that share samples and experts.
        #[schemars(range(min = 1, max = 64))]
        pub expert: usize = 1,
        /// Ranks that share the tokens of each sample.
        #[schemars(range(min = 1, max = 64))]
        pub context: usize = 1,
        /// Ranks that share heads, hidden units and rows of the vocabulary.
        #[schemars(range(min = 1, max = 64))]
        pub tensor: usize = 1,
        /// Whether the ranks of `tensor` share the tokens between the layers that they share.
        pub sequence: bool = false,
        /// Ranks that share layers.
        #[schemars(range(min = 1, max = 64))]
        pub pipeline: usize = 1,
        /// Stages of each rank of `pipeline`: stage n is on rank n modulo their number.
        #[schemars(range(min = 1, max = 64))]
        pub interleave: usize = 1,
        /// What the ranks of `data` share besides samples (ZeRO, arXiv 1910.02054): nothing (0), the optimizer's slots
        /// (1), gradients too (2), parameters too (3).
        #[schemars(range(min = 0, max = 3))]
        pub zero: u8 = 0,
        /// Samples of a micro-batch of a rank; by default all of its samples are one.
        #[schemars(range(min = 1, max = 65536))]
        pub micro_batch?: usize,
        /// Segments of the forward pass of which the backward pass computes all but the last again; 1 keeps everything.
        #[schemars(range(min = 1, max = 65536))]
        pub recompute: usize = 1,
        /// Whether the backward pass computes the scores of attentions again (`recompute=selective` on the command
        /// line).
        pub recompute_scores: bool = false,
    }
}

/// What can be written.
const WORDS: [&str; 9] =
    ["context", "data", "expert", "micro_batch", "pipeline", "recompute", "sequence", "tensor", "zero"];

/// Usual names of the same, in lower case.
const USUAL: [(&str, &str); 8] = [
    ("tp", "tensor"),
    ("dp", "data"),
    ("cp", "context"),
    ("ep", "expert"),
    ("pp", "pipeline"),
    ("sp", "sequence"),
    ("fsdp", "zero"),
    ("mbs", "micro_batch"),
];

/// Most ranks that run in lock-step.
const MOST: usize = 64;

/// Least samples, or micro-batches, of a rank, and least samples of all ranks, if nobody says how many: of the first
/// and the last sample not all labels count in a proof.
const SAMPLES: [usize; 2] = [2, 4];

impl Parallel {
    /// Ranks that have different samples.
    pub fn parts_of_batch(&self) -> usize {
        self.data * self.expert
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.pipeline * self.data * self.expert * self.context * self.tensor
    }

    /// The stages of a pipeline.
    pub fn stages(&self) -> Stages {
        Stages { ranks: self.pipeline, interleave: self.interleave }
    }

    /// The batch of a proof: two samples or micro-batches of each rank that has its own, and at least four.
    pub fn batch(&self) -> usize {
        let (each, [of_rank, of_all]) = (self.micro_batch.unwrap_or(1) * self.parts_of_batch(), SAMPLES);
        of_rank.max(of_all.div_ceil(each)) * each
    }

    /// What the backward pass computes again.
    pub(crate) fn passes(&self) -> Pipeline {
        let mut passes: Vec<Box<dyn Pass + Send + Sync>> = Vec::new();
        if self.recompute_scores {
            passes.push(Box::new(RecomputeScores));
        }
        if self.recompute > 1 {
            passes.push(Box::new(Recompute { segments: self.recompute }));
        }
        Pipeline::of(passes)
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
        if micro_batches * self.ranks() == 1 && self.passes().names().next().is_none() {
            return Err(format!("a batch of {batch} is one micro-batch of one rank: nothing is split"));
        }
        Ok(Mesh::new(|axis| match axis {
            MeshAxis::MicroBatch => micro_batches,
            MeshAxis::Pipeline => self.pipeline,
            MeshAxis::Data => self.data,
            MeshAxis::Expert => self.expert,
            MeshAxis::Context => self.context,
            MeshAxis::Tensor => self.tensor,
        }))
    }

    /// What contradicts itself: the key, what is wrong, and what would help.
    pub(crate) fn contradictions(&self) -> Vec<(&'static str, String, &'static str)> {
        let mut found = Vec::new();
        if self.sequence && self.tensor == 1 {
            found.push((
                "sequence",
                "`sequence` divides tokens over the ranks of `tensor`".to_owned(),
                "add `tensor=2`",
            ));
        }
        if self.zero > 0 && self.data == 1 {
            found.push(("zero", "`zero` divides state over the ranks of `data`".to_owned(), "add `data=2`"));
        }
        if self.interleave > 1 && self.pipeline == 1 {
            found.push((
                "interleave",
                "`interleave` are stages of the ranks of `pipeline`".to_owned(),
                "add `pipeline=2`",
            ));
        }
        if self.ranks() > MOST {
            let message = format!("`{self}` are {} ranks, and at most {MOST} can be proven", self.ranks());
            found.push(("", message, "use fewer: the size of a group does not matter for its collectives"));
        }
        if self.ranks() == 1 && self.micro_batch.is_none() && self.passes().names().next().is_none() {
            found.push(("", "this is one rank: nothing is split".to_owned(), "write for example `data=2`"));
        }
        found
    }
}

impl FromStr for Parallel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parallel = Self::default();
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
                _ => Err(format!("`{item}`: write a number of {of} from 1 to {MOST}, such as `{word}=2`")),
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
                    (parallel.pipeline, parallel.interleave) = stages.ok_or_else(|| {
                        format!("`{item}`: write ranks, or ranks and stages of each, up to {MOST}: `pipeline=2`, `pipeline=2x2`")
                    })?;
                }
                "recompute" if value == Some("selective") => parallel.recompute_scores = true,
                "recompute" => match value.map(str::parse) {
                    Some(Ok(segments)) if (2..=65536).contains(&segments) => parallel.recompute = segments,
                    _ => {
                        return Err(format!(
                            "`{item}`: write `recompute=selective`, or a number of segments: `recompute=4`"
                        ));
                    }
                },
                "sequence" if value.is_none() => parallel.sequence = true,
                "sequence" => return Err(format!("`{item}`: `sequence` has no value")),
                "tensor" => parallel.tensor = number("ranks")?,
                "zero" => {
                    let stage = value.and_then(|value| value.parse().ok()).filter(|stage| *stage <= 3);
                    parallel.zero = stage.ok_or_else(|| format!("`{item}`: the stages of ZeRO are 0 to 3"))?;
                }
                "" => return Err(format!("`{text}` has a comma without a word before or behind it")),
                _ => {
                    let lower = word.to_lowercase();
                    let usual = USUAL.iter().find(|(usual, _)| *usual == lower).map(|(_, own)| *own);
                    let hint =
                        usual.or_else(|| did_you_mean(&lower, WORDS)).map(|word| format!(": did you mean `{word}`?"));
                    let known = || format!(": known are {}", WORDS.join(", "));
                    return Err(format!("unknown split `{}`{}", word.escape_debug(), hint.unwrap_or_else(known)));
                }
            }
        }
        match parallel.contradictions().into_iter().next() {
            Some((_, message, hint)) => Err(format!("{message}: {hint}")),
            None => Ok(parallel),
        }
    }
}

impl fmt::Display for Parallel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { data, expert, context, tensor, pipeline, interleave, zero, micro_batch, recompute, .. } = *self;
        let ranks = [("data", data), ("expert", expert), ("context", context), ("tensor", tensor)];
        let ranks = ranks.into_iter().filter(|(_, ranks)| *ranks > 1);
        let mut words: Vec<String> = ranks.map(|(word, ranks)| format!("{word}={ranks}")).collect();
        if pipeline > 1 {
            let each = if interleave > 1 { format!("x{interleave}") } else { String::new() };
            words.insert(0, format!("pipeline={pipeline}{each}"));
        }
        words.extend(self.sequence.then(|| "sequence".to_owned()));
        words.extend((zero > 0).then(|| format!("zero={zero}")));
        words.extend(micro_batch.map(|samples| format!("micro_batch={samples}")));
        words.extend((recompute > 1).then(|| format!("recompute={recompute}")));
        words.extend(self.recompute_scores.then(|| "recompute=selective".to_owned()));
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
            Parallel { data: 4, tensor: 2, sequence: true, zero: 1, micro_batch: Some(2), ..Parallel::default() };
        assert_eq!(parallel, expected);
        assert_eq!(parallel.to_string(), "data=4,tensor=2,sequence,zero=1,micro_batch=2");
        let mesh = parallel.mesh(24).unwrap();
        assert_eq!((mesh.ranks(), mesh.devices()), (24, 8));
        assert!(parallel.mesh(12).unwrap_err().ends_with("a batch of 16 is"));
        assert_eq!(parallel.batch(), 16);
        assert_eq!(
            ["tensor=2", "data=2", "micro_batch=3"].map(|split| split.parse::<Parallel>().unwrap().batch()),
            [4, 4, 6]
        );
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| text.parse::<Parallel>().unwrap_err();
        assert_eq!(error("tenser=2"), "unknown split `tenser`: did you mean `tensor`?");
        assert_eq!(error("tensor"), "`tensor`: write a number of ranks from 1 to 64, such as `tensor=2`");
        assert_eq!(error("tensor=0"), "`tensor=0`: write a number of ranks from 1 to 64, such as `tensor=2`");
        assert!(error("pipeline=2x").ends_with("`pipeline=2`, `pipeline=2x2`"));
        assert_eq!(error("tensor=2,tensor=4"), "`tensor` is given twice");
        assert_eq!(error("sequence"), "`sequence` divides tokens over the ranks of `tensor`: add `tensor=2`");
        assert_eq!(error("data=1"), "this is one rank: nothing is split: write for example `data=2`");
        assert_eq!(error("zero=1"), "`zero` divides state over the ranks of `data`: add `data=2`");
        assert!(error("recompute=1").ends_with("or a number of segments: `recompute=4`"));
        assert_eq!("data=2,recompute=selective".parse::<Parallel>().unwrap().to_string(), "data=2,recompute=selective");
        assert_eq!(error("data=2,zero=4"), "`zero=4`: the stages of ZeRO are 0 to 3");
        let many = error("data=9,tensor=9");
        assert!(many.starts_with("`data=9,tensor=9` are 81 ranks, and at most 64 can be proven: use fewer"), "{many}");
        assert_eq!(error("data=2,"), "`data=2,` has a comma without a word before or behind it");
        assert!(error("layers=2").starts_with("unknown split `layers`: known are"));
        assert_eq!(error("TP=2"), "unknown split `TP`: did you mean `tensor`?");
        let alone: Parallel = "micro_batch=4".parse().unwrap();
        assert!(alone.mesh(4).unwrap_err().ends_with("nothing is split"));
    }
}
