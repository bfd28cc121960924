//! Evaluation of held-out samples, independent of the implementation of the network.

use std::{
    error::Error,
    sync::atomic::{AtomicBool, Ordering},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use zoo_datasets::{DataError, Image};
use zoo_recipe::schema::{Metric, Score};

use crate::{Field, Input, InputError, metrics::Confusion};

/// A network with its weights in evaluation mode: running statistics, no dropout, no update.
pub trait Network {
    /// Largest number of samples per batch.
    fn batch(&self) -> usize;

    /// Its inputs, in the recipe's order.
    fn inputs(&self) -> Vec<Input>;

    /// Names of its outputs and their shapes without the batch.
    fn outputs(&self) -> Vec<(String, Vec<usize>)>;

    /// Changes the sample shape: from now on the network takes `batch` samples at a time, with `shape` (without the
    /// batch) for `input`.
    ///
    /// # Errors
    /// A network that cannot be built for such samples.
    fn resize(&mut self, batch: usize, input: &str, shape: &[usize]) -> Result<(), EvaluationError>;

    /// Outputs of `n` samples (at most a batch).
    ///
    /// # Errors
    /// Inputs that the network does not have or that have another size, and errors of the computation.
    fn run(&mut self, n: usize, inputs: Vec<Field>) -> Result<Vec<Output>, EvaluationError>;

    /// Whether it computes outputs from its inputs. If not, such as with stored outputs, no input may depend on the
    /// outputs for the ones before.
    fn computes(&self) -> bool {
        true
    }
}

/// One output for all samples of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Its name.
    pub name: String,
    /// Shape per sample.
    pub shape: Vec<usize>,
    /// Its elements, sample after sample, row-major.
    pub values: Vec<f32>,
}

impl Output {
    /// Removes the output with a name from the list and returns it.
    pub(crate) fn take(outputs: &mut Vec<Self>, name: &str) -> Result<Self, EvaluationError> {
        let place = outputs.iter().position(|output| output.name == name);
        place.map(|place| outputs.swap_remove(place)).ok_or_else(|| no_output(name))
    }
}

/// Shape of the output with a name, without the batch.
pub(crate) fn output_shape(network: &dyn Network, name: &str) -> Result<Vec<usize>, EvaluationError> {
    let found = network.outputs().into_iter().find(|(output, _)| output == name);
    found.map(|(_, shape)| shape).ok_or_else(|| no_output(name))
}

fn no_output(name: &str) -> EvaluationError {
    EvaluationError::Mismatch(format!("the network has no output `{name}`"))
}

/// The network's first input.
pub(crate) fn first_input(network: &dyn Network) -> Result<Input, EvaluationError> {
    let first = network.inputs().into_iter().next();
    first.ok_or_else(|| EvaluationError::Mismatch("the network has no input".into()))
}

/// Held-out samples, checked against a network.
pub trait HeldOut {
    /// Evaluates all of them; `None` if it was cancelled before the end.
    ///
    /// # Errors
    /// Samples that cannot be read or do not fit the network.
    fn evaluate(&self, network: &mut dyn Network, watch: Watch<'_>) -> Result<Option<Evaluation>, EvaluationError>;

    /// The labels of all samples in order, sample after sample, where a label is all that the metrics need.
    ///
    /// # Errors
    /// Samples that cannot be read.
    fn labels(&self) -> Result<Option<Vec<u32>>, EvaluationError> {
        Ok(None)
    }
}

/// Follows an evaluation, and can end it.
pub struct Watch<'a> {
    /// Set if the evaluation is to end early, without a result.
    pub cancel: &'a AtomicBool,
    /// Receives progress and results.
    pub witness: &'a mut Witness<'a>,
}

impl Watch<'_> {
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }
}

