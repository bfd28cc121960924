//! Ranks started by `mpirun` or Slurm.
//!
//! MPI is initialised on the transfer thread and only used there (`MPI_THREAD_FUNNELED`). Transfers are non-blocking
//! and polled by this thread, so a waiting rank leaves the core to computation.

use crate::{
    Exchange, Ranks, RanksError, Stop,
    ring::{self, Neighbours},
};
use mpi::{
    Threading,
    collective::SystemOperation,
    environment::Universe,
    request::{Request, Scope, scope},
    topology::{Communicator, SimpleCommunicator},
    traits::{CommunicatorCollectives, Destination, Root, Source},
};
use std::{
    mem, thread,
    time::{Duration, Instant},
};

/// Connects to the processes that were started together.
pub(crate) fn connect() -> Result<Ranks, RanksError> {
    Ranks::start(|| {
        let initialised = mpi::initialize_with_threading(Threading::Funneled);
        let (universe, threading) = initialised.ok_or_else(|| RanksError::Mpi("is in use already".into()))?;
        if threading < Threading::Funneled {
            return Err(RanksError::Mpi("this library supports no threads (MPI_THREAD_FUNNELED)".into()));
        }
        let world = universe.world();
        let [rank, size] = [world.rank(), world.size()].map(|n| usize::try_from(n).unwrap_or(0));
        let room = vec![0.0; CACHED.div_ceil(size)];
        Ok((rank, size, World { world, rank, size, room, _universe: universe }))
    })
}

struct World {
    world: SimpleCommunicator,
    rank: usize,
    size: usize,
    /// Buffer for the values received from another rank, before they are added to this rank's.
    room: Vec<f32>,
    /// Dropping it finalises MPI.
    _universe: Universe,
}

/// Most bytes per broadcast: MPI's counts have 32 bits.
const PIECE: usize = 1 << 30;

/// Number of values that are averaged at a time: 4 MiB, which remain in the caches on their way through shared
/// memory. Measured: averaging 24 MiB at once takes twice as long as in such pieces.
const CACHED: usize = 1 << 20;

/// Number of values per part from which the ring is faster than MPI's algorithm for short vectors.
const WORTH_A_RING: usize = 1 << 12;

impl Exchange for World {
    fn mean(&mut self, parts: &mut [&mut [f32]], stop: &Stop) -> Result<(), RanksError> {
        // Short parts are sent together, because each transfer has a fixed overhead.
        let worth = WORTH_A_RING * self.size;
        let mut short: Vec<&mut f32> = Vec::new();
        for part in parts {
            match part.len() < worth {
                true => short.extend(part.iter_mut()),
                false => self.mean_in_a_ring(part, stop),
            }
        }
        let mut together: Vec<f32> = short.iter().map(|value| **value).collect();
        if together.len() >= worth {
            self.mean_in_a_ring(&mut together, stop);
        } else if !together.is_empty() {
            let own = together.clone();
            scope(|scope| {
                let sum = SystemOperation::sum();
                self.finish(self.world.immediate_all_reduce_into(scope, &own[..], &mut together[..], sum), stop);
            });
            let ranks = self.size as f32;
            together.iter_mut().for_each(|sum| *sum /= ranks);
        }
        short.into_iter().zip(together).for_each(|(value, mean)| *value = mean);
        Ok(())
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

/// Time for which a transfer is polled without pauses: the other ranks usually arrive at the same time.
const EAGER: Duration = Duration::from_millis(500);
/// Pause between polls after that: the other ranks are evaluating, or writing a checkpoint.
const PAUSE: Duration = Duration::from_micros(500);

impl World {
    /// Averages with a ring all-reduce. For two ranks, MPI's own non-blocking sum first sends everything in one
    /// direction and then in the other (Open MPI 4.1, libnbc); the ring takes 0.4 of its time.
    fn mean_in_a_ring(&mut self, values: &mut [f32], stop: &Stop) {
        let mut room = mem::take(&mut self.room);
        for piece in values.chunks_mut(CACHED) {
            ring::mean(piece, self.rank, self.size, &mut room, &mut Ring { world: self, stop });
        }
        self.room = room;
    }

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

/// The position of a rank in the ring.
struct Ring<'a> {
    world: &'a World,
    stop: &'a Stop,
}

impl Neighbours for Ring<'_> {
    fn pass(&mut self, sent: &[f32], received: &mut [f32]) {
        let Self { world: World { world, rank, size, .. }, stop } = self;
        let [next, previous] = [rank + 1, rank + size - 1].map(|n| world.process_at_rank((n % size) as i32));
        scope(|scope| {
            let receiving = previous.immediate_receive_into(scope, received);
            self.world.finish(next.immediate_send(scope, sent), stop);
            self.world.finish(receiving, stop);
        });
    }
}
