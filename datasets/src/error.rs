//! Errors of data, always with the path (or generated sample) and the reason.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use crate::image::DecodeError;
use zoo_settings::OnError;

/// A data set that is missing, malformed or unreadable. The kinds are what a caller does about them.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// An image file that cannot be decoded.
    #[error("{name}: {source}")]
    Decode {
        /// Path of the file.
        name: String,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// No data at their place, or nothing there that is known.
    #[error("{}: {reason}", path.display())]
    Absent {
        /// File or folder.
        path: PathBuf,
        /// What is there, and what is expected.
        reason: String,
    },
    /// Data that are not at their place, with advice.
    #[error(
        "{error}.{}{}",
        if *named { "" } else { " Use --data PATH for another place." },
        from.as_ref().map_or_else(String::new, |from| format!(" Download: {from}"))
    )]
    Unavailable {
        /// What is missing.
        error: Box<DataError>,
        /// Whether the command line named the place.
        named: bool,
        /// Where the data can be downloaded.
        from: Option<String>,
    },
    /// One entry of a data set that cannot be used: the others can.
    #[error("{place}: {reason}")]
    Unusable {
        /// File, sample, or entry of a list.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Data that are damaged, that contradict each other, or that are too few.
    #[error("{place}: {reason}")]
    Malformed {
        /// File, line or sample.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// More than one file for one purpose.
    #[error("several fit {wanted}: {}. Keep one of them", found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "))]
    Ambiguous {
        /// The purpose.
        wanted: String,
        /// The files.
        found: Vec<PathBuf>,
    },
    /// A configuration that makes no sense.
    #[error("data configuration: {0}")]
    Config(String),
    /// Too many samples in a row could not be read.
    #[error("no readable sample found after {attempts} attempts; the last error was: {last}")]
    NothingReadable {
        /// Number of samples tried.
        attempts: usize,
        /// What was wrong with the last one.
        last: Box<DataError>,
    },
}

impl DataError {
    /// Gives the operating system's reasons their path.
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Self + Copy + '_ {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    /// As [`DataError::io`], for what is wrong with an image file.
    pub(crate) fn decode(path: &Path) -> impl Fn(DecodeError) -> Self + '_ {
        move |source| Self::Decode { name: path.display().to_string(), source }
    }

    pub(crate) fn unusable(place: impl Display, reason: impl Into<String>) -> Self {
        Self::Unusable { place: place.to_string(), reason: reason.into() }
    }

    pub(crate) fn malformed(place: impl Display, reason: impl Into<String>) -> Self {
        Self::Malformed { place: place.to_string(), reason: reason.into() }
    }

    /// A line of a file, counted from one.
    pub(crate) fn line(path: &Path, line: usize, reason: impl Into<String>) -> Self {
        Self::malformed(format_args!("{}:{line}", path.display()), reason)
    }

    /// Nothing, or something of another kind, in place of data.
    pub(crate) fn absent(path: &Path, expected: &str) -> Self {
        let packed = path.extension().and_then(OsStr::to_str);
        let instead = match packed.map(str::to_ascii_lowercase).as_deref() {
            _ if !path.exists() => "not found",
            Some("zip" | "tar" | "gz" | "tgz" | "bz2" | "xz") => "an archive, not a folder: unpack it first",
            _ => "not a folder",
        };
        Self::Absent { path: path.to_owned(), reason: format!("{instead}. Expected {expected}") }
    }

    /// A folder without images, or all of whose images were left out.
    pub(crate) fn empty(path: &Path, skipped: usize) -> Self {
        if skipped == 0 {
            let reason = "no usable image (.png, .jpg, .jpeg)".to_owned();
            return Self::Absent { path: path.to_owned(), reason };
        }
        let entries = if skipped == 1 { "entry" } else { "entries" };
        let reason = format!(
            "no image is left, because {skipped} {entries} cannot be used. Each is named in a warning; with \
             data.on_error=fail the first is the error"
        );
        Self::malformed(path.display(), reason)
    }

    /// Whether [`OnError::Skip`] would leave the entry out: it is damaged, but the others can be used.
    pub fn can_be_left_out(&self) -> bool {
        matches!(self, Self::Unusable { .. } | Self::Decode { .. })
    }

    /// Adds to the error that data are not at their place that another place can be named, unless the place was
    /// `named` already, and where to download them. Other errors stay as they are.
    #[must_use]
    pub fn advised(self, named: bool, from: Option<String>) -> Self {
        let not_found = matches!(&self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound);
        let absent = matches!(&self, Self::Absent { .. });
        if not_found || absent { Self::Unavailable { error: Box::new(self), named, from } } else { self }
    }

    /// Reports an entry that cannot be used as `on_error` demands: as an error, or as a warning that counts it.
    ///
    /// # Errors
    /// The error itself, with [`OnError::Fail`].
    pub(crate) fn leave_out(self, on_error: OnError, skipped: &mut usize) -> Result<(), Self> {
        match on_error {
            OnError::Fail => Err(self),
            OnError::Skip => {
                tracing::warn!("left out: {self}");
                *skipped += 1;
                Ok(())
            }
        }
    }
}
