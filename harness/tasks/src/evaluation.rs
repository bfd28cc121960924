//! Evaluation of held-out samples, independent of the implementation of the network.

use std::{error::Error, sync::atomic::AtomicBool};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use zoo_datasets::{DataError, Image};
use zoo_recipe::schema::{Metric, Score};

use crate::{Field, Input, InputError, metrics::Confusion};

/// A network with its weights in evaluation mode: stored statistics, no dropout, no update.
pub trait Network {
    /// Most samples of a batch.
    fn batch(&self) -> usize;

    /// Its inputs, in the recipe's order.
    fn inputs(&self) -> Vec<Input>;

    /// Names of its outputs and their shapes without the batch.
    fn outputs(&self) -> Vec<(String, Vec<usize>)>;

    /// Takes samples of another shape from now on, `batch` at a time: `shape` is that of `input`, without the batch.
    ///
    /// # Errors
    /// A network that cannot be made for such samples.
    fn resize(&mut self, batch: usize, input: &str, shape: &[usize]) -> Result<(), EvaluationError>;

    /// Outputs of `n` samples (at most a batch).
    ///
    /// # Errors
    /// Inputs that the network does not have or that have another size, and errors of the computation.
    fn run(&mut self, n: usize, inputs: Vec<Field>) -> Result<Vec<Output>, EvaluationError>;
}

/// One output for all samples of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Its name.
    pub name: String,
    /// Shape of a sample's part.
    pub shape: Vec<usize>,
    /// Numbers of all samples, one after the other, row-major.
    pub values: Vec<f32>,
}

impl Output {
    /// The output of a name, taken out of all.
    pub(crate) fn take(outputs: &mut Vec<Self>, name: &str) -> Result<Self, EvaluationError> {
        let place = outputs.iter().position(|output| output.name == name);
        place.map(|place| outputs.swap_remove(place)).ok_or_else(|| no_output(name))
    }
}

/// Shape of the output of a name, without the batch.
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
    /// Evaluates all of them; `None` if `cancel` was set before the end.
    ///
    /// # Errors
    /// Samples that cannot be read or do not fit the network.
    fn evaluate(
        &self,
        network: &mut dyn Network,
        cancel: &AtomicBool,
        witness: &mut Witness<'_>,
    ) -> Result<Option<Evaluation>, EvaluationError>;
}

/// Receives the predictions of an evaluation one by one.
pub enum Sight<'a> {
    /// How far the evaluation is.
    Progress {
        /// Its unit: `samples` or `frames`.
        what: &'static str,
        /// Done.
        done: usize,
        /// All of them.
        of: usize,
    },
    /// Something that was found, which can be drawn.
    Found(Found<'a>),
    /// The confusion matrix, at the end of an evaluation.
    Confusion(&'a Confusion),
}

/// A prediction for an image, with the ground truth.
pub struct Found<'a> {
    /// The name of the image, or of its sequence.
    pub name: &'a str,
    /// Where it belongs.
    pub place: Place<'a>,
    /// A textual description of the drawing.
    pub shows: &'a str,
    /// How to read the drawing, if that does not go without saying.
    pub key: Option<&'static str>,
    /// How far off it is: more is worse, in a unit of the task's own; `None` where the truth is not known.
    pub badness: Option<f64>,
    /// Draws it.
    pub draw: &'a dyn Fn() -> Image,
}

/// Where an image belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// It stands alone.
    Alone {
        /// A short description of the prediction.
        summary: &'a str,
    },
    /// It is a frame; those of a sequence come in order.
    Frame {
        /// Number of the sequence.
        sequence: usize,
        /// Number of the frame, from 0.
        number: usize,
    },
}

/// Receives predictions.
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
    /// Not one sample could be read.
    #[error("nothing to evaluate: every held-out sample was skipped")]
    NothingEvaluated,
    /// The network cannot be computed.
    #[error(transparent)]
    Network(Box<dyn Error + Send + Sync>),
}
