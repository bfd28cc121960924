//! `kernel_details.csv` of torch_npu's and MindSpore's profiler.
//!
//! Source: the references of profile data in Ascend/pytorch and msprof (CANN 8.5); `Duration` is from scheduling to
//! response, rows of collectives include the wait for other devices.

use crate::{
    MeasuredError, Names,
    columns::{Columns, Rows, rows},
};
use std::io::BufRead;
use std::path::Path;

const COLUMNS: Columns = Columns {
    format: "kernel_details.csv",
    name: "Name",
    operator: "Type",
    unit: "Accelerator Core",
    start: "Start Time(us)",
    duration: "Duration(us)",
};

/// Whether the header is that of such a table.
pub(crate) fn is_header(header: &str) -> bool {
    header.contains(COLUMNS.unit) && header.contains(COLUMNS.duration)
}

/// Reads the table.
pub(crate) fn read<R: BufRead>(path: &Path, reader: R, names: &mut Names) -> Result<Rows, MeasuredError> {
    rows(path, reader, &COLUMNS, names)
}
