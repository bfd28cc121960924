//! What a recipe runs on, and the golden tensors that prove it.

use std::path::PathBuf;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Part;

/// The engine that computes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Engine {
    /// Whether operators are fused where a fused kernel exists.
    pub fusion: bool,
    /// Which kernels compute.
    pub kernels: Kernels,
    /// Threads; absent: all cores. Results do not depend on it.
    #[schemars(range(min = 1, max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// Strongest vector instructions that the fast kernels may use; absent: the best of the processor. Each kind adds
    /// up in an order of its own: to reproduce the bits of another machine, name what that machine has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Instructions>,
}

impl Default for Engine {
    fn default() -> Self {
        Self { fusion: true, kernels: Kernels::Fast, threads: None, instructions: None }
    }
}

/// Which kernels compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kernels {
    /// The fast CPU kernels where they exist.
    Fast,
    /// Candle tensor operations throughout.
    Reference,
}

/// Vector instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Instructions {
    /// Those that every processor of its kind has.
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
}

/// The golden tensors that prove one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Golden {
    /// The manifest, below `golden/`.
    pub manifest: PathBuf,
    /// Variant of the manifest whose step the recipe is bound to, where it is not the main one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// `train.parts` of the golden's step, where they are not those of the recipe's first epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Vec<Part>>,
    /// What the reference's network returns, by key, where the recipe names it differently: an output of the model, a
    /// component of the loss, or another quantity that the step reports.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub outputs: IndexMap<String, String>,
    /// Differences between golden and recipe that are meant; any other fails the check.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub declares: Vec<Difference>,
}

/// A difference between golden and recipe that is meant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// What differs: a path of the recipe, for example `optimizer.sgd.no_decay`.
    pub path: String,
    /// Why.
    pub because: String,
}
