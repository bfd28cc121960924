//! Errors of the simulation of a step.

use thiserror::Error;
use zoo_graph::{Bytes, GraphError};
use zoo_recipe::Diagnostics;

/// Why a step cannot be simulated on a device.
#[derive(Debug, Error)]
pub enum NpuError {
    /// There is no device file with this name.
    #[error("there is no device `{name}`{}; known: {known}", hint.as_ref().map(|hint| format!(", did you mean `{hint}`?")).unwrap_or_default())]
    UnknownDevice {
        /// The requested name.
        name: String,
        /// The name that was probably meant.
        hint: Option<String>,
        /// Names of the known devices.
        known: String,
    },
    /// A device file, study or throughput file with mistakes.
    #[error(transparent)]
    File(#[from] Diagnostics),
    /// No graph can be built from the recipe, or not in this precision.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// XLA on a device that does not support it.
    #[error("{device} has no XLA: remove `npu.xla` (on the NPU, use `npu.fusion` instead)")]
    NoXla {
        /// The device.
        device: String,
    },
    /// Fused attention on a device without it.
    #[error("the software of {device} has no fused attention: remove `npu.fused_attention`")]
    NoFusedAttention {
        /// The device.
        device: String,
    },
    /// bfloat16 on a device without it.
    #[error("{device} does not compute in bf16: change `npu.precision`")]
    NoBf16 {
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
    /// A training step on a device that only evaluates.
    #[error("{device} cannot train: use `zoo eval` or `zoo profile --eval`")]
    InferenceOnly {
        /// The device.
        device: String,
    },
    /// Operators that the device lacks, without the fallback to the host.
    #[error("{device} has no {operators}: they can only run on the host, and `npu.host_fallback` is off")]
    MissingOperators {
        /// The device.
        device: String,
        /// The operators' names.
        operators: String,
    },
    /// An invalid number of devices.
    #[error("cannot use {found} devices: a step runs on 1 to {most} devices")]
    Devices {
        /// The requested number.
        found: usize,
        /// The largest number that is modelled.
        most: usize,
    },
    /// A batch that does not fit the memory.
    #[error("batch {batch} does not fit: it needs {needed} of the {memory} of {device}; {}", match largest {
        Some(largest) => format!("the largest that fits is {largest}"),
        None => "not even one image fits".to_owned(),
    })]
    Memory {
        /// The device.
        device: String,
        /// Images per step and device.
        batch: usize,
        /// The required memory.
        needed: Bytes,
        /// The available memory.
        memory: Bytes,
        /// The largest batch that fits.
        largest: Option<usize>,
    },
    /// Recordings that show too few kernels of a step.
    #[error(
        "only {found} of the measured kernels are kernels of this step: tables of kernels with their shapes are needed"
    )]
    Uncalibrated {
        /// Kernels that were found.
        found: usize,
    },
    /// A page that cannot be rendered.
    #[error(transparent)]
    Page(#[from] minijinja::Error),
}
