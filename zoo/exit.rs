//! Exit codes.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Success; all judgements passed.
    Pass = 0,
    /// A golden or a target was missed, a recorded step differs or is not complete, or results are not finite.
    Missed = 1,
    /// The command line or a recipe is wrong.
    Invalid = 2,
    /// Data or goldens are missing or unreadable.
    Missing = 3,
    /// A defect of this program (sysexits.h: EX_SOFTWARE).
    Internal = 70,
    /// The operating system failed to write, for example to a full disk (sysexits.h: EX_IOERR).
    Refused = 74,
    /// Stopped by Ctrl-C (128 + SIGINT).
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
