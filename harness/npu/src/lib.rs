//! The clock of simulated NPUs: the cost of a step on a modelled device, its reasons, and the gain of each option.
//!
//! recipe -> graph -> passes for the device (`compile`) -> kernels (`kernel`) -> bytes (`traffic`),
//! tiles (`matrix`) and instructions (`vector`) -> price of each kernel (`price`) -> events on streams
//! (`schedule`) -> step ([`profile`]). The effect of an option is computed by changing the graph or the plan,
//! never by a factor on the result.
//!
//! ```
//! use zoo_npu::{DeviceLibrary, Work, profile};
//! use zoo_recipe::{Library, LoadOptions};
//!
//! let recipes = concat!(env!("CARGO_MANIFEST_DIR"), "/../../recipes");
//! let recipe = Library::new([recipes]).load("resnet18", &LoadOptions::default())?.recipe;
//! let device = DeviceLibrary::new([recipes]).load("ascend910")?;
//! let predicted = profile(&recipe, &device, Work::Train)?;
//! assert!(predicted.step.ms() > 0.0 && predicted.images_per_s > 0.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operator is a decision wherever operators are told apart")]

mod advise;
mod calibrate;
mod collective;
mod compare;
mod compile;
mod composed;
mod error;
mod figure;
mod host;
mod input;
mod kernel;
mod library;
mod matrix;
mod measured;
mod memory;
mod page;
mod price;
mod profile;
mod schedule;
mod schemas;
#[cfg(test)]
mod tests;
mod trace;
mod traffic;
mod units;
mod vector;
mod what_if;

pub mod device;
pub mod score;
pub mod study;

pub use advise::{Advice, advise};
pub use calibrate::{Calibration, Fitted, Rate, calibrate};
pub use collective::Bucket;
pub use compare::{OpDifference, compare};
pub use compile::{Work, policy};
pub use device::Device;
pub use error::NpuError;
pub use host::Host;
pub use input::Input;
pub use kernel::Kernel;
pub use library::DeviceLibrary;
pub use measured::{Cause, Family, Line, Links, Measured, Reason, Rest, Shown, Waiting, measured};
pub use page::page;
pub use price::Price;
pub use profile::{Limit, OpCost, PHASES, Profile, profile};
pub use schedule::Event;
pub use schemas::{device_schema, host_schema, study_schema, throughput_schema};
pub use score::{Comparison, Row, Scored, Throughput};
pub use trace::{STREAMS, trace};
pub use units::Seconds;
pub use what_if::{WhatIf, what_if};
