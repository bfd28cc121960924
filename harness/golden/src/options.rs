//! How to check.

use crate::compare::Precision;
use zoo_graph::Bytes;

/// How to check.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// The arithmetic that is judged, which also selects the measure of error.
    pub precision: Precision,
    /// Kernels and threads. Steps in f64 always use the reference kernels.
    pub engine: zoo_engine::Options,
    /// Memory that a deciding step in f64 may take, on top of what the process has before the check. `None`: no
    /// limit.
    pub room: Option<Bytes>,
}
