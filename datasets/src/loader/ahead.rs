//! Prefetching on another thread, in order.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::LoaderConfig;
use super::workers::Pace;
use crate::DataError;

/// The results of numbered jobs, in order. Dropping it stops the work.
pub struct Ahead<T> {
    receiver: Option<Receiver<Result<T, DataError>>>,
    worker: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    remaining: usize,
}

impl<T: Send + 'static> Ahead<T> {
    /// Runs the jobs `numbers` one after the other; up to `config.prefetch` results wait for the consumer. `make` should
    /// stop soon after its last argument is set; its result is then ignored.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn start(
        numbers: Range<usize>,
        config: LoaderConfig,
        mut make: impl FnMut(usize, Pace, &AtomicBool) -> Result<T, DataError> + Send + 'static,
    ) -> Result<Self, DataError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = sync_channel(config.prefetch);
        let threads = u32::try_from(config.threads).unwrap_or(u32::MAX);
        let remaining = numbers.len();
        let worker = thread::Builder::new()
            .name("loader".into())
            .spawn({
                let stop = Arc::clone(&stop);
                move || {
                    let (mut pace, mut before) = (Pace::All, Instant::now());
                    for number in numbers {
                        let start = Instant::now();
                        let result = make(number, pace, &stop);
                        let busy = start.elapsed();
                        let failed = result.is_err();
                        // A closed channel: the consumer is gone.
                        if stop.load(Ordering::Relaxed) || sender.send(result).is_err() || failed {
                            return;
                        }
                        let now = Instant::now();
                        pace = pace.next(threads, busy, now - before);
                        before = now;
                    }
                }
            })
            .map_err(|error| DataError::Config(format!("the loader's thread: {error}")))?;
        Ok(Self { receiver: Some(receiver), worker: Some(worker), stop, remaining })
    }
}

impl<T> Iterator for Ahead<T> {
    type Item = Result<T, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.remaining == 0 {
            return None;
        }
        match self.receiver.as_ref()?.recv() {
            Ok(result) => {
                // After an error nothing follows.
                self.remaining = if result.is_ok() { self.remaining - 1 } else { 0 };
                Some(result)
            }
            Err(_) => {
                self.remaining = 0;
                Some(Err(DataError::Config("the loader's thread ended early".into())))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.remaining))
    }
}

impl<T> Drop for Ahead<T> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A thread that waits for room in the channel gives up once the receiver is gone.
        drop(self.receiver.take());
        if let Some(worker) = self.worker.take() {
            // A panic of the worker was reported by `next`.
            let _ = worker.join();
        }
    }
}