/// Passes all batches of held-out samples to `judge`, with the number of samples before it; `judge` returns the number
/// of its samples. Returns the number of all samples, of `of`; `None` if it was cancelled before the end.
///
/// # Errors
/// Samples that cannot be read, all of them skipped, and errors of `judge`.
pub(crate) fn judge_all<B>(
    batches: impl Iterator<Item = Result<B, DataError>>,
    of: usize,
    watch: &mut Watch<'_>,
    mut judge: impl FnMut(B, usize, &mut Witness<'_>) -> Result<usize, EvaluationError>,
) -> Result<Option<u64>, EvaluationError> {
    let mut done = 0;
    for batch in batches {
        if watch.is_cancelled() {
            return Ok(None);
        }
        done += judge(batch?, done, watch.witness)?;
        (watch.witness)(&Sight::Progress { what: "samples", done, of });
    }
    if done == 0 {
        return Err(EvaluationError::NothingEvaluated);
    }
    Ok(Some(done as u64))
}

/// Progress and results, reported during an evaluation.
pub enum Sight<'a> {
    /// The progress of the evaluation.
    Progress {
        /// Its unit: `samples` or `frames`.
        what: &'static str,
        /// Number done.
        done: usize,
        /// The total.
        of: usize,
    },
    /// A prediction, which can be drawn.
    Found(Found<'a>),
    /// The confusion matrix, at the end of an evaluation.
    Confusion(&'a Confusion),
}

/// A prediction for an image, with the ground truth.
pub struct Found<'a> {
    /// The name of the image, or of its sequence.
    pub name: &'a str,
    /// Its position in the data.
    pub place: Place<'a>,
    /// Text alternative of the drawing.
    pub shows: &'a str,
    /// A legend of the drawing, if it needs one.
    pub key: Option<&'static str>,
    /// The error of the prediction in a unit of the task; larger is worse. `None` if the truth is unknown.
    pub badness: Option<f64>,
    /// Draws it.
    pub draw: &'a dyn Fn() -> Image,
}

/// The position of an image in the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// A single image.
    Alone {
        /// A short description of the prediction.
        summary: &'a str,
    },
    /// A frame of a sequence; frames are reported in order.
    Frame {
        /// Number of the sequence.
        sequence: usize,
        /// Number of the frame, from 0.
        number: usize,
    },
}

/// Receives progress and results.
pub type Witness<'a> = dyn FnMut(&Sight<'_>) + 'a;

/// The result of an evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Samples evaluated.
    pub samples: u64,
    /// [`Metric::CrossEntropy`], of tasks that have one.
    pub loss: Option<f64>,
    /// The other metrics.
    pub scores: Vec<Score>,
}

impl Evaluation {
    /// Value of a metric, if it was measured.
    pub fn score(&self, metric: Metric) -> Option<f64> {
        score(&self.scores, self.loss, metric)
    }

    /// The metrics that are NaN or infinite: such an evaluation is no success.
    pub fn not_finite(&self) -> Vec<Metric> {
        not_finite(&self.scores, self.loss)
    }
}

/// The metrics among the scores and the loss of an evaluation that are NaN or infinite.
pub fn not_finite(scores: &[Score], loss: Option<f64>) -> Vec<Metric> {
    let loss = loss.map(|value| (Metric::CrossEntropy, value));
    let all = scores.iter().map(|score| (score.metric, score.value)).chain(loss);
    all.filter(|(_, value)| !value.is_finite()).map(|(metric, _)| metric).collect()
}

/// Value of a metric among the scores and the loss of an evaluation, if it was measured.
pub fn score(scores: &[Score], loss: Option<f64>, metric: Metric) -> Option<f64> {
    let found = scores.iter().find(|score| score.metric == metric).map(|score| score.value);
    found.or(loss.filter(|_| metric == Metric::CrossEntropy))
}

/// The score of a trivial answer, for comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Baseline {
    /// The answer, for example `a box that never moves`.
    pub answer: String,
    /// Its score.
    #[serde(flatten)]
    pub score: Score,
}

/// Why samples cannot be evaluated.
#[derive(Debug, Error)]
pub enum EvaluationError {
    /// The data are missing or unreadable.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Errors of data or preprocessing.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The data do not fit the network.
    #[error("the data do not fit the network: {0}")]
    Mismatch(String),
    /// A prompt that the network cannot continue.
    #[error("{0}")]
    Prompt(String),
    /// None of the samples could be read.
    #[error("nothing to evaluate: every held-out sample was skipped")]
    NothingEvaluated,
    /// The network cannot be computed.
    #[error(transparent)]
    Network(Box<dyn Error + Send + Sync>),
}
