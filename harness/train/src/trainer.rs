//! The training loop.

mod ignored;
mod replay;
mod state;
mod summary;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};
use zoo_engine::Observer;
use zoo_ranks::Ranks;
use zoo_recipe::Recipe;
use zoo_tasks::{Batches, Evaluation, Feed};

use crate::{
    TrainError,
    checkpoint::{CheckpointStore, DataIdentity},
    evaluate::Evaluator,
    event::{Evaluated, Event, Listener, RunResult, StepDone},
    gradient_norm::GradientNorm,
    job::Job,
    session::Session,
    timetable::Timetable,
};

/// Approximate number of steps at which the norm of the gradients is measured.
const GRADIENT_NORMS: u64 = 100;

/// How a training ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// All epochs are done.
    Finished(RunResult),
    /// It was interrupted; a checkpoint after this many steps was written.
    Interrupted {
        /// Steps done.
        step: u64,
    },
}

/// A training that can be run to its end, or resumed from a checkpoint.
///
/// All results depend only on recipe and data, and not on threads, clock, listeners, or interruptions.
pub struct Trainer<'a> {
    job: Job<'a>,
    session: Session,
    /// Epochs from which other parts are trained.
    stages: Vec<usize>,
    evaluator: Evaluator<'a>,
    train: Feed,
    timetable: Timetable,
    identity: DataIdentity,
    evaluations: Vec<Evaluated>,
    /// Time before the start of this process.
    seconds_before: f64,
    begun: Instant,
    resumed_at: Option<u64>,
    /// Steps done at the newest checkpoint.
    saved: Option<u64>,
    /// Whether the variables have been initialised or loaded.
    initialised: bool,
    ranks: Ranks,
}

/// The step with initial variables.
fn begin(job: Job<'_>, ranks: &Ranks) -> Result<Session, TrainError> {
    let arithmetic = job.device.map(|device| device.arithmetic);
    Session::across(job.recipe, job.model, arithmetic, ranks.clone())
}

impl<'a> Trainer<'a> {
    /// Builds the step, the network for evaluation, and the loaders.
    ///
    /// # Errors
    /// Recipe and data do not fit each other, or there are too few samples for one batch.
    pub fn new(job: Job<'a>) -> Result<Self, TrainError> {
        Self::across(job, Ranks::alone())
    }

    /// As [`Trainer::new`], for one of several ranks that train together, each on its part of every batch. The first
    /// rank evaluates, writes checkpoints and calls listeners; the others follow its state. Results equal those of a
    /// single rank, apart from the order of sums, if normalisations use the whole batch (`train.sync_bn`) and the
    /// loss is a mean over samples.
    ///
    /// # Errors
    /// As [`Trainer::new`], and a batch that the ranks cannot share.
    pub fn across(job: Job<'a>, ranks: Ranks) -> Result<Self, TrainError> {
        let Job { recipe, model, data, .. } = job;
        let classes = data.samples.classes().len();
        if classes > 0 && classes != model.classes {
            let message = format!("{classes} classes of data, but `model.classes` is {}", model.classes);
            return Err(TrainError::Mismatch(message));
        }
        let session = begin(job, &ranks)?;
        let train = job.feed(session.step().graph(), &ranks)?;
        let timetable = Timetable::new(&recipe.train, train.batches_per_epoch());
        Ok(Self {
            job,
            session,
            stages: zoo_recipe::stages(recipe),
            evaluator: Evaluator::new(job)?,
            train,
            timetable,
            identity: DataIdentity::new(data),
            evaluations: Vec::new(),
            seconds_before: 0.0,
            begun: Instant::now(),
            resumed_at: None,
            saved: None,
            initialised: false,
            ranks,
        })
    }

    /// Loads the weights of `train.init_from` into the step, and computes those of `train.whiten`, once; not needed if
    /// the training is resumed from a checkpoint. [`Trainer::run`] calls it if necessary. If it is called earlier, a
    /// missing or unsuitable file is reported before anything is written.
    ///
    /// # Errors
    /// A file or images that cannot be read, or that do not fit the network.
    pub fn initialise(&mut self) -> Result<(), TrainError> {
        if self.initialised {
            return Ok(());
        }
        if let Some(source) = &self.job.recipe.train.init_from {
            // Not inside the message macro, which would skip it without a listener.
            let fit = self.session.init_from(source)?;
            let rest = if fit.is_enough() { "" } else { "\n tensors that are not in the file are initialised" };
            tracing::info!("init_from: {fit}{rest}");
        }
        if let Some(whiten) = &self.job.recipe.train.whiten {
            let (weight, filters) = self.job.whitening(self.session.step().graph(), whiten)?;
            self.session.set(&weight, &filters)?;
        }
        if self.job.recipe.train.lookahead.is_some() {
            self.session.start_lookahead()?;
        }
        self.initialised = true;
        Ok(())
    }

