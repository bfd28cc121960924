//! Standard error: messages and progress bars, without interleaving.

use crate::console::{BAD, Color, DIM, WARN, paint};
use crate::options::Global;
use anstream::AutoStream;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tracing::{Event, Level, Subscriber, field::Field, level_filters::LevelFilter};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter, format::Writer};
use tracing_subscriber::registry::LookupSpan;

/// Writes messages and shows progress bars.
#[derive(Clone)]
pub struct Progress {
    bars: MultiProgress,
    color: Color,
    /// The index of this process; all except the first are muted and only print errors.
    rank: Arc<AtomicUsize>,
}

impl Progress {
    /// Sets up messages (`tracing`) and progress according to the command line.
    pub fn new(global: &Global) -> Self {
        let visible = !global.quiet && io::stderr().is_terminal();
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let progress =
            Self { bars: MultiProgress::with_draw_target(target), color: global.color, rank: Arc::default() };
        let level = match (global.quiet, global.verbose) {
            (true, _) => LevelFilter::WARN,
            (false, 0) => LevelFilter::INFO,
            (false, 1) => LevelFilter::DEBUG,
            (false, _) => LevelFilter::TRACE,
        };
        let subscriber =
            tracing_subscriber::fmt().with_max_level(level).event_format(Plain).with_writer(progress.clone());
        // This fails only if the process already has a subscriber from an earlier command, which does the same.
        let _ = subscriber.try_init();
        progress
    }

    /// Suppresses all output except errors, which are prefixed with this rank: another process prints for all.
    pub fn mute(&self, rank: usize) {
        self.rank.store(rank, Ordering::Relaxed);
        self.bars.set_draw_target(ProgressDrawTarget::hidden());
    }

    /// A line with the current activity and its duration; removed on drop.
    pub fn spinner(&self) -> Bar {
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed:.dim}");
        let bar =
            self.bars.add(ProgressBar::new_spinner().with_style(style.unwrap_or(ProgressStyle::default_spinner())));
        bar.enable_steady_tick(Duration::from_millis(120));
        Bar(bar)
    }

    /// A bar over `length` steps; removed on drop.
    pub fn bar(&self, length: u64) -> Bar {
        let style = ProgressStyle::with_template("{wide_bar:.cyan/blue} {pos}/{len}  {msg}  {eta:.dim} left");
        Bar(self.bars.add(ProgressBar::new(length).with_style(style.unwrap_or(ProgressStyle::default_bar()))))
    }

    /// A progress bar that is updated with the current and the total count; removed on drop.
    pub fn counted(&self, what: &str) -> impl FnMut(usize, usize) + use<> {
        let bar = self.bar(0);
        bar.message(what);
        move |done, of| {
            bar.0.set_length(of as u64);
            bar.position(done as u64);
        }
    }

    /// A bar over about `length` phases; removed on drop.
    pub fn phases(&self, length: usize) -> Phases {
        let style = ProgressStyle::with_template("{spinner} {bar:20.cyan/blue} {msg} {elapsed:.dim}, {eta:.dim} left");
        let bar = ProgressBar::new(length as u64).with_style(style.unwrap_or(ProgressStyle::default_bar()));
        let bar = self.bars.add(bar);
        bar.enable_steady_tick(Duration::from_millis(120));
        Phases { bar: Bar(bar), begun: false }
    }

    /// A bar over about `length` phases of `whom`, moved by the name of each as it begins; removed on drop.
    pub fn named(&self, length: usize, whom: &str) -> impl FnMut(&str) + use<> {
        let mut phases = self.phases(length);
        let whom = whom.to_owned();
        move |what| phases.next(format!("{whom}: {what}"))
    }

    /// A progress bar for a sequence of phases of `whom`; removed on drop.
    pub fn foreseen(&self, whom: &str) -> impl FnMut(&str, usize) + use<> {
        let mut phases = self.phases(1);
        let whom = whom.to_owned();
        move |what, more| {
            phases.next(format!("{whom}: {what}"));
            phases.expect(more);
        }
    }

    /// Writes a line above the bars.
    pub fn line(&self, text: &str) {
        if self.rank.load(Ordering::Relaxed) == 0 {
            self.write(text);
        }
    }

    fn write(&self, text: &str) {
        self.bars.suspend(|| {
            let mut stderr = AutoStream::new(io::stderr(), self.color.choice()).lock();
            // There is no other place to report an error.
            let _ = writeln!(stderr, "{text}");
        });
    }

    /// Writes an error.
    pub fn error(&self, text: &str) {
        let error = paint(BAD, "error");
        match self.rank.load(Ordering::Relaxed) {
            0 => self.write(&format!("{error}: {text}")),
            rank => self.write(&format!("rank {rank}: {error}: {text}")),
        }
    }
}

/// A progress bar; removed on drop.
pub struct Bar(ProgressBar);

impl Bar {
    /// Shows the current activity.
    pub fn message(&self, text: impl Into<String>) {
        self.0.set_message(text.into());
    }

    /// Advances by one.
    pub fn advance(&self) {
        self.0.inc(1);
    }

    /// Advances to a position.
    pub fn position(&self, position: u64) {
        self.0.set_position(position);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A bar over consecutive phases.
pub struct Phases {
    bar: Bar,
    begun: bool,
}

impl Phases {
    /// Ends the previous phase and begins the next.
    pub fn next(&mut self, what: impl Into<String>) {
        if self.begun {
            self.bar.advance();
        }
        self.begun = true;
        if self.bar.0.length().is_some_and(|length| self.bar.0.position() >= length) {
            self.bar.0.inc_length(1);
        }
        self.bar.message(what);
    }

    /// The expected number of following phases.
    pub fn expect(&self, more: usize) {
        self.bar.0.set_length(self.bar.0.position() + 1 + more as u64);
    }
}

/// Collects one complete message of `tracing`.
pub struct Line {
    progress: Progress,
    text: Vec<u8>,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.text);
        self.progress.line(text.trim_end());
    }
}

impl MakeWriter<'_> for Progress {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line { progress: self.clone(), text: Vec::new() }
    }
}

/// The format of messages: `warning: message name=value`; no prefix for information.
struct Plain;

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static> FormatEvent<S, N> for Plain {
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        match *event.metadata().level() {
            Level::ERROR => write!(writer, "{}: ", paint(BAD, "error"))?,
            Level::WARN => write!(writer, "{}: ", paint(WARN, "warning"))?,
            Level::INFO => {}
            Level::DEBUG | Level::TRACE => write!(writer, "{} ", paint(DIM, event.metadata().target()))?,
        }
        let mut fields = Fields { writer, result: Ok(()) };
        event.record(&mut fields);
        fields.result?;
        writeln!(fields.writer)
    }
}

/// Writes the message unchanged, and the other fields of an event as ` name=value`.
struct Fields<'w> {
    writer: Writer<'w>,
    result: fmt::Result,
}

impl tracing::field::Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = match field.name() {
            "message" => write!(self.writer, "{value:?}"),
            name => write!(self.writer, " {name}={value:?}"),
        };
        self.result = self.result.and(written);
    }
}
