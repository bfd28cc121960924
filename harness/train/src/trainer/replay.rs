//! Repeats the steps up to a failed one.
//!
//! A step keeps no copy of its initial state. But a training is reproducible bit for bit, so the weights before a
//! failed step can be recomputed from the last checkpoint, without overhead for trainings that do not fail.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Trainer, begin};
use crate::{
    CheckpointStore, TrainError,
    culprit::{Culprit, Search},
};

impl Trainer<'_> {
    /// Goes back to the last checkpoint, or to the beginning, repeats the steps up to `failed`, and observes the last
    /// one. `None` if `cancel` was set, or if the steps cannot be repeated; the log contains the reason.
    pub(super) fn find_culprit(
        &mut self,
        store: &CheckpointStore,
        failed: u64,
        cancel: &AtomicBool,
    ) -> Option<Culprit> {
        if self.ranks.size() > 1 {
            // The other ranks may already have ended.
            tracing::info!("to find the node that caused it, train in one process");
            return None;
        }
        match self.replay(store, failed, cancel) {
            Ok(culprit) => culprit,
            Err(error) => {
                tracing::warn!("step {failed} could not be repeated: {error}");
                None
            }
        }
    }

    fn replay(
        &mut self,
        store: &CheckpointStore,
        failed: u64,
        cancel: &AtomicBool,
    ) -> Result<Option<Culprit>, TrainError> {
        self.session = begin(self.job, &self.ranks)?;
        match store.latest()? {
            Some(found) => self.resume(&found.checkpoint)?,
            None => {
                self.initialised = false;
                self.initialise()?;
            }
        }
        let from = self.session.done();
        tracing::info!("step {failed} is not finite: repeating from step {from} to find the node that caused it");
        let (mut batches, mut search) = (None, Search::default());
        while self.session.done() + 1 < failed {
            if cancel.load(Ordering::Relaxed) {
                return Ok(None);
            }
            self.step(&mut batches, &mut ())?;
            if self.expect_finite().is_err() {
                // The variables were not finite before the loss was.
                return self.replay(store, self.session.done(), cancel);
            }
        }
        match self.step(&mut batches, &mut search) {
            Ok(_)
            | Err(
                TrainError::LossNotFinite { .. } | TrainError::NoLabels { .. } | TrainError::VariableNotFinite { .. },
            ) => {}
            Err(other) => return Err(other),
        }
        Ok(search.culprit(self.session.step().graph()))
    }
}