    /// Steps done at the last evaluation; 0 before the first one.
    pub(crate) fn evaluated(&self) -> u64 {
        self.evaluations.last().map_or(0, |last| last.step)
    }

    /// The recipe of the training.
    pub fn recipe(&self) -> &Recipe {
        self.job.recipe
    }

    /// What is trained.
    pub(crate) fn job(&self) -> Job<'a> {
        self.job
    }

    /// The training samples.
    pub(crate) fn feed(&self) -> &Feed {
        &self.train
    }

    /// The division of the training.
    pub fn timetable(&self) -> &Timetable {
        &self.timetable
    }

    /// The network in training.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Trains to the end, or until `cancel` is set; then a checkpoint is written after the current step.
    ///
    /// # Errors
    /// Errors that end the training. Earlier checkpoints are intact.
    pub fn run(
        &mut self,
        store: &CheckpointStore,
        listener: &mut dyn Listener,
        cancel: &AtomicBool,
    ) -> Result<Outcome, TrainError> {
        let mut result = self.drive(store, listener, cancel);
        if let Err(error) = &mut result {
            let step = self.session.done();
            if let Some((failed, culprit)) = error.not_finite() {
                *culprit = self.find_culprit(store, failed, cancel).map(Box::new);
            }
            let failed = Event::Failed { step, message: error.to_string() };
            if let Err(second) = listener.hear(&failed) {
                tracing::warn!("{second}");
            }
        }
        result
    }

    fn drive(
        &mut self,
        store: &CheckpointStore,
        listener: &mut dyn Listener,
        cancel: &AtomicBool,
    ) -> Result<Outcome, TrainError> {
        self.begun = Instant::now();
        if self.ranks.is_first() {
            self.initialise()?;
        }
        self.follow_first()?;
        listener.hear(&Event::Started(Box::new(self.started())))?;
        let mut batches = None;
        loop {
            // Actions that are due after a step run here, so that a resumed training catches up on missed ones.
            let done = self.session.done();
            let mut caught_up = false;
            if self.evaluation_due()
                && let Some(evaluated) = self.evaluate(cancel, listener)?
            {
                listener.hear(&Event::Evaluated(evaluated))?;
                caught_up = self.saved == Some(done);
            }
            let finished = done >= self.timetable.steps() && !self.evaluation_due();
            let cancelled = self.ranks.any(cancel.load(Ordering::Relaxed))?;
            let due = (finished || cancelled || self.timetable.checkpoints(done)) && self.saved != Some(done);
            // The checkpoint of this step does not contain an evaluation that was caught up on.
            if (due || caught_up) && self.ranks.is_first() {
                listener.hear(&self.save(store)?)?;
            }
            if finished {
                let result = self.result();
                listener.hear(&Event::Result(result.clone()))?;
                return Ok(Outcome::Finished(result));
            }
            if cancelled {
                listener.hear(&Event::Interrupted { step: done })?;
                return Ok(Outcome::Interrupted { step: done });
            }
            listener.hear(&Event::Step(self.observed_step(&mut batches)?))?;
        }
    }

    /// One step; at some steps the gradients are observed.
    fn observed_step(&mut self, batches: &mut Option<Batches>) -> Result<StepDone, TrainError> {
        let number = self.session.done();
        let position = self.timetable.position(number);
        let enters = position.batch == 0 && self.stages.contains(&(position.epoch as usize));
        let every = self.timetable.steps().div_ceil(GRADIENT_NORMS).max(1);
        // A step at which other parts join has another graph. With several ranks, the gradients are in transfer when
        // they could be observed.
        if !number.is_multiple_of(every) || enters && number > 0 || self.ranks.size() > 1 {
            return self.step(batches, &mut ());
        }
        let mut norm = GradientNorm::new(self.session.step().graph());
        let done = self.step(batches, &mut norm)?;
        Ok(StepDone { gradient_norm: Some(norm.value()).filter(|norm| norm.is_finite()), ..done })
    }

    /// One step: data, learning rate, update.
    fn step(&mut self, batches: &mut Option<Batches>, observer: &mut dyn Observer) -> Result<StepDone, TrainError> {
        let begun = Instant::now();
        let number = self.session.done();
        let position = self.timetable.position(number);
        if position.batch == 0 {
            *batches = None;
            let epoch = position.epoch as usize;
            if epoch > 0 && self.stages.contains(&epoch) {
                self.session.enter(
                    self.job.recipe,
                    self.job.model,
                    self.job.device.map(|device| device.arithmetic),
                    epoch,
                )?;
            }
        }
        let batches = match batches {
            Some(batches) => batches,
            None => batches.insert(self.train.epoch(position.epoch, position.batch as usize)?),
        };
        let batch = batches.next().ok_or_else(|| TrainError::Mismatch("an epoch ended early".into()))??;
        let samples = batch.n * self.ranks.size();
        let lr = self.job.recipe.schedule.lr(number as usize, self.timetable.length());
        let loss_scale = self.session.loss_scale().scale;
        // Several ranks have the mean of their losses, which is NaN for all if one has no labels.
        let unlabelled = ignored::all_labels(self.session.step().graph(), &batch);
        let result = self.session.train_batch(batch, lr, observer)?;
        let (losses, skipped, step) = (result.losses, result.skipped, self.session.done());
        if let Some(lookahead) = &self.job.recipe.train.lookahead {
            let steps = self.timetable.steps();
            if let Some(decay) = lookahead.decay(step, steps) {
                self.session.look_back(decay)?;
            }
            if step == steps {
                self.session.look_back(1.0)?;
            }
        }
        let is_finite = losses.iter().all(|(_, value)| value.is_finite());
        if skipped {
            let overflowed = self.session.step().findings().is_some_and(|findings| findings.skipped);
            let loss = losses.first().map_or(f64::NAN, |l| l.1);
            let (device, next) = (self.job.device_name(), self.session.loss_scale().scale);
            match (overflowed, unlabelled) {
                (true, _) => tracing::warn!(
                    "step {step} is skipped: it overflows on {device} with the loss scale {loss_scale} (next: {next})"
                ),
                (false, Some((input, ignored))) => tracing::warn!(
                    "step {step} is skipped: it has no loss, because all labels of its batch (`{input}`) are {ignored}, \
                     which is ignored"
                ),
                (false, None) => tracing::warn!("step {step} is skipped: its loss is {loss}"),
            }
        } else if let Some((input, ignored)) = unlabelled.filter(|_| !is_finite) {
            return Err(TrainError::NoLabels { step, input, ignored });
        } else if !is_finite {
            return Err(TrainError::LossNotFinite { step, lr, losses, culprit: None });
        }
        let mut losses = losses.into_iter();
        let loss = losses.next().map_or(f64::NAN, |(_, value)| value);
        Ok(StepDone {
            step,
            epoch: self.timetable.epoch(step),
            loss,
            components: losses.collect(),
            lr,
            gradient_norm: None,
            loss_scale: self.job.device.is_some().then_some(loss_scale),
            skipped,
            images_per_s: samples as f64 / begun.elapsed().as_secs_f64(),
            seconds: self.seconds(),
        })
    }

    /// Whether the current weights should be evaluated and have not been.
    fn evaluation_due(&self) -> bool {
        let done = self.session.done();
        self.timetable.evaluates(done) && self.evaluations.last().is_none_or(|last| last.step < done)
    }

    /// Refuses variables with a NaN or an infinity. Checking all of them takes a few per cent of the time of a step,
    /// and faults show in the next loss anyway. So this is only called before other uses of variables, and when a
    /// failure is traced.
    fn expect_finite(&self) -> Result<(), TrainError> {
        match self.session.step().not_finite()? {
            None => Ok(()),
            Some(variable) => {
                let (step, variable) = (self.session.done(), variable.to_owned());
                Err(TrainError::VariableNotFinite { step, variable, culprit: None })
            }
        }
    }

    /// Evaluates the current weights, on the first rank for all; `None` if it was cancelled.
    fn evaluate(&mut self, cancel: &AtomicBool, listener: &mut dyn Listener) -> Result<Option<Evaluated>, TrainError> {
        self.expect_finite()?;
        let mut evaluated = None;
        if self.ranks.is_first() {
            let step = self.session.step();
            self.evaluator.load(|name| step.variable(name).ok())?;
            let evaluation = self.evaluator.run(cancel, &mut |sight| listener.see(sight))?;
            evaluated = evaluation.map(|evaluation| self.record(evaluation));
        }
        if self.ranks.size() > 1 {
            let mismatch = |error: serde_json::Error| TrainError::Mismatch(format!("an evaluation: {error}"));
            let said = self.ranks.broadcast(serde_json::to_vec(&evaluated).map_err(mismatch)?)?;
            if !self.ranks.is_first() {
                evaluated = serde_json::from_slice(&said).map_err(mismatch)?;
                self.evaluations.extend(evaluated.clone());
            }
        }
        Ok(evaluated)
    }

    fn record(&mut self, evaluation: Evaluation) -> Evaluated {
        let step = self.session.done();
        let Evaluation { samples, loss, scores } = evaluation;
        let epoch = self.timetable.epoch(step);
        let evaluated = Evaluated { step, epoch, samples, loss, scores, seconds: self.seconds() };
        self.evaluations.push(evaluated.clone());
        evaluated
    }

    fn seconds(&self) -> f64 {
        self.seconds_before + self.begun.elapsed().as_secs_f64()
    }
}
