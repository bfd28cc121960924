//! The threads of a loader, and when they all work.
//!
//! Training uses every processor. Threads that wake up for each batch get in its way, and for more than their own time:
//! a thread of the step waits until its processor is free again, and all others wait for it. So as long as one thread
//! keeps ahead of the consumer, it prepares batches alone.

use std::time::Duration;

use rayon::prelude::*;

use crate::DataError;

/// Which threads prepare a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// One: it is faster than the consumer.
    Alone,
    /// All.
    All,
}

impl Pace {
    /// Those of `threads` for the next batch, if this one took so long to prepare, and the consumer so long to make
    /// room for it.
    pub fn next(self, threads: u32, busy: Duration, period: Duration) -> Self {
        let alone = match self {
            Self::Alone => busy,
            // Not less than that, unless threads hinder each other.
            Self::All => busy * threads,
        };
        // With a margin: without a pause before it, a batch takes almost its whole period.
        if alone * 10 < period * 9 { Self::Alone } else { Self::All }
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

    /// `f` of each item, in their order: on this thread, or on all of them.
    pub fn map<I: Send, R: Send>(&self, pace: Pace, items: Vec<I>, f: impl Fn(I) -> R + Send + Sync) -> Vec<R> {
        match pace {
            Pace::Alone => items.into_iter().map(f).collect(),
            Pace::All => self.0.install(|| items.into_par_iter().map(f).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_works_alone_where_it_is_faster_than_the_consumer() {
        let ms = Duration::from_millis;
        assert_eq!(Pace::All.next(4, ms(2), ms(8)), Pace::All, "alone it would take 8 ms");
        assert_eq!(Pace::All.next(4, ms(2), ms(9)), Pace::Alone);
        assert_eq!(Pace::Alone.next(4, ms(8), ms(9)), Pace::Alone);
        assert_eq!(Pace::Alone.next(4, ms(80), ms(81)), Pace::All, "the consumer has made no pause");
    }

    #[test]
    fn results_keep_the_order_of_the_items_at_any_pace() {
        let workers = Workers::new(3).unwrap();
        let caller = std::thread::current().id();
        for (pace, alone) in [(Pace::Alone, true), (Pace::All, false)] {
            let found = workers.map(pace, (0..100).collect(), |i| (i * i, std::thread::current().id() == caller));
            assert_eq!(found, (0..100).map(|i| (i * i, alone)).collect::<Vec<_>>());
        }
    }
}
