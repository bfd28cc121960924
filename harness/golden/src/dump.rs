//! Dumps of a step: all its values in a folder, and the comparison of two dumps.
//!
//! A dump consists of two files. `values.safetensors` contains every input, every variable before the step and every
//! result of a node, under its name, as it was on the [device](crate::device) (f32, or f64 for the exact step).
//! `dump.json` contains the [`Manifest`]: the nodes in order, the values that they read and write, and the *own*
//! error of each node. The own error is the distance of its results from those of its operator in f64 on the same
//! operands, and is stored with the error that rounding explains. So a single run shows whether an operator causes an
//! error or inherits it.
//!
//! Values are written one at a time, as soon as they exist, so writing needs the memory of one value. Own errors are
//! computed afterwards from the file; this needs the memory of one operator's operands and results in f64.

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

/// The description of a dumped step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the format.
    pub zoo_dump: u32,
    /// Version of zoo that wrote it.
    pub zoo: String,
    /// The recipe.
    pub recipe: String,
    /// The golden with the weights and inputs of the step.
    pub golden: String,
    /// The device, or `host`.
    pub device: String,
    /// Element type of the step, before the casts for a device.
    pub dtype: String,
    /// Factor on the loss.
    pub loss_scale: f64,
    /// Losses by name, the total first; null where one is not finite.
    pub losses: Vec<(String, Option<f64>)>,
    /// Hash of the bits of all losses, and of all variables after the step; equal for equal steps.
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
    /// The line of the recipe that it comes from.
    pub line: Option<String>,
    /// Whether it only converts its operand: a cast, a change of layout, or the loss scale.
    pub converts: bool,
    /// Names of the values that it reads; class indices are left out.
    pub reads: Vec<String>,
    /// The values that it computes.
    pub writes: Vec<DumpedValue>,
    /// Its own error; absent if it computes nothing.
    pub own: Option<Own>,
    /// Share of the elements other than zero that became zero.
    pub underflow: f64,
    /// Share of the elements that exceed the largest number.
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
