//! Evaluation of the held-out set.

use candle_core::Tensor;
use std::sync::atomic::AtomicBool;
use zoo_tasks::{Asked, Baseline, Evaluation, EvaluationError, Generator, HeldOut, Judged, Sampling, Watch, Witness};

use crate::{TrainError, job::Job, network::Network, weights::Weights};

/// Evaluates weights on the job's held-out set; `None` if `cancel` was set before the end.
///
/// # Errors
/// Weights that do not fit the network, or samples that cannot be read or do not fit it.
pub fn evaluate(
    job: Job<'_>,
    weights: &Weights,
    cancel: &AtomicBool,
    witness: &mut Witness<'_>,
) -> Result<Option<Evaluation>, TrainError> {
    let mut evaluator = Evaluator::new(job)?;
    load(&mut evaluator.network, weights)?;
    evaluator.run(cancel, witness)
}

/// Sets the weights of a network, if they fit.
fn load(network: &mut Network<'_>, weights: &Weights) -> Result<(), TrainError> {
    let fit = weights.fit_of(network.graph())?;
    if !fit.is_enough() {
        return Err(TrainError::Misfit(Box::new(fit)));
    }
    network.load(|name| weights.tensors.get(name).cloned())
}

/// Continues a text: see [`Generator::continue_text`]. False if `cancel` was set before the end.
///
/// # Errors
/// Weights that do not fit the network, or a prompt that it cannot continue.
pub fn continue_text(
    job: Job<'_>,
    weights: &Weights,
    generator: &Generator<'_>,
    (prompt, sampling): (&str, Sampling),
    cancel: &AtomicBool,
    tell: &mut dyn FnMut(&str),
) -> Result<bool, TrainError> {
    let mut network = Network::new(job, 1)?;
    load(&mut network, weights)?;
    Ok(generator.continue_text(&mut network, prompt, sampling, cancel, tell)?)
}

/// The scores of trivial answers on the held-out set of the job. `progress` is called with the current and the total
/// count.
///
/// # Errors
/// Samples that cannot be read, or a network that they do not fit.
pub fn trivial_answers(job: Job<'_>, progress: &mut dyn FnMut(usize, usize)) -> Result<Vec<Baseline>, TrainError> {
    let mut network = || -> Result<Box<dyn zoo_tasks::Network + '_>, EvaluationError> {
        let network = Network::new(job, 1).map_err(|error| EvaluationError::Network(error.into()))?;
        Ok(Box::new(network))
    };
    let (recipe, config) = (job.recipe, job.eval_loader_config());
    Ok(job.data.samples.trivial_answers(Asked { recipe, network: &mut network, config, progress })?)
}

/// The network in evaluation mode with the held-out set: stored statistics, no dropout, no update.
pub struct Evaluator<'a> {
    network: Network<'a>,
    held_out: Box<dyn HeldOut>,
}

impl<'a> Evaluator<'a> {
    /// The job's network for batches of up to [`Job::eval_batch`] samples, without weights.
    ///
    /// # Errors
    /// A recipe from which no network can be built, a network that the kernels cannot compute, or held-out samples
    /// that do not fit it.
    pub fn new(job: Job<'a>) -> Result<Self, TrainError> {
        let network = Network::new(job, job.eval_batch())?;
        let (recipe, config) = (job.recipe, job.eval_loader_config());
        let held_out = job.data.samples.held_out(Judged { recipe, network: &network, config })?;
        Ok(Self { network, held_out })
    }

    /// Loads weights and running statistics by name. If a parameter has a moving average, the average is used.
    ///
    /// # Errors
    /// A tensor is missing, or has another shape or element type.
    pub fn load(&mut self, value: impl Fn(&str) -> Option<Tensor>) -> Result<(), TrainError> {
        self.network.load(value)
    }

    /// Evaluates all held-out samples; `None` if `cancel` was set before the end.
    ///
    /// # Errors
    /// Samples that cannot be read or do not fit the network.
    pub fn run(&mut self, cancel: &AtomicBool, witness: &mut Witness<'_>) -> Result<Option<Evaluation>, TrainError> {
        Ok(self.held_out.evaluate(&mut self.network, Watch { cancel, witness })?)
    }
}
