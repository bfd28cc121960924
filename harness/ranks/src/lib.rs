//! Ranks: processes that train one network together, each on its own part of every batch.
//!
//! [`Ranks`] knows the index of this rank and the number of ranks, and averages, gathers and broadcasts values.
//! [`Ranks::alone`] is for training in one process, and [`local`] creates ranks as threads. With the feature `mpi`, a
//! process that was started by `mpirun` gets its ranks from [`launched`].
//!
//! All transfers of a rank run on one thread, in the order of the calls; all ranks must make the same calls in the same
//! order. Transfers run while the rank computes, and MPI is called from a single thread only.
//!
//! ```
//! let ranks = zoo_ranks::local(2)?;
//! let means = std::thread::scope(|scope| {
//!     let threads: Vec<_> = ranks
//!         .into_iter()
//!         .map(|rank| scope.spawn(move || rank.mean(vec![vec![rank.rank() as f32]]).wait()))
//!         .collect();
//!     threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Result<Vec<_>, _>>()
//! })?;
//! assert_eq!(means, [[[0.5]], [[0.5]]]);
//! # Ok::<(), zoo_ranks::RanksError>(())
//! ```

mod launch;
mod local;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(any(test, feature = "mpi"))]
mod ring;

pub use launch::launched;
pub use local::local;

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI32, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use thiserror::Error;

/// Errors of communication between ranks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RanksError {
    /// Another rank has ended, or this rank's transfer thread.
    #[error("another rank has stopped, and the training cannot continue without it (see the messages of that rank)")]
    Gone,
    /// The ranks requested different transfers.
    #[error(
        "the ranks are not at the same step: {0} (do all of them have the same recipe and the same version of zoo?)"
    )]
    Apart(String),
    /// MPI cannot be used.
    #[error("MPI: {0}")]
    Mpi(String),
}

/// Communication with the other ranks. All ranks call the same methods in the same order.
trait Exchange {
    /// Replaces the values by their means over all ranks; the same bits on every rank.
    fn mean(&mut self, parts: &mut [&mut [f32]], stop: &Stop) -> Result<(), RanksError>;

    /// The values of all ranks, concatenated by rank.
    fn gather(&mut self, values: Vec<f32>, stop: &Stop) -> Result<Vec<f32>, RanksError>;

    /// The bytes of the first rank.
    fn broadcast(&mut self, bytes: Vec<u8>, stop: &Stop) -> Result<Vec<u8>, RanksError>;

    /// Ends all ranks, if possible.
    fn abort(&mut self, code: i32);
}

/// A rank: one of several that train together, or the only one.
#[derive(Clone, Debug)]
pub struct Ranks {
    rank: usize,
    size: usize,
    /// `None` if there are no other ranks.
    worker: Option<Arc<Worker>>,
}

impl Ranks {
    /// A rank without others.
    #[must_use]
    pub fn alone() -> Self {
        Self { rank: 0, size: 1, worker: None }
    }

