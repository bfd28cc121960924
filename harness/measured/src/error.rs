//! Errors of files of profilers.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a file of a profiler cannot be read.
#[derive(Debug, Error)]
pub enum MeasuredError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A line of a table that is none.
    #[error("{}:{line}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: Problem,
    },
    /// JSON that ends early, is none, or has other fields than the format; the message has line and column.
    #[error("{}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: serde_json::Error,
    },
    /// A table without a column that its rows cannot do without.
    #[error("{} has no column `{column}`: {format} has one", path.display())]
    Column {
        /// The file.
        path: PathBuf,
        /// The missing column, as the newest version writes it.
        column: &'static str,
        /// The kind of table.
        format: &'static str,
    },
    /// A file of no known kind.
    #[error(
        "{} is no file of a profiler: kernel_details.csv, op_summary.csv, step_trace_time.csv, communication.json, \
         trace_view.json and PyTorch's traces are read", path.display()
    )]
    Unknown {
        /// The file.
        path: PathBuf,
    },
    /// A folder with nothing to read, or with more than one recording.
    #[error("{} {problem}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A file in which no kernel and no operator was recorded.
    #[error("{} has no kernels: {reason}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What it has instead.
        reason: &'static str,
    },
}

/// The longest row of a table, in bytes.
pub(crate) const LONGEST: u64 = 1 << 20;

/// What is wrong with a line of a table.
#[derive(Debug, Error)]
pub enum Problem {
    /// Fewer or more fields than the header.
    #[error("{found} fields, but the header has {expected}; is the file cut off?")]
    Fields {
        /// Fields of the line.
        found: usize,
        /// Fields of the header.
        expected: usize,
    },
    /// A field that is not what its column holds.
    #[error("`{column}` is `{found}`, not {expected}")]
    Field {
        /// The column.
        column: &'static str,
        /// The field, shortened.
        found: String,
        /// What the column holds.
        expected: &'static str,
    },
    /// Text in another encoding.
    #[error("not UTF-8")]
    Encoding,
    /// A row without an end.
    #[error("longer than {} KiB, or a quotation that does not end", LONGEST >> 10)]
    Long,
}

/// A field for a message.
pub(crate) fn shortened(field: &str) -> String {
    field.chars().take(40).collect()
}
