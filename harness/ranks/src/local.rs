//! Ranks as threads of one process, for tests.

use crate::{Exchange, Ranks, RanksError, Stop};
use std::{
    mem,
    sync::{Arc, Condvar, Mutex, PoisonError},
};

/// Creates ranks as threads of this process: move each to its own thread.
///
/// # Errors
/// If a thread cannot be started.
pub fn local(size: usize) -> Result<Vec<Ranks>, RanksError> {
    let table = Arc::new(Table::default());
    let member = |rank| {
        let table = Arc::clone(&table);
        Ranks::start(move || Ok((rank, size, Member { rank, size, round: 0, table })))
    };
    (0..size).map(member).collect()
}

/// The exchange area in which ranks deposit their values and wait for others.
#[derive(Default)]
struct Table {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    given: Vec<(usize, Parcel)>,
    /// Number of completed exchanges, and the result of the last one.
    rounds: u64,
    result: Vec<Parcel>,
    /// Whether a rank has ended.
    gone: bool,
}

#[derive(Clone, Debug)]
enum Parcel {
    Mean(Vec<f32>),
    Gather(Vec<f32>),
    Broadcast(Vec<u8>),
}

struct Member {
    rank: usize,
    size: usize,
    /// Number of exchanges in which it has taken part.
    round: u64,
    table: Arc<Table>,
}

impl Member {
    /// Deposits a parcel and returns those of all ranks, in the order of the ranks.
    fn swap(&mut self, parcel: Parcel) -> Result<Vec<Parcel>, RanksError> {
        let mut state = self.table.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.given.push((self.rank, parcel));
        if state.given.len() == self.size {
            let mut given = mem::take(&mut state.given);
            given.sort_by_key(|(rank, _)| *rank);
            state.result = given.into_iter().map(|(_, parcel)| parcel).collect();
            state.rounds += 1;
            self.table.changed.notify_all();
        }
        let round = self.round;
        let waits = |state: &mut State| state.rounds == round && !state.gone;
        let state = self.table.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        if state.rounds == round {
            return Err(RanksError::Gone);
        }
        self.round += 1;
        Ok(state.result.clone())
    }
}

impl Exchange for Member {
    fn mean(&mut self, parts: &mut [&mut [f32]], _stop: &Stop) -> Result<(), RanksError> {
        let own = parts.concat();
        let mut sum = vec![0.0; own.len()];
        for parcel in self.swap(Parcel::Mean(own))? {
            match parcel {
                Parcel::Mean(values) if values.len() == sum.len() => {
                    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
                }
                _ => return Err(apart("a mean")),
            }
        }
        let ranks = self.size as f32;
        parts.iter_mut().flat_map(|part| part.iter_mut()).zip(sum).for_each(|(mean, sum)| *mean = sum / ranks);
        Ok(())
    }

    fn gather(&mut self, values: Vec<f32>, _stop: &Stop) -> Result<Vec<f32>, RanksError> {
        let len = values.len();
        let parts = self.swap(Parcel::Gather(values))?.into_iter().map(|parcel| match parcel {
            Parcel::Gather(values) if values.len() == len => Ok(values),
            _ => Err(apart("a gathering")),
        });
        Ok(parts.collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn broadcast(&mut self, bytes: Vec<u8>, _stop: &Stop) -> Result<Vec<u8>, RanksError> {
        match self.swap(Parcel::Broadcast(bytes))?.into_iter().next() {
            Some(Parcel::Broadcast(bytes)) => Ok(bytes),
            _ => Err(apart("a broadcast")),
        }
    }

    fn abort(&mut self, _code: i32) {}
}

fn apart(what: &str) -> RanksError {
    RanksError::Apart(format!("the ranks do not all take part in {what} of the same length"))
}

impl Drop for Member {
    fn drop(&mut self) {
        self.table.state.lock().unwrap_or_else(PoisonError::into_inner).gone = true;
        self.table.changed.notify_all();
    }
}
