//! The state of a training: written to checkpoints, read from them, and sent to other ranks.

use std::path::Path;

use super::Trainer;
use crate::{
    TrainError,
    checkpoint::{Checkpoint, CheckpointStore, FORMAT, Progress, changes},
    event::Event,
    timetable::Position,
};
use zoo_recipe::Recipe;

impl Trainer<'_> {
    /// Resumes from a checkpoint, bit-identical to an uninterrupted training.
    ///
    /// # Errors
    /// A checkpoint of another recipe or other data, with all differences.
    pub fn resume(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        let Progress { recipe, data, step, seconds, evaluations, linear_baseline, .. } = &checkpoint.progress;
        let changes = changes(recipe, &recipe_value(self.job.recipe)?);
        if !changes.is_empty() {
            return Err(TrainError::RecipeChanged { step: *step, changes });
        }
        let Position { epoch, batch } = self.timetable.position(*step);
        let there = (checkpoint.progress.epoch, checkpoint.progress.batch);
        if *step > self.timetable.steps() || there != (epoch, batch) {
            let message =
                format!("a checkpoint at step {step}, epoch {}, batch {}: this training has none", there.0, there.1);
            return Err(TrainError::Mismatch(message));
        }
        let (before, now) = (&checkpoint.progress.device, self.job.device_name());
        if before != now {
            let message = format!("the checkpoint was trained on {before}, this run is on {now}");
            return Err(TrainError::Mismatch(message));
        }
        if *data != self.identity {
            let (before, now) = (data.to_string(), self.identity.to_string());
            return Err(TrainError::DataChanged { step: *step, before, now });
        }
        let last = step.checked_sub(1).map_or(0, |done| self.timetable.position(done).epoch as usize);
        if let Some(stage) = self.stages.iter().rev().find(|stage| **stage <= last).filter(|stage| **stage > 0) {
            let arithmetic = self.job.device.map(|device| device.arithmetic);
            self.session.reenter(self.job.recipe, self.job.model, arithmetic, *stage, &checkpoint.progress)?;
        }
        self.session.restore(checkpoint)?;
        self.initialised = true;
        self.evaluations = evaluations.clone();
        self.job.linear_baseline = self.job.linear_baseline.or(*linear_baseline);
        self.seconds_before = *seconds;
        self.resumed_at = Some(*step);
        self.saved = Some(*step);
        Ok(())
    }

    /// Continues from the state of the first rank.
    pub(super) fn follow_first(&mut self) -> Result<(), TrainError> {
        if self.ranks.size() == 1 {
            return Ok(());
        }
        let name = Path::new("the first rank's state");
        let here = if self.ranks.is_first() { self.checkpoint()?.encode(name)? } else { Vec::new() };
        let state = self.ranks.broadcast(here)?;
        if self.ranks.is_first() { Ok(()) } else { self.resume(&Checkpoint::decode(name, &state)?) }
    }

    /// Writes a checkpoint of the current state, unless it contains a NaN or an infinity.
    pub(super) fn save(&mut self, store: &CheckpointStore) -> Result<Event, TrainError> {
        let step = self.session.done();
        self.expect_finite()?;
        let path = store.save(&self.checkpoint()?)?;
        self.saved = Some(step);
        Ok(Event::Checkpointed { step, path })
    }

    /// The current state.
    ///
    /// # Errors
    /// A recipe that cannot be written, such as one with a path that is not UTF-8.
    pub fn checkpoint(&self) -> Result<Checkpoint, TrainError> {
        let step = self.session.done();
        let position = self.timetable.position(step);
        let progress = Progress {
            format: FORMAT,
            zoo: env!("CARGO_PKG_VERSION").to_owned(),
            recipe: recipe_value(self.job.recipe)?,
            data: self.identity.clone(),
            seed: self.job.recipe.train.seed,
            step,
            epoch: position.epoch,
            batch: position.batch,
            seconds: self.seconds(),
            evaluations: self.evaluations.clone(),
            linear_baseline: self.job.linear_baseline,
            device: self.job.device_name().to_owned(),
            loss_scale: Some(self.session.loss_scale()),
            updates_before_reset: self.session.updates_before_reset(),
        };
        Ok(Checkpoint { progress, variables: self.session.variables()? })
    }
}

/// The resolved recipe, as stored in checkpoints.
fn recipe_value(recipe: &Recipe) -> Result<serde_json::Value, TrainError> {
    serde_json::to_value(recipe).map_err(|error| TrainError::Mismatch(format!("the recipe cannot be stored: {error}")))
}
