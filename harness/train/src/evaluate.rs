//! Evaluation of the held-out set.

use candle_core::{DType, Tensor};
use std::sync::atomic::{AtomicBool, Ordering};
use zoo_datasets::{Batch, Loader};
use zoo_engine::{Options, Scalars, Step};
use zoo_graph::BuildOptions;
use zoo_recipe::schema::Metric;

use crate::{
    TrainError,
    checkpoint::Checkpoint,
    job::Job,
    metrics::{self, CrossEntropy, Meter, Score},
    session::image_input,
};

/// Evaluates the weights of a checkpoint on the job's held-out set; `None` if `cancel` was set before the end.
///
/// # Errors
/// A network that the checkpoint's variables do not fit, or samples that cannot be read or do not fit the network.
pub fn evaluate(job: Job<'_>, checkpoint: &Checkpoint, cancel: &AtomicBool) -> Result<Option<Evaluation>, TrainError> {
    let mut evaluator = Evaluator::new(job)?;
    evaluator.load(|name| checkpoint.variables.get(name).cloned())?;
    evaluator.run(&job.val_loader()?, cancel)
}

/// The network in evaluation mode: stored statistics, no dropout, no update.
pub struct Evaluator {
    step: Step,
    batch: usize,
}

/// What an evaluation found.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Samples evaluated.
    pub samples: u64,
    /// Mean cross entropy in nats, without smoothing and regularisation.
    pub loss: f64,
    /// The metrics, as fractions.
    pub scores: Vec<Score>,
}

impl Evaluation {
    /// Value of a metric, if it was measured.
    pub fn score(&self, metric: Metric) -> Option<f64> {
        self.scores.iter().find(|score| score.metric == metric).map(|score| score.value)
    }
}

impl Evaluator {
    /// The job's network for batches of up to [`Job::eval_batch`] samples, without weights yet.
    ///
    /// # Errors
    /// A recipe that makes no network, or one that the kernels cannot compute.
    pub fn new(job: Job<'_>) -> Result<Self, TrainError> {
        let (batch, options) = (job.eval_batch(), Options::of(job.recipe));
        let graph = zoo_graph::build(job.recipe, job.model, &BuildOptions::eval(batch))?;
        let step = match job.device {
            Some(device) => Step::simulated(graph, options, device.arithmetic)?,
            None => Step::new(graph, options)?,
        };
        Ok(Self { step, batch })
    }

    /// Takes weights and running statistics by name.
    ///
    /// # Errors
    /// One that is missing, or of another shape or element type.
    pub fn load(&mut self, value: impl Fn(&str) -> Option<Tensor>) -> Result<(), TrainError> {
        let names: Vec<String> = self.step.graph().variables.iter().map(|variable| variable.name.clone()).collect();
        for name in names {
            let tensor = value(&name).ok_or_else(|| TrainError::Variables(format!("there is no `{name}`")))?;
            self.step.set_variable(&name, &tensor)?;
        }
        Ok(())
    }

    /// Evaluates all samples of `loader`; `None` if `cancel` was set before the end.
    ///
    /// A batch that is not full is filled up with zeros, whose outputs are ignored: in evaluation mode no sample
    /// depends on another.
    ///
    /// # Errors
    /// Samples that cannot be read, or do not fit the network.
    pub fn run(&mut self, loader: &Loader, cancel: &AtomicBool) -> Result<Option<Evaluation>, TrainError> {
        let mut loss = CrossEntropy::default();
        let mut meters = metrics::CLASSIFICATION.map(|metric| (metric, metrics::meter(metric)));
        let mut samples = 0;
        for batch in loader.epoch(0, 0)? {
            if cancel.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let Batch { images, labels, n } = batch?;
            if n == 0 {
                continue;
            }
            let logits = self.logits(images, n)?;
            for (row, &label) in logits.chunks_exact(logits.len() / n).zip(&labels) {
                loss.add(row, label);
                meters.iter_mut().for_each(|(_, meter)| meter.add(row, label));
            }
            samples += n as u64;
        }
        if samples == 0 {
            return Err(TrainError::NothingEvaluated);
        }
        let scores = meters.iter().map(|(metric, meter)| Score { metric: *metric, value: meter.value() }).collect();
        Ok(Some(Evaluation { samples, loss: loss.value(), scores }))
    }

    /// Outputs of `n` samples (at most a batch), row by row.
    fn logits(&mut self, mut images: Vec<f32>, n: usize) -> Result<Vec<f64>, TrainError> {
        images.resize(images.len() / n * self.batch, 0.0);
        let inputs = image_input(self.step.graph(), images)?;
        let scalars = Scalars { learning_rate: 0.0, step: 0, seed: 0, ..Scalars::default() };
        let result = self.step.run(&inputs, scalars, &mut ())?;
        let (_, logits) =
            result.outputs.first().ok_or_else(|| TrainError::Mismatch("the network has no output".into()))?;
        Ok(logits.narrow(0, 0, n)?.to_dtype(DType::F64)?.flatten_all()?.to_vec1()?)
    }
}
