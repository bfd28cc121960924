//! What a recipe runs on, and the golden tensors that prove it.

use std::path::PathBuf;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Part;

/// The simulated NPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Npu {
    /// Device: the name of a file in recipes/devices.
    pub device: String,
    /// How many devices train together, each with its own batch.
    #[schemars(range(min = 1, max = 65536))]
    pub devices: usize,
    /// Which number formats the operators compute in.
    pub precision: Precision,
    /// Factor on the loss that keeps small gradients above fp16's smallest number.
    pub loss_scale: LossScale,
    /// Steps that the device runs before it reports to the host.
    #[schemars(range(min = 1, max = 1000000))]
    pub iterations_per_loop: u64,
    /// Whether convolution, normalisation and activation become one operator.
    pub fusion: bool,
}

impl Default for Npu {
    fn default() -> Self {
        Self {
            device: "ascend910".to_owned(),
            devices: 1,
            precision: Precision::AllowMixPrecision,
            loss_scale: LossScale::default(),
            iterations_per_loop: 1,
            fusion: true,
        }
    }
}

/// Which number formats the operators of an NPU compute in (CANN's precision_mode, and Gaudi's bf16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Each operator by its list: white in fp16, black in fp32, grey as what feeds it.
    AllowMixPrecision,
    /// fp32 wherever the device has it, fp16 elsewhere.
    AllowFp32ToFp16,
    /// fp16 everywhere.
    ForceFp16,
    /// As the graph says; operators that the device lacks in fp32 are an error.
    MustKeepOriginDtype,
    /// fp32 everywhere.
    Fp32,
    /// bf16 where fp16 would be used.
    Bf16,
}

/// Factor on the loss that keeps small gradients representable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LossScale {
    /// No factor.
    #[default]
    None,
    /// One factor throughout.
    Fixed(FixedScale),
    /// Grows while nothing overflows, shrinks and skips the step when something does (arXiv 1710.03740).
    Dynamic(DynamicScale),
}

/// One factor throughout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FixedScale {
    /// The factor.
    #[schemars(range(min = 1))]
    pub scale: f64,
}

/// A factor that follows the overflows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DynamicScale {
    /// The factor at the beginning.
    #[schemars(range(min = 1))]
    pub init: f64,
    /// Multiplies the factor after `window` steps without overflow; divides it at an overflow.
    #[schemars(extend("exclusiveMinimum" = 1))]
    pub factor: f64,
    /// Steps without overflow before the factor grows.
    #[schemars(range(min = 1))]
    pub window: u64,
}

impl Default for DynamicScale {
    fn default() -> Self {
        Self { init: 65536.0, factor: 2.0, window: 1000 }
    }
}

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
}

impl Default for Engine {
    fn default() -> Self {
        Self { fusion: true, kernels: Kernels::Fast, threads: None }
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
