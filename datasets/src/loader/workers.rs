//! The threads of a loader, and when they all work.
//!
//! Training uses every processor. Threads that wake up for each batch get in its way, and for more than their own time:
//! a thread of the step waits until its processor is free again, and all others wait for it. So as long as one thread
//! keeps ahead of the consumer, it prepares batches alone.

use rayon::prelude::*;

use crate::DataError;

/// Batches after which one thread may try again to keep ahead.
const PATIENCE: u32 = 16;

/// How a loader keeps up with its consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Each batch is finished before the consumer has taken those before it.
    Ahead,
    /// It is not, or was not until `punctual` batches ago.
    Behind { punctual: u32 },
}

impl Pace {
    /// The pace at the beginning.
    pub const START: Self = Self::Behind { punctual: 0 };

    /// The pace after another batch; `punctual`: those before it still waited for the consumer when it was finished.
    pub fn after(self, punctual: bool) -> Self {
        match self {
            _ if !punctual => Self::START,
            Self::Ahead | Self::Behind { punctual: PATIENCE.. } => Self::Ahead,
            Self::Behind { punctual } => Self::Behind { punctual: punctual + 1 },
        }
    }
}

/// The threads of a loader.
pub(super) struct Workers(rayon::ThreadPool);

impl Workers {
    /// So many threads.
    pub fn new(threads: usize) -> Result<Self, DataError> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("loader-{i}"))
            .build()
            .map_err(|error| DataError::Config(format!("the loader's threads: {error}")))?;
        Ok(Self(pool))
    }

    /// `f` of each item, in their order: on this thread if the loader is ahead, else on all of them.
    pub fn map<I: Send, R: Send>(&self, pace: Pace, items: Vec<I>, f: impl Fn(I) -> R + Send + Sync) -> Vec<R> {
        match pace {
            Pace::Ahead => items.into_iter().map(f).collect(),
            Pace::Behind { .. } => self.0.install(|| items.into_par_iter().map(f).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_works_alone_once_it_has_kept_ahead_for_a_while() {
        let mut pace = Pace::START;
        for _ in 0..PATIENCE {
            pace = pace.after(true);
            assert_ne!(pace, Pace::Ahead);
        }
        pace = pace.after(true);
        assert_eq!(pace, Pace::Ahead);
        assert_eq!(pace.after(true), Pace::Ahead);
        assert_eq!(pace.after(false), Pace::START);
        assert_eq!(Pace::START.after(true).after(true).after(false), Pace::START, "in a row");
    }

    #[test]
    fn results_keep_the_order_of_the_items_at_any_pace() {
        let workers = Workers::new(3).unwrap();
        let caller = std::thread::current().id();
        for (pace, alone) in [(Pace::Ahead, true), (Pace::START, false)] {
            let found = workers.map(pace, (0..100).collect(), |i| (i * i, std::thread::current().id() == caller));
            assert_eq!(found, (0..100).map(|i| (i * i, alone)).collect::<Vec<_>>());
        }
    }
}
