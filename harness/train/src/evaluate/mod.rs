//! Evaluation of the held-out set.

mod images;
mod network;
mod supervised;
mod text;
mod tracking;
mod trivial;

pub use trivial::trivial_answers;

use candle_core::Tensor;
use std::sync::atomic::AtomicBool;
use zoo_datasets::{
    Image, Loader, SampleLoader,
    geometry::Polygon,
    text::{DetectConfig, Detection, TextRegion},
    tracking::Tracked,
};
use zoo_input::{HeldOutPairs, Samples, TextImages};
use zoo_recipe::schema::Metric;

use crate::{
    TrainError,
    job::Job,
    metrics::Score,
    weights::{Fit, Naming, Weights},
};
use network::Network;

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
    let fit = Fit::new(evaluator.network.graph(), weights, &Naming::default());
    if !fit.is_enough() {
        return Err(TrainError::Misfit(Box::new(fit)));
    }
    evaluator.load(|name| weights.tensors.get(name).cloned())?;
    evaluator.run(cancel, witness)
}

/// What an evaluation looks at, one thing at a time, for those who want to see it.
pub enum Sight<'a> {
    /// An image and the text that was found in it.
    Text {
        /// What the image is called.
        name: &'a str,
        /// The image.
        image: &'a Image,
        /// What there is to find.
        regions: &'a [TextRegion],
        /// What was found.
        found: &'a [Detection],
    },
    /// How far the evaluation is.
    Progress {
        /// What it is over: `samples` or `frames`.
        what: &'static str,
        /// Done.
        done: usize,
        /// All of them.
        of: usize,
    },
    /// A frame of a sequence after the first, in order for each sequence.
    Frame {
        /// Number of the sequence.
        sequence: usize,
        /// What the sequence is called.
        name: &'a str,
        /// Number of the frame, from 0.
        frame: usize,
        /// The frame.
        image: &'a Image,
        /// Where the target was found.
        tracked: &'a Tracked,
        /// Where it is, if that is known.
        truth: Option<&'a Polygon>,
    },
}

/// Sees what an evaluation looks at.
pub type Witness<'a> = dyn FnMut(&Sight<'_>) + 'a;

/// What an evaluation found.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Samples evaluated.
    pub samples: u64,
    /// Mean cross entropy in nats, without smoothing and regularisation; of classifiers only.
    pub loss: Option<f64>,
    /// The metrics, as fractions.
    pub scores: Vec<Score>,
}

impl Evaluation {
    /// Value of a metric, if it was measured.
    pub fn score(&self, metric: Metric) -> Option<f64> {
        self.scores.iter().find(|score| score.metric == metric).map(|score| score.value)
    }
}

/// The network in evaluation mode with the held-out set: stored statistics, no dropout, no update.
pub struct Evaluator<'a> {
    network: Network<'a>,
    held_out: HeldOut,
    /// Number of held-out samples.
    samples: usize,
}

/// The held-out set as the network takes it.
enum HeldOut {
    Images(Loader),
    Text { loader: SampleLoader<TextImages>, probability: String, detect: DetectConfig },
    Videos { loader: SampleLoader<HeldOutPairs>, tracking: Box<tracking::Setting> },
}

impl<'a> Evaluator<'a> {
    /// The job's network for batches of up to [`Job::eval_batch`] samples, without weights yet.
    ///
    /// # Errors
    /// A recipe that makes no network, one that the kernels cannot compute, or held-out samples that do not fit it.
    pub fn new(job: Job<'a>) -> Result<Self, TrainError> {
        let network = Network::new(job, job.eval_batch())?;
        let held_out = match &job.data.samples {
            Samples::Images { .. } => HeldOut::Images(job.val_loader()?),
            Samples::Text { val, .. } => {
                let images = zoo_input::text_images(job.recipe, val.clone(), job.image()?)?;
                let loader = SampleLoader::new(images, job.eval_loader_config())?;
                let (probability, detect) = zoo_input::detection(job.recipe);
                HeldOut::Text { loader, probability, detect }
            }
            Samples::Videos { val, sequences, .. } => {
                let tracking = tracking::Setting::new(job, &network, sequences.clone())?;
                let pairs = zoo_input::held_out_pairs(job.recipe, val.clone(), tracking.grid())?;
                HeldOut::Videos {
                    loader: SampleLoader::new(pairs, job.eval_loader_config())?,
                    tracking: Box::new(tracking),
                }
            }
        };
        Ok(Self { network, held_out, samples: job.data.val_len() })
    }

    /// Takes weights and running statistics by name; of a parameter with a moving average that one.
    ///
    /// # Errors
    /// One that is missing, or of another shape or element type.
    pub fn load(&mut self, value: impl Fn(&str) -> Option<Tensor>) -> Result<(), TrainError> {
        self.network.load(value)
    }

    /// Evaluates all held-out samples; `None` if `cancel` was set before the end.
    ///
    /// # Errors
    /// Samples that cannot be read or do not fit the network.
    pub fn run(&mut self, cancel: &AtomicBool, witness: &mut Witness<'_>) -> Result<Option<Evaluation>, TrainError> {
        let (network, of) = (&mut self.network, self.samples);
        match &self.held_out {
            HeldOut::Images(loader) => images::evaluate(network, loader, of, cancel, witness),
            HeldOut::Text { loader, probability, detect } => {
                text::evaluate(network, loader, (probability, detect), of, cancel, witness)
            }
            HeldOut::Videos { loader, tracking } => tracking::evaluate(network, loader, tracking, of, cancel, witness),
        }
    }
}
