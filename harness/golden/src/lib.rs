//! Goldens: reads them, runs the recipe's step under their conditions, and judges every tensor.
//!
//! [`check()`] executes the same [`zoo_engine::Step`] as a training, and compares it stage by stage with the values
//! that the reference framework computed.
//!
//! ```
//! use std::path::Path;
//! use zoo_golden::Golden;
//!
//! let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/resnet18/step.json");
//! let golden = Golden::read(Path::new(manifest))?;
//! assert!(!golden.is_baseline(), "PyTorch has computed it");
//! # Ok::<(), zoo_golden::GoldenError>(())
//! ```

mod bound;
mod check;
pub mod compare;
pub mod conditions;
pub mod device;
mod divergence;
pub mod dump;
mod error;
pub mod facts;
pub mod foreign;
mod golden;
mod initial;
mod items;
pub mod judge;
pub mod kernels;
pub mod manifest;
mod memory;
pub mod mutants;
mod options;
mod probe;
pub mod record;
pub mod reference;
pub mod report;
mod run;
pub mod split;
pub mod start;
pub mod stats;
mod variants;
pub mod weights;

pub use check::{check, phases};
pub use compare::Precision;
pub use error::GoldenError;
pub use golden::{Golden, is_baseline};
pub use memory::{memory, memory_on_device};
pub use options::CheckOptions;
pub use report::{Report, Stage, Verdict};
