//! The clock of simulated NPUs: the cost of a step on a modelled device, its reasons, and the gain of each option.
//!
//! recipe -> graph -> passes for the device ([`mod@compile`]) -> kernels ([`mod@kernel`]) -> bytes ([`traffic`]),
//! tiles ([`matrix`]) and instructions ([`vector`]) -> price of each kernel ([`price`]) -> events on streams
//! ([`schedule`]) -> step ([`mod@profile`]). The effect of an option is computed by changing the graph or the plan,
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

pub mod advise;
pub mod collective;
pub mod compare;
pub mod compile;
pub mod composed;
pub mod device;
pub mod host;
pub mod input;
pub mod kernel;
pub mod matrix;
pub mod memory;
pub mod page;
pub mod price;
pub mod profile;
pub mod schedule;
pub mod schemas;
pub mod score;
pub mod study;
pub mod trace;
pub mod traffic;
pub mod units;
pub mod vector;
pub mod what_if;

mod error;

pub use advise::{Advice, advise};
pub use compare::{OpDifference, compare};
pub use compile::{Work, compile};
pub use device::{Device, DeviceLibrary};
pub use error::NpuError;
pub use host::Host;
pub use page::page;
pub use profile::{Limit, OpCost, PHASES, Profile, profile};
pub use score::{Comparison, Row, Scored, Throughput};
pub use trace::{STREAMS, trace};
pub use units::Seconds;
pub use what_if::{WhatIf, what_if};
