//! The way to a failed step, a second time.
//!
//! A step leaves no copy of what it starts from. But a training repeats itself bit for bit, so the weights before a
//! failed step can be had again from the last checkpoint, at no cost for trainings that do not fail.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Trainer, begin};
use crate::{
    CheckpointStore, TrainError,
    culprit::{Culprit, Search},
};

impl Trainer<'_> {
    /// Goes back to the last checkpoint, or to the beginning, and takes the steps up to `failed` again, the last of
    /// them under observation. `None` if `cancel` was set, or if the way cannot be gone again; the log says why.
    pub(super) fn find_culprit(
        &mut self,
        store: &CheckpointStore,
        failed: u64,
        cancel: &AtomicBool,
    ) -> Option<Culprit> {
        if self.ranks.size() > 1 {
            // The others may have ended by now.
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
                // The variables were spoilt before the loss was.
                return self.replay(store, self.session.done(), cancel);
            }
        }
        match self.step(&mut batches, &mut search) {
            Ok(_) | Err(TrainError::LossNotFinite { .. } | TrainError::VariableNotFinite { .. }) => {}
            Err(other) => return Err(other),
        }
        Ok(search.culprit(self.session.step().graph()))
    }
}
