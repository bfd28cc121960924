//! What is found out about a step before it trains: by its golden check, by a rehearsal on the device, by the device's
//! clock. The command finds it out; a run's log and page keep it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The golden check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GoldenCheck {
    /// Version of the events as JSON.
    pub schema_version: u32,
    /// The recipe, which is checked as written.
    pub recipe: String,
    /// The golden's manifest.
    pub golden: String,
    /// Whether this project recorded it itself, so that a pass proves nothing about a reference framework.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub baseline: bool,
    /// The arithmetic that was judged: `f32` or `f64`.
    pub dtype: String,
    /// Overall verdict.
    pub verdict: GoldenVerdict,
    /// Verdict by stage.
    pub stages: Vec<StageCheck>,
    /// The first thing that went wrong.
    pub first_divergence: Option<FirstDivergence>,
    /// What this run changes of the recipe as written: its profile, and the paths of `--set`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// Time that the check took.
    pub seconds: f64,
}

/// One stage of a golden check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageCheck {
    /// The stage, for example `forward`.
    pub stage: String,
    /// Things compared.
    pub tensors: usize,
    /// Module outputs that a fusion absorbed.
    #[serde(default)]
    pub fused: usize,
    /// The one that is farthest off.
    pub worst: Option<Compared>,
    /// Median of the errors, in floors.
    pub median_ratio: Option<f64>,
    /// The verdict.
    pub verdict: GoldenVerdict,
}

/// One compared thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compared {
    /// Its name within the stage.
    pub name: String,
    /// Relative error; null for what is missing, surplus, of another shape, or not a number.
    pub error: Option<f64>,
    /// The error that counts as one.
    pub floor: f64,
    /// Error in floors; null as the error.
    pub ratio: Option<f64>,
}

/// Where the first thing went wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FirstDivergence {
    /// The stage.
    pub stage: String,
    /// The tensor.
    pub tensor: String,
    /// The node that computes it.
    pub node: Option<String>,
    /// Whether the fault is in this very layer; null where coverage cannot tell.
    pub local: Option<bool>,
    /// Nodes that may be at fault, nearest first.
    pub suspects: Vec<String>,
    /// `file:line:column` of the recipe.
    pub line: Option<String>,
    /// What it looks like.
    pub hints: Vec<String>,
}

/// One step with a device's arithmetic, held against the engine's own f64.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceCheck {
    /// The device.
    pub device: String,
    /// Whether no operator loses more than rounding must.
    pub verdict: GoldenVerdict,
    /// The first operator that does.
    pub first_divergence: Option<FirstDivergence>,
    /// What the loss scale saves.
    pub loss_scale: Option<LossScaleFound>,
    /// The nodes that lose most, worst first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<NodeLoss>,
}

/// What a loss scale saves, as shares of the gradients' elements that vanish.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LossScaleFound {
    /// The scale of this run.
    pub present: f64,
    /// Lost without a scale.
    pub lost_at_1: f64,
    /// Lost with this run's.
    pub lost_at_present: f64,
    /// The scale that would lose least.
    pub best: f64,
    /// What it would lose.
    pub lost_at_best: f64,
}

/// What one node of a step loses on a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeLoss {
    /// The node.
    pub node: String,
    /// The type of its results.
    pub dtype: String,
    /// Share of its elements that become zero.
    pub underflow: f64,
    /// Share of its elements that overflow.
    pub overflow: f64,
}

/// What a step costs on a modelled device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cost {
    /// The device.
    pub device: String,
    /// Devices that train together.
    pub devices: usize,
    /// Samples per step and device.
    pub batch: usize,
    /// Time of one step.
    pub step_ms: f64,
    /// Samples per second on all devices.
    pub images_per_s: f64,
    /// What ends the step last: `device`, `input` or `floor`.
    pub limit: String,
    /// Memory of one device.
    pub peak_memory_bytes: u64,
    /// Operators, dearest first.
    pub ops: Vec<OperatorCost>,
    /// When what happens, by stream.
    pub timeline: Vec<Lane>,
}

/// Kernels of one operator, together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OperatorCost {
    /// The device's name of the operator.
    pub op: String,
    /// Kernels.
    pub count: usize,
    /// Time.
    pub ms: f64,
    /// Share of the device's time.
    pub share: f64,
    /// What bounds most of its time.
    pub bound: String,
}

/// One stream of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Lane {
    /// The stream.
    pub stream: String,
    /// What it does, in order.
    pub spans: Vec<Busy>,
}

/// Neighbouring kernels that one thing holds up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Busy {
    /// Begin within the step.
    pub from_ms: f64,
    /// End within the step.
    pub to_ms: f64,
    /// What holds it up; null on streams without kernels.
    pub bound: Option<String>,
    /// Kernels and copies.
    pub count: usize,
    /// The longest of them.
    pub longest: String,
}

/// What a training is expected to take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    /// Bytes at its peak.
    pub peak: u64,
    /// Bytes that it may take; absent where the system does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// What the peak is made of.
    pub parts: Vec<MemoryPart>,
}

/// A part of the memory that a training takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryPart {
    /// What it is.
    pub what: String,
    /// Bytes.
    pub bytes: u64,
}

/// Whether the step agreed with golden tensors before the training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GoldenVerdict {
    /// It did.
    Pass,
    /// It agreed with what this project recorded itself: nothing has changed since, and nothing is proven.
    Baseline,
    /// It did not.
    Fail,
    /// There are none.
    #[default]
    Absent,
}
