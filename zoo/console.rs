//! Standard output, which contains only results.

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use serde::Serialize;
use std::io::{self, ErrorKind, Stdout, Write};

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Color {
    /// The choice for anstream.
    pub fn choice(self) -> anstream::ColorChoice {
        match self {
            Self::Auto => anstream::ColorChoice::Auto,
            Self::Always => anstream::ColorChoice::Always,
            Self::Never => anstream::ColorChoice::Never,
        }
    }
}

/// Style of headings.
pub const HEADING: Style = Style::new().bold();
/// Style of passes.
pub const GOOD: Style = AnsiColor::Green.on_default().bold();
/// Style of failures.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// Style of warnings.
pub const WARN: Style = AnsiColor::Yellow.on_default().bold();
/// Style of secondary text.
pub const DIM: Style = Style::new().dimmed();

/// Text in a style.
pub fn paint(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Standard output. A closed pipe (`| head`) is not an error: further output is dropped, and the verdict of the command
/// does not change.
pub struct Console {
    stdout: AutoStream<Stdout>,
    muted: bool,
}

impl Console {
    /// With or without colours.
    pub fn new(color: Color) -> Self {
        Self { stdout: AutoStream::new(io::stdout(), color.choice()), muted: false }
    }

    /// Suppresses all output, because another process prints the results.
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
