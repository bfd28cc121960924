//! Stdout: results, and nothing else.

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use serde::Serialize;
use std::io::{self, ErrorKind, Stdout, Write};

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR says otherwise.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Color {
    /// As anstream calls it.
    pub fn choice(self) -> anstream::ColorChoice {
        match self {
            Self::Auto => anstream::ColorChoice::Auto,
            Self::Always => anstream::ColorChoice::Always,
            Self::Never => anstream::ColorChoice::Never,
        }
    }
}

/// What headings look like.
pub const HEADING: Style = Style::new().bold();
/// What has passed.
pub const GOOD: Style = AnsiColor::Green.on_default().bold();
/// What has failed.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// What deserves a look.
pub const WARN: Style = AnsiColor::Yellow.on_default().bold();
/// What matters less.
pub const DIM: Style = Style::new().dimmed();

/// Text in a style.
pub fn paint(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Stdout. A reader that goes away (`| head`) is not an error: what it would have read is dropped, and the command's
/// verdict stays what it is.
pub struct Console {
    stdout: AutoStream<Stdout>,
    muted: bool,
}

impl Console {
    /// With or without colours.
    pub fn new(color: Color) -> Self {
        Self { stdout: AutoStream::new(io::stdout(), color.choice()), muted: false }
    }

    /// Writes nothing any more: another process gives the results.
    pub fn mute(&mut self) {
        self.muted = true;
    }

    /// Writes a value as one line of JSON.
    ///
    /// # Errors
    /// Stdout cannot be written.
    pub fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string(value)?;
        writeln!(self, "{text}")
    }
}

impl Write for Console {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.muted {
            return Ok(bytes.len());
        }
        match self.stdout.write(bytes) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(bytes.len()),
            other => other,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.stdout.flush() {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }
}
