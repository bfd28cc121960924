//! Dumps: every value of a step in a folder, and the comparison of two of them.
//!
//! A dump is two files. `values.safetensors` has every input, every variable before the step and every result of a
//! node, under its [name](crate::device), as it was on the device (f32, or f64 for the exact step). `dump.json` has the
//! [`Manifest`]: the nodes in their order, which values they read and write, and for each its *own* error: how far its
//! results are from what its operator makes of the very operands that it read, and how far rounding alone may bring
//! them. So an error is known to be an operator's own or inherited without a second run.
//!
//! Values are written as soon as they exist, one at a time, so a dump needs the memory of one value; own errors are
//! computed afterwards from the file, so they need that of one operator's operands and results in f64.

mod diff;
mod names;
mod own;
mod read;
mod write;

pub use diff::{Comparison, DumpFacts, Fault, NodeDifference, diff};
pub use own::Own;
pub use read::Dump;
pub use write::{Arithmetics, DumpOptions, Written, dump, hash_of_step};

use crate::report::Stage;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Version of the format.
pub const FORMAT: u32 = 1;

const MANIFEST: &str = "dump.json";
const VALUES: &str = "values.safetensors";

/// What a dump says about its step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the format.
    pub zoo_dump: u32,
    /// Version of zoo that wrote it.
    pub zoo: String,
    /// The recipe.
    pub recipe: String,
    /// The golden whose weights and inputs the step began with.
    pub golden: String,
    /// The device, or `host`.
    pub device: String,
    /// Element type of the step before a device's casts.
    pub dtype: String,
    /// Factor on the loss.
    pub loss_scale: f64,
    /// Losses by name, the total first; null where one is not finite.
    pub losses: Vec<(String, Option<f64>)>,
    /// Hash of the bits of all losses and of all variables after the step: equal for equal steps.
    pub hash: String,
    /// Inputs and variables.
    pub sources: Vec<DumpedValue>,
    /// Nodes, in the order in which they ran.
    pub nodes: Vec<DumpedNode>,
}

/// A node of a dump.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DumpedNode {
    /// Its name.
    pub node: String,
    /// Its operator.
    pub op: String,
    /// Part of the step.
    pub stage: Stage,
    /// Line of the recipe that made it.
    pub line: Option<String>,
    /// Whether it gives its operand in another form, and nothing new: a cast, a change of layout, the loss scale.
    pub converts: bool,
    /// Names of the values that it reads; class indices are left out.
    pub reads: Vec<String>,
    /// What it computes.
    pub writes: Vec<DumpedValue>,
    /// Its own error; absent where there is nothing to compute.
    pub own: Option<Own>,
    /// Share of the elements other than zero that became zero.
    pub underflow: f64,
    /// Share of the elements beyond the largest number.
    pub overflow: f64,
}

/// A value of a dump.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DumpedValue {
    /// Its name in this step.
    pub name: String,
    /// Its name in a step without casts, layouts and loss scale.
    pub exact: String,
    /// Its element type on the device.
    pub dtype: String,
    /// Whether it is multiplied by the loss scale.
    pub scaled: bool,
}

/// The two files of a dump.
fn files(folder: &Path) -> [PathBuf; 2] {
    [folder.join(MANIFEST), folder.join(VALUES)]
}
