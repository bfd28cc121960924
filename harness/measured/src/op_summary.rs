//! `op_summary_*.csv` of msprof: the content of `kernel_details.csv` under other names, without steps.

use crate::{
    MeasuredError, Names,
    columns::{Columns, Rows, rows},
};
use std::io::BufRead;
use std::path::Path;

const COLUMNS: Columns = Columns {
    format: "op_summary.csv",
    name: "Op Name",
    operator: "OP Type",
    unit: "Task Type",
    start: "Task Start Time(us)",
    duration: "Task Duration(us)",
};

/// Whether the header is that of such a table.
pub(crate) fn is_header(header: &str) -> bool {
    header.contains(COLUMNS.name) && header.contains(COLUMNS.duration)
}

/// Reads the table.
pub(crate) fn read<R: BufRead>(path: &Path, reader: R, names: &mut Names) -> Result<Rows, MeasuredError> {
    rows(path, reader, &COLUMNS, names)
}
