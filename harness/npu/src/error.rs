//! What can go wrong before a step has a time.

use thiserror::Error;
use zoo_graph::{Bytes, GraphError};
use zoo_recipe::Diagnostics;

/// Why a step has no time on a device.
#[derive(Debug, Error)]
pub enum NpuError {
    /// No device file of this name.
    #[error("there is no device `{name}`{}; known: {known}", hint.as_ref().map(|hint| format!(", did you mean `{hint}`?")).unwrap_or_default())]
    UnknownDevice {
        /// What was asked for.
        name: String,
        /// The one that was probably meant.
        hint: Option<String>,
        /// Names of the devices that there are.
        known: String,
    },
    /// A device file, a study or a throughput file that is wrong.
    #[error(transparent)]
    File(#[from] Diagnostics),
    /// The recipe makes no graph, or not in this precision.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// XLA on a device without.
    #[error("{device} has no XLA: remove `npu.xla` (on the NPU, use `npu.fusion` instead)")]
    NoXla {
        /// The device.
        device: String,
    },
    /// Fused attention on a device whose software has none.
    #[error("the software of {device} has no fused attention: remove `npu.fused_attention`")]
    NoFusedAttention {
        /// The device.
        device: String,
    },
    /// Micro-batches that do not divide the batch.
    #[error(
        "batch {batch} cannot be divided into {accumulate} micro-batches: `npu.accumulate` must divide `train.batch`"
    )]
    Accumulate {
        /// Samples per update and device.
        batch: usize,
        /// Micro-batches.
        accumulate: usize,
    },
    /// A training step on a device that evaluates only.
    #[error("{device} cannot train: use `zoo eval` or `zoo profile --eval`")]
    InferenceOnly {
        /// The device.
        device: String,
    },
    /// Operators that the device lacks, with the fallback to the host switched off.
    #[error("{device} has no {operators}: they can only run on the host, and `npu.host_fallback` is off")]
    MissingOperators {
        /// The device.
        device: String,
        /// The operators' names.
        operators: String,
    },
    /// A number of devices that makes no sense.
    #[error("cannot use {found} devices: a step runs on 1 to {most} devices")]
    Devices {
        /// What was asked for.
        found: usize,
        /// The most that are modelled.
        most: usize,
    },
    /// A batch that the memory does not hold.
    #[error("batch {batch} does not fit: it needs {needed} of the {memory} of {device}; {}", match largest {
        Some(largest) => format!("the largest that fits is {largest}"),
        None => "not even one image fits".to_owned(),
    })]
    Memory {
        /// The device.
        device: String,
        /// Images per step and device.
        batch: usize,
        /// What they need.
        needed: Bytes,
        /// What there is.
        memory: Bytes,
        /// The largest batch that fits.
        largest: Option<usize>,
    },
    /// A page that does not render.
    #[error(transparent)]
    Page(#[from] minijinja::Error),
}
