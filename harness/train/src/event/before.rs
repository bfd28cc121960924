//! Results obtained before a training: golden check, rehearsal on the device, predicted step time. The command computes
//! them; the log and the page of a run contain them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_pages::Cell;

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
    /// The first failure.
    pub first_divergence: Option<FirstDivergence>,
    /// The changes of this run to the recipe as written: its profile, and the paths of `--set`.
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
    /// Number of comparisons.
    pub tensors: usize,
    /// Module outputs that a fusion absorbed.
    #[serde(default)]
    pub fused: usize,
    /// The worst item, by its ratio.
    pub worst: Option<Compared>,
    /// Median of the errors, in floors.
    pub median_ratio: Option<f64>,
    /// The verdict.
    pub verdict: GoldenVerdict,
}

/// One comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compared {
    /// Its name within the stage.
    pub name: String,
    /// Relative error; null for tensors that are missing, unexpected, of another shape, or NaN.
    pub error: Option<f64>,
    /// The error that counts as one floor.
    pub floor: f64,
    /// Error in floors; null if the error is null.
    pub ratio: Option<f64>,
}

/// The first failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FirstDivergence {
    /// The stage.
    pub stage: String,
    /// The tensor.
    pub tensor: String,
    /// The node that computes it.
    pub node: Option<String>,
    /// Whether the fault is in this layer; null if unknown.
    pub local: Option<bool>,
    /// Nodes that may be at fault, nearest first.
    pub suspects: Vec<String>,
    /// `file:line:column` of the recipe.
    pub line: Option<String>,
    /// Hints.
    pub hints: Vec<String>,
}

/// One step with the arithmetic of a device, compared with f64.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceCheck {
    /// The device.
    pub device: String,
    /// Whether no operator loses more than rounding explains.
    pub verdict: GoldenVerdict,
    /// The first operator that loses more.
    pub first_divergence: Option<FirstDivergence>,
    /// The effect of loss scales.
    pub loss_scale: Option<LossScaleFound>,
    /// The nodes with the largest losses, worst first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<NodeLoss>,
}

/// The effect of a loss scale: the share of gradient elements that underflow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LossScaleFound {
    /// The scale of this run.
    pub present: f64,
    /// Share lost without a loss scale.
    pub lost_at_1: f64,
    /// Share lost with the loss scale of this run.
    pub lost_at_present: f64,
    /// The loss scale with which the smallest share underflows.
    pub best: f64,
    /// The share of gradient elements that underflow.
    pub lost_at_best: f64,
}

/// The loss of precision of a node on a device.
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

/// The predicted cost of a step on a modelled device.
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
    /// What limits the step: `device`, `input` or `floor`.
    pub limit: String,
    /// Memory of one device.
    pub peak_memory_bytes: u64,
    /// Operators, the most expensive first.
    pub ops: Vec<OperatorCost>,
    /// The timeline, by stream.
    pub timeline: Vec<Lane>,
}

/// All kernels with the same operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OperatorCost {
    /// The device's name of the operator.
    pub op: String,
    /// Number of kernels.
    pub count: usize,
    /// Time.
    pub ms: f64,
    /// Share of the device's time.
    pub share: f64,
    /// Its main bottleneck.
    pub bound: String,
}

/// One stream of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Lane {
    /// The stream.
    pub stream: String,
    /// Its entries, in order.
    pub spans: Vec<Busy>,
}

/// Adjacent kernels with the same bottleneck.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Busy {
    /// Start within the step.
    pub from_ms: f64,
    /// End within the step.
    pub to_ms: f64,
    /// Its bottleneck; null on streams without kernels.
    pub bound: Option<String>,
    /// Kernels and copies.
    pub count: usize,
    /// The longest of them.
    pub longest: String,
}

/// The forecast memory of a training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    /// Bytes at its peak.
    pub peak: u64,
    /// The limit in bytes; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The parts of the peak.
    pub parts: Vec<MemoryPart>,
}

/// A part of the memory of a training.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryPart {
    /// Its name.
    pub what: String,
    /// Bytes.
    pub bytes: u64,
}

/// Whether the step agreed with golden tensors before the training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GoldenVerdict {
    /// It agreed.
    Pass,
    /// It agreed with a baseline that zoo recorded itself: nothing has changed since then, but this proves nothing.
    Baseline,
    /// It did not agree.
    Fail,
    /// There are no golden tensors.
    #[default]
    Absent,
}

impl GoldenVerdict {
    /// Its name in events.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Baseline => "baseline",
            Self::Fail => "fail",
            Self::Absent => "absent",
        }
    }

    /// Its name on a page, with a matching colour.
    pub fn cell(self) -> Cell {
        let class = match self {
            Self::Pass => "good",
            Self::Fail => "bad",
            Self::Baseline | Self::Absent => "faint",
        };
        Cell::classed(self.name(), class)
    }
}