    /// Starts the transfer thread. `connect` runs on it and returns rank, number of ranks, and the connection.
    fn start<E: Exchange + 'static>(
        connect: impl FnOnce() -> Result<(usize, usize, E), RanksError> + Send + 'static,
    ) -> Result<Self, RanksError> {
        let (requests, todo) = channel();
        let (connected, identity) = channel();
        let stop = Stop::default();
        let seen = stop.clone();
        let work = move || match connect() {
            Ok((rank, size, exchange)) => {
                let _ = connected.send(Ok((rank, size)));
                serve(exchange, &todo, &seen);
            }
            Err(error) => {
                let _ = connected.send(Err(error));
            }
        };
        let thread = thread::Builder::new().name("ranks".into()).spawn(work);
        let thread = thread.map_err(|error| RanksError::Mpi(format!("no thread for the transfers: {error}")))?;
        let (rank, size) = identity.recv().map_err(|_| RanksError::Gone)??;
        let worker = Worker { requests: Some(requests), thread: Some(thread), stop };
        Ok(Self { rank, size, worker: Some(Arc::new(worker)) })
    }

    /// The index of this rank, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether this is the first rank, which alone writes files and messages.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// Starts to average values over all ranks, which must pass the same number of values and parts. The buffers are
    /// moved, not copied.
    pub fn mean<V: AsMut<[f32]> + Send + 'static>(&self, mut parts: Vec<V>) -> Pending<V> {
        let Some(worker) = &self.worker else { return Pending::Done(parts) };
        Pending::Coming(Mutex::new(worker.ask(move |exchange, stop| {
            let mut values: Vec<&mut [f32]> = parts.iter_mut().map(AsMut::as_mut).collect();
            exchange.mean(&mut values, stop)?;
            Ok(parts)
        })))
    }

    /// The values of all ranks, concatenated by rank; all ranks must pass the same number of values.
    ///
    /// # Errors
    /// [`RanksError::Gone`], [`RanksError::Apart`].
    pub fn gather(&self, values: Vec<f32>) -> Result<Vec<f32>, RanksError> {
        let Some(worker) = &self.worker else { return Ok(values) };
        arrived(&worker.ask(move |exchange, stop| exchange.gather(values, stop)))
    }

    /// The bytes of the first rank; those of others are ignored.
    ///
    /// # Errors
    /// [`RanksError::Gone`], [`RanksError::Apart`].
    pub fn broadcast(&self, bytes: Vec<u8>) -> Result<Vec<u8>, RanksError> {
        let Some(worker) = &self.worker else { return Ok(bytes) };
        arrived(&worker.ask(move |exchange, stop| exchange.broadcast(bytes, stop)))
    }

    /// Whether the flag is set on any rank.
    ///
    /// # Errors
    /// [`RanksError::Gone`], [`RanksError::Apart`].
    pub fn any(&self, here: bool) -> Result<bool, RanksError> {
        Ok(self.mean(vec![[f32::from(u8::from(here))]]).wait()?.iter().any(|[share]| *share > 0.0))
    }

    /// Returns once all ranks have called it.
    ///
    /// # Errors
    /// [`RanksError::Gone`], [`RanksError::Apart`].
    pub fn meet(&self) -> Result<(), RanksError> {
        self.any(false).map(|_| ())
    }

    /// Ends all ranks, including this one, with an exit code. Returns if this is the only rank or if ending the
    /// others takes too long; the caller should then exit.
    pub fn abort(&self, code: i32) {
        let Some(worker) = &self.worker else { return };
        worker.abort(code);
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE && worker.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// How long an abort may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The result of a transfer that may still be running.
#[derive(Debug)]
#[must_use]
pub enum Pending<V> {
    /// The result.
    Done(Vec<V>),
    /// The receiver of the result, in a mutex so that the struct can be shared between threads.
    Coming(Mutex<Answer<Vec<V>>>),
}

impl<V> Pending<V> {
    /// Waits for the result.
    ///
    /// # Errors
    /// [`RanksError::Gone`], [`RanksError::Apart`].
    pub fn wait(self) -> Result<Vec<V>, RanksError> {
        match self {
            Self::Done(parts) => Ok(parts),
            Self::Coming(answer) => arrived(&answer.into_inner().map_err(|_| RanksError::Gone)?),
        }
    }
}

/// The receiver of an answer.
type Answer<T> = Receiver<Result<T, RanksError>>;

/// Waits for an answer.
fn arrived<T>(answer: &Answer<T>) -> Result<T, RanksError> {
    answer.recv().map_err(|_| RanksError::Gone)?
}

/// Requests to the transfer thread.
type Request = Box<dyn FnOnce(&mut dyn Exchange, &Stop) + Send>;

/// The exit code with which all ranks are to end, if they are.
#[derive(Clone, Debug)]
struct Stop(Arc<AtomicI32>);

/// A value that is not an exit code: the ranks continue.
const GOING: i32 = i32::MIN;

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(AtomicI32::new(GOING)))
    }
}

impl Stop {
    fn code(&self) -> Option<i32> {
        Some(self.0.load(Ordering::SeqCst)).filter(|code| *code != GOING)
    }
}

/// The transfer thread.
struct Worker {
    /// `None` while the thread ends.
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
    stop: Stop,
}

impl Worker {
    fn send(&self, request: Request) {
        // If the thread has ended, the sender of the answer is dropped with the request, and the receiver gets an
        // error.
        let _ = self.requests.as_ref().map(|requests| requests.send(request));
    }

    fn ask<T: Send + 'static>(
        &self,
        transfer: impl FnOnce(&mut dyn Exchange, &Stop) -> Result<T, RanksError> + Send + 'static,
    ) -> Answer<T> {
        let (answer, received) = channel();
        // If the caller has dropped the receiver, it does not need the answer.
        self.send(Box::new(move |exchange, stop| drop(answer.send(transfer(exchange, stop)))));
        received
    }

    fn abort(&self, code: i32) {
        self.stop.0.store(code, Ordering::SeqCst);
        // Wakes the thread, which reads the code before it serves a request.
        self.send(Box::new(|_, _| ()));
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if thread::panicking() {
            // Otherwise the other ranks would wait forever.
            self.abort(PANICKED);
        }
        drop(self.requests.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Exit code of all ranks after one has panicked: an internal error.
const PANICKED: i32 = 70;

/// Serves requests until all senders are dropped.
fn serve(mut exchange: impl Exchange, todo: &Receiver<Request>, stop: &Stop) {
    for request in todo {
        if let Some(code) = stop.code() {
            exchange.abort(code);
            return;
        }
        request(&mut exchange, stop);
    }
}

#[cfg(test)]
mod tests;
