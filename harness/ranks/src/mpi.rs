//! Ranks that `mpirun` or Slurm has started.
//!
//! MPI is initialised on the thread of the transfers and used there alone (`MPI_THREAD_FUNNELED`). Transfers are
//! non-blocking ones that this thread tests for: a rank that waits leaves the core to those that compute.

use crate::{Exchange, Ranks, RanksError, Stop, pool::Pool};
use mpi::{
    Threading,
    collective::SystemOperation,
    environment::Universe,
    request::{Request, Scope, scope},
    topology::{Communicator, SimpleCommunicator},
    traits::{CommunicatorCollectives, Root},
};
use std::{
    thread,
    time::{Duration, Instant},
};

/// Joins the processes that were started together.
pub(crate) fn connect() -> Result<Ranks, RanksError> {
    Ranks::start(|| {
        let initialised = mpi::initialize_with_threading(Threading::Funneled);
        let (universe, threading) = initialised.ok_or_else(|| RanksError::Mpi("is in use already".into()))?;
        if threading < Threading::Funneled {
            return Err(RanksError::Mpi("this library supports no threads (MPI_THREAD_FUNNELED)".into()));
        }
        let world = universe.world();
        let [rank, size] = [world.rank(), world.size()].map(|n| usize::try_from(n).unwrap_or(0));
        Ok((rank, size, World { world, size, _universe: universe }))
    })
}

struct World {
    world: SimpleCommunicator,
    size: usize,
    /// Dropping it finalises MPI.
    _universe: Universe,
}

/// Most bytes of one broadcast: MPI counts in 32 bits.
const PIECE: usize = 1 << 30;

/// Values that are summed at a time: 4 MiB, which stay in the caches on their way through shared memory. Measured: 24 MiB
/// take twice as long at once as in such pieces.
const CACHED: usize = 1 << 20;

impl Exchange for World {
    fn sum(&mut self, values: Vec<f32>, pool: &Pool, stop: &Stop) -> Result<Vec<f32>, RanksError> {
        let mut sums = pool.take(values.len());
        sums.resize(values.len(), 0.0);
        for (values, sums) in values.chunks(CACHED).zip(sums.chunks_mut(CACHED)) {
            scope(|scope| {
                let sum = SystemOperation::sum();
                self.finish(self.world.immediate_all_reduce_into(scope, values, sums, sum), stop);
            });
        }
        pool.give(values);
        Ok(sums)
    }

    fn gather(&mut self, values: Vec<f32>, stop: &Stop) -> Result<Vec<f32>, RanksError> {
        let mut all = vec![0.0; values.len() * self.size];
        scope(|scope| self.finish(self.world.immediate_all_gather_into(scope, &values[..], &mut all[..]), stop));
        Ok(all)
    }

    fn broadcast(&mut self, mut bytes: Vec<u8>, stop: &Stop) -> Result<Vec<u8>, RanksError> {
        let first = self.world.process_at_rank(0);
        let mut len = bytes.len() as u64;
        scope(|scope| self.finish(first.immediate_broadcast_into(scope, &mut len), stop));
        let len = usize::try_from(len).map_err(|_| RanksError::Mpi(format!("a broadcast of {len} bytes")))?;
        bytes.resize(len, 0);
        for piece in bytes.chunks_mut(PIECE) {
            scope(|scope| self.finish(first.immediate_broadcast_into(scope, piece), stop));
        }
        Ok(bytes)
    }

    fn abort(&mut self, code: i32) {
        self.world.abort(code)
    }
}

/// How long a transfer is tested for without a pause: the others usually come at the same time.
const EAGER: Duration = Duration::from_millis(500);
/// Pause between tests after that: the others evaluate, or write a checkpoint.
const PAUSE: Duration = Duration::from_micros(500);

impl World {
    /// Waits for a transfer.
    fn finish<'a, D: ?Sized, S: Scope<'a>>(&self, mut request: Request<'a, D, S>, stop: &Stop) {
        let begun = Instant::now();
        while let Err(unfinished) = request.test() {
            request = unfinished;
            if let Some(code) = stop.code() {
                self.world.abort(code);
            }
            if begun.elapsed() < EAGER {
                thread::yield_now();
            } else {
                thread::sleep(PAUSE);
            }
        }
    }
}
