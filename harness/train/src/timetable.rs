//! Steps, epochs, and the actions due after each step.

use zoo_recipe::schema::{Length, Period, Train};

/// The division of a training. All counts are steps done since its start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timetable {
    length: Length,
    evaluation: Period,
    checkpoint: Period,
}

/// The position of a training in its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Complete passes through the training set.
    pub epoch: u64,
    /// Batches done in the current pass.
    pub batch: u64,
}

impl Timetable {
    /// The division of a training with `steps_per_epoch` batches per epoch (at least one).
    pub fn new(train: &Train, steps_per_epoch: usize) -> Self {
        Self { length: train.length(steps_per_epoch), evaluation: train.eval_every, checkpoint: train.checkpoint_every }
    }

    /// Batches per pass through the training set.
    pub fn steps_per_epoch(&self) -> u64 {
        self.length.steps_per_epoch() as u64
    }

    /// Its length.
    pub fn length(&self) -> Length {
        self.length
    }

    /// Passes through the training set; the last one may end early.
    pub fn epochs(&self) -> u64 {
        self.steps().div_ceil(self.steps_per_epoch())
    }

    /// Steps of the whole training.
    pub fn steps(&self) -> u64 {
        self.length.steps() as u64
    }

    /// Position of the batch for step number `done` (from 0).
    pub fn position(&self, done: u64) -> Position {
        Position { epoch: done / self.steps_per_epoch(), batch: done % self.steps_per_epoch() }
    }

    /// Passes done, with fraction.
    pub fn epoch(&self, done: u64) -> f64 {
        done as f64 / self.steps_per_epoch() as f64
    }

    /// Whether the held-out set is evaluated after `done` steps.
    pub fn evaluates(&self, done: u64) -> bool {
        done == self.steps() || self.due(self.evaluation, done)
    }

    /// Whether a checkpoint is written after `done` steps.
    pub fn checkpoints(&self, done: u64) -> bool {
        done == self.steps() || self.due(self.checkpoint, done)
    }

    /// Whether a multiple of `period`, rounded to whole steps, ends after `done` steps. Rounding errors do not
    /// accumulate: a period of a third of an epoch also ends at the end of each epoch. A period of zero never ends,
    /// and one shorter than a step ends after every step.
    fn due(&self, period: Period, done: u64) -> bool {
        let length = match period {
            Period::Epochs(epochs) => epochs * self.steps_per_epoch() as f64,
            Period::Steps(steps) => steps as f64,
        };
        if done == 0 || length <= 0.0 {
            return false;
        }
        if length <= 1.0 {
            return true;
        }
        let multiple = (done as f64 / length).round();
        (multiple * length).round() as u64 == done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(epochs: usize, steps_per_epoch: usize, eval_every: Period) -> Timetable {
        let checkpoint_every = Period::Steps(0);
        let train = Train {
            batch: 1,
            epochs,
            max_steps: None,
            seed: 0,
            whiten: None,
            lookahead: None,
            parts: Vec::new(),
            ema: None,
            ema_warmup: false,
            sync_bn: false,
            init_from: None,
            eval_every,
            checkpoint_every,
        };
        Timetable::new(&train, steps_per_epoch)
    }

    fn evaluations(table: &Timetable) -> Vec<u64> {
        (0..=table.steps()).filter(|&done| table.evaluates(done)).collect()
    }

    #[test]
    fn periods_by_hand() {
        assert_eq!(evaluations(&table(3, 10, Period::Epochs(1.0))), [10, 20, 30]);
        assert_eq!(evaluations(&table(1, 10, Period::Epochs(1.0 / 3.0))), [3, 7, 10]);
        assert_eq!(evaluations(&table(2, 5, Period::Epochs(1.5))), [8, 10]);
        assert_eq!(evaluations(&table(1, 10, Period::Steps(4))), [4, 8, 10]);
        assert_eq!(evaluations(&table(2, 3, Period::Steps(0))), [6]);
        assert_eq!(evaluations(&table(1, 4, Period::Epochs(1e-6))), [1, 2, 3, 4]);
        assert_eq!(evaluations(&table(1, 4, Period::Epochs(100.0))), [4]);
    }

    #[test]
    fn the_last_epoch_may_end_early() {
        let whole = table(3, 4, Period::Epochs(1.0));
        assert_eq!((whole.epochs(), whole.steps()), (3, 12));
        let most = |steps| Timetable { length: Length::new(4, 3, Some(steps)), ..whole };
        assert_eq!((most(9).epochs(), most(9).steps(), evaluations(&most(9))), (3, 9, vec![4, 8, 9]));
        assert_eq!((most(8).epochs(), most(100).epochs(), most(100).steps()), (2, 3, 12));
    }

    #[test]
    fn positions_count_from_zero() {
        let table = table(3, 4, Period::Steps(0));
        assert_eq!(table.position(0), Position { epoch: 0, batch: 0 });
        assert_eq!(table.position(3), Position { epoch: 0, batch: 3 });
        assert_eq!(table.position(4), Position { epoch: 1, batch: 0 });
        assert_eq!(table.epoch(6), 1.5);
    }

    proptest! {
        #[test]
        fn fractions_of_an_epoch_meet_its_end(parts in 1u32..40, steps in 40usize..2000, epochs in 1usize..5) {
            let table = table(epochs, steps, Period::Epochs(1.0 / f64::from(parts)));
            let due = evaluations(&table);
            prop_assert_eq!(due.len(), parts as usize * epochs);
            for epoch in 1..=epochs {
                prop_assert!(due.contains(&((epoch * steps) as u64)));
            }
        }
    }
}
