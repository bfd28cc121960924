//! Ctrl-C: the first one makes the training write a checkpoint and stop, the second one ends the process at once.

use crate::Exit;
use crate::progress::Progress;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::warn;

/// Handles Ctrl-C and SIGTERM.
pub struct Interrupt {
    /// Whether there is a computation that can stop by itself.
    armed: Arc<AtomicBool>,
    requested: Arc<AtomicBool>,
}

impl Interrupt {
    /// Installs the handler. Until [`Interrupt::arm`], Ctrl-C ends the process.
    pub fn install(progress: &Progress) -> Self {
        let (armed, requested) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let interrupt = Self { armed: armed.clone(), requested: requested.clone() };
        let progress = progress.clone();
        let handler = move || {
            if !armed.load(Ordering::SeqCst) || requested.swap(true, Ordering::SeqCst) {
                std::process::exit(Exit::Interrupted as i32);
            }
            progress.line("stopping after this step and writing a checkpoint; press Ctrl-C again to stop at once");
        };
        if let Err(error) = ctrlc::set_handler(handler) {
            warn!("Ctrl-C will not write a checkpoint: {error}");
        }
        interrupt
    }

    /// From now on, the first Ctrl-C only sets the returned flag.
    pub fn arm(&self) -> &AtomicBool {
        self.armed.store(true, Ordering::SeqCst);
        &self.requested
    }
}
