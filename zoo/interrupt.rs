//! Ctrl-C: the first one makes a computation stop by itself, the second one ends the process at once.

use crate::Exit;
use crate::progress::Progress;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::warn;

/// How a computation stops by itself.
#[derive(Clone, Copy, Debug)]
pub enum Stopping {
    /// A training: it can be resumed.
    Training,
    /// An evaluation or a generation of text, which cannot be resumed.
    Evaluation,
}

impl Stopping {
    fn describe(self) -> &'static str {
        match self {
            Self::Training => "stopping after this step and writing a checkpoint",
            Self::Evaluation => "stopping after this batch",
        }
    }
}

/// Handles Ctrl-C and SIGTERM.
pub struct Interrupt {
    /// Whether there is a computation that can stop by itself.
    armed: Arc<AtomicBool>,
    requested: Arc<AtomicBool>,
}

impl Interrupt {
    /// Installs the handler. Until [`Interrupt::arm`], Ctrl-C ends the process; then the first one prints what happens
    /// next (`stopping`).
    pub fn install(progress: &Progress, stopping: Stopping) -> Self {
        let (armed, requested) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let interrupt = Self { armed: armed.clone(), requested: requested.clone() };
        let progress = progress.clone();
        let handler = move || {
            if !armed.load(Ordering::SeqCst) || requested.swap(true, Ordering::SeqCst) {
                std::process::exit(Exit::Interrupted as i32);
            }
            progress.line(&format!("{}; press Ctrl-C again to stop at once", stopping.describe()));
        };
        if let Err(error) = ctrlc::set_handler(handler) {
            warn!("Ctrl-C will end the process at once: {error}");
        }
        interrupt
    }

    /// From now on, the first Ctrl-C only sets the returned flag.
    pub fn arm(&self) -> &AtomicBool {
        self.armed.store(true, Ordering::SeqCst);
        &self.requested
    }

    /// From now on, Ctrl-C ends the process again.
    pub fn disarm(&self) {
        self.armed.store(false, Ordering::SeqCst);
    }

    /// Whether Ctrl-C was pressed.
    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::SeqCst)
    }
}
