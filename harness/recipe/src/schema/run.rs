//! The engine settings and the golden of a recipe.

use std::path::PathBuf;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_settings::settings;

use super::Part;

settings! {
    /// Settings of the CPU engine.
    pub struct Engine {
        /// Whether operators are fused if a fused kernel exists.
        pub fusion: bool = true,
        /// Which kernels are used.
        pub kernels: Kernels = Kernels::Fast,
        /// Number of threads; by default all cores. Results do not depend on it.
        #[schemars(range(min = 1, max = 1024))]
        pub threads?: usize,
        /// Vector instructions that the fast kernels use; by default the best that the processor supports. Kernels with
        /// different instructions sum in different orders: to reproduce the bits of another machine, choose the
        /// instructions of that machine.
        pub instructions?: Instructions,
    }
}

/// Which kernels are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kernels {
    /// The fast CPU kernels, if they exist for an operator.
    Fast,
    /// Only candle tensor operations.
    Reference,
}

/// Vector instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Instructions {
    /// The baseline instructions of the architecture.
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// AVX-512, and AMX tiles for convolutions and matrix products.
    Amx,
}

settings! {
    /// The golden tensors that prove one step.
    pub struct Golden {
        /// Path of the manifest, relative to `golden/`.
        pub manifest: PathBuf,
        /// Variant of the manifest to compare with, instead of the main step.
        pub variant?: String,
        /// `train.parts` of the step of the golden, if they differ from those of the first epoch of the recipe.
        pub parts?: Vec<Part>,
        /// Names in the recipe of the outputs of the reference network, by their keys, if they differ: an output of the
        /// model, a component of the loss, or another quantity that the step reports.
        #[serde(skip_serializing_if = "IndexMap::is_empty")]
        pub outputs: IndexMap<String, String> = IndexMap::new(),
        /// Intended differences between golden and recipe; any other difference fails the check.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub declares: Vec<Difference> = Vec::new(),
    }
}

settings! {
    /// An intended difference between golden and recipe.
    pub struct Difference {
        /// The differing value: a path in the recipe, for example `optimizer.sgd.no_decay`.
        pub path: String,
        /// Why.
        pub because: String,
    }
}
