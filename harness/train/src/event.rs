//! Events of a training.
//!
//! Progress bars, logs, TensorBoard files and reports are all [`Listener`]s. Events are written as JSON to
//! `events.jsonl`, one per line; the field `event` is the name of the variant in snake case.

mod before;
mod number;
mod verdict;

pub use before::{
    Busy, Compared, Cost, DeviceCheck, FirstDivergence, GoldenCheck, GoldenVerdict, Lane, LossScaleFound, Memory,
    MemoryPart, NodeLoss, OperatorCost, StageCheck,
};
pub use verdict::{AlsoReached, Convergence, ConvergenceVerdict, Hypotheses, RunScore, SpreadTest, Test};

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use std::{io, path::PathBuf};
use zoo_recipe::schema::{Metric, Score, Target};
use zoo_tasks::{Baseline, Sight};

use crate::environment::Environment;

/// The name of the CPU, if no device is simulated.
pub const HOST: &str = "host";

/// Version of the events as JSON. It increases if a field changes its meaning or is removed.
pub const SCHEMA_VERSION: u32 = 1;

/// The JSON Schema of one line.
pub fn schema() -> Schema {
    schemars::schema_for!(Event)
}

/// One line of `events.jsonl` of a run, and of the output of `zoo run --format json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The recipe as written was compared with its golden.
    Golden(Box<GoldenCheck>),
    /// A step was rehearsed on the simulated device.
    Device(Box<DeviceCheck>),
    /// The cost of this run's step on a modelled device was predicted.
    Cost(Box<Cost>),
    /// The memory of the training was forecast.
    Memory(Box<Memory>),
    /// The first event of a training, and of each resumption.
    Started(Box<Started>),
    /// A step was done.
    Step(StepDone),
    /// The held-out set was evaluated.
    Evaluated(Evaluated),
    /// A checkpoint is on the disk.
    Checkpointed {
        /// Steps done.
        step: u64,
        /// The file.
        path: PathBuf,
    },
    /// The training was interrupted and can be resumed.
    Interrupted {
        /// Steps done.
        step: u64,
    },
    /// The training failed.
    Failed {
        /// Steps done.
        step: u64,
        /// Reason.
        message: String,
    },
    /// The training has finished, or was not started because the step differs from the golden.
    Result(RunResult),
    /// Several trainings with different seeds have finished. Not in any log, but the last line of `zoo run --repeat`.
    Verdict(Box<Convergence>),
}

/// Information known before the first step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Started {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Name of the recipe.
    pub recipe: String,
    /// Steps done by the resumed run; absent at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_at: Option<u64>,
    /// Number of trained elements of the network.
    pub parameters: u64,
    /// Samples per step, of all ranks together.
    pub batch: usize,
    /// Ranks that train together, each on its part of every batch.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub ranks: usize,
    /// Passes through the training set.
    pub epochs: u64,
    /// Steps per pass.
    pub steps_per_epoch: u64,
    /// Steps of the whole training.
    pub steps: u64,
    /// A description of the data.
    pub data: String,
    /// Samples trained on.
    pub train_samples: usize,
    /// Samples held out.
    pub val_samples: usize,
    /// Number of classes.
    pub classes: usize,
    /// Seed of initialisation, order, augmentation and dropout.
    pub seed: u64,
    /// The target.
    pub target: Option<Target>,
    /// Top-1 accuracy of a linear classifier on the same data, or on a sample of them, if it was measured.
    pub linear_baseline: Option<f64>,
    /// The scores of other trivial answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub baselines: Vec<Baseline>,
    /// Whether the step was proven.
    pub golden: GoldenVerdict,
    /// The simulated device, or `host`.
    #[serde(default = "host")]
    pub device: String,
    /// The device.
    pub environment: Environment,
}

fn one() -> usize {
    1
}

fn is_one(ranks: &usize) -> bool {
    *ranks == 1
}

fn host() -> String {
    HOST.to_owned()
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepDone {
    /// Steps done, this one included.
    pub step: u64,
    /// Passes done, with fraction.
    pub epoch: f64,
    /// Total loss before the update; null if it is NaN and the update was skipped.
    #[serde(with = "number")]
    #[schemars(with = "Option<f64>")]
    pub loss: f64,
    /// Parts of the loss by name, if it has several; null if NaN.
    #[serde(default, with = "number::named", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<(String, Option<f64>)>")]
    pub components: Vec<(String, f64)>,
    /// Learning rate of the update.
    pub lr: f64,
    /// Norm of all gradients before any clipping, at some of the steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradient_norm: Option<f64>,
    /// Factor on the loss, on a simulated device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<f64>,
    /// Whether there was an overflow on the device and the update was skipped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
    /// Samples divided by the time of this step, including waiting for data.
    pub images_per_s: f64,
    /// Time since the start of the training, including evaluations but not interruptions.
    pub seconds: f64,
}

/// One evaluation of the held-out set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evaluated {
    /// Steps done.
    pub step: u64,
    /// Passes done, with fraction.
    pub epoch: f64,
    /// Samples evaluated.
    pub samples: u64,
    /// The metric `cross_entropy`, for tasks that have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// The metrics; shares as fractions.
    pub scores: Vec<Score>,
    /// Time since the start of the training, including this evaluation.
    pub seconds: f64,
}

impl Evaluated {
    /// Value of a metric, if it was measured.
    pub fn score(&self, metric: Metric) -> Option<f64> {
        zoo_tasks::score(&self.scores, self.loss, metric)
    }
}

/// The end of a training: the content of `result.json`, and the last line of `zoo run --format json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The metric: the one of the target, or the first one for the kind of data if there is no target.
    pub metric: Metric,
    /// The value to reach; null without a target.
    pub target: Option<f64>,
    /// The value of the last evaluation (not of the best); null if it was not measured, or is not finite.
    pub achieved: Option<f64>,
    /// Whether the target and all further targets are reached; null without a target.
    pub met: Option<bool>,
    /// Further targets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Reached>,
    /// Passes through the training set.
    pub epochs: u64,
    /// Steps done.
    pub steps: u64,
    /// Time of training and evaluations, without interruptions.
    pub seconds: f64,
    /// Top-1 accuracy of a linear classifier on the same data, or on a sample of them, if it was measured.
    pub linear_baseline: Option<f64>,
    /// The scores of other trivial answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub baselines: Vec<Baseline>,
    /// Whether the step was proven.
    pub golden: GoldenVerdict,
    /// The device that was simulated, or `host`.
    #[serde(default = "host")]
    pub device: String,
    /// Number of updates skipped because of overflow, or of a loss that is too large or NaN.
    #[serde(default)]
    pub skipped_steps: u64,
    /// Metrics of the last evaluation that are NaN or infinite.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_finite: Vec<Metric>,
}

impl RunResult {
    /// Why the training is no success whatever its target: a score that is no number, or no update at all.
    pub fn fault(&self) -> Option<String> {
        if !self.not_finite.is_empty() {
            return Some(unusable(&self.not_finite));
        }
        let updates = self.steps.saturating_sub(self.skipped_steps);
        (self.steps > 0 && updates == 0).then(|| "no step updated anything".to_owned())
    }
}

/// What is wrong with an evaluation whose scores for these metrics are NaN or infinite.
pub fn unusable(metrics: &[Metric]) -> String {
    let names: Vec<&str> = metrics.iter().map(|metric| metric.name()).collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("{} {verb} not finite, so the evaluation is no success", names.join(", "))
}

/// One of several goals of a target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reached {
    /// The metric.
    pub metric: Metric,
    /// The value to reach.
    pub target: f64,
    /// The value of the last evaluation; null if it was not measured, or is not finite.
    pub achieved: Option<f64>,
    /// Whether it is at least as good as the target.
    pub met: bool,
}

/// Receives events.
pub trait Listener {
    /// Called for each event in order, between steps.
    ///
    /// # Errors
    /// A file that cannot be written; the training stops.
    fn hear(&mut self, event: &Event) -> Result<(), ListenError>;

    /// Called for each image or frame of an evaluation, before the event with its result.
    fn see(&mut self, _sight: &Sight<'_>) {}
}

/// Functions are listeners that cannot fail.
impl<F: FnMut(&Event)> Listener for F {
    fn hear(&mut self, event: &Event) -> Result<(), ListenError> {
        self(event);
        Ok(())
    }
}

/// Several listeners are called in turn. The first error ends the round.
impl Listener for Vec<Box<dyn Listener + '_>> {
    fn hear(&mut self, event: &Event) -> Result<(), ListenError> {
        self.iter_mut().try_for_each(|listener| listener.hear(event))
    }

    fn see(&mut self, sight: &Sight<'_>) {
        self.iter_mut().for_each(|listener| listener.see(sight));
    }
}

/// A file of the run folder that cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct ListenError {
    /// The file.
    pub path: PathBuf,
    /// The operating system's reason.
    pub source: io::Error,
}

impl ListenError {
    /// For `map_err` on operations on `path`.
    pub(crate) fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self { path, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result() -> RunResult {
        RunResult {
            device: "host".to_owned(),
            skipped_steps: 0,
            not_finite: Vec::new(),
            schema_version: SCHEMA_VERSION,
            metric: Metric::Top1,
            target: Some(0.88),
            achieved: Some(0.927),
            met: Some(true),
            epochs: 4,
            steps: 1000,
            seconds: 171.2,
            linear_baseline: None,
            baselines: Vec::new(),
            also: Vec::new(),
            golden: GoldenVerdict::Pass,
        }
    }

    #[test]
    fn the_last_line_is_what_scripts_rely_on() {
        let result = result();
        let json = serde_json::to_string(&Event::Result(result.clone())).unwrap();
        assert_eq!(
            json,
            r#"{"event":"result","schema_version":1,"metric":"top1","target":0.88,"achieved":0.927,"met":true,"epochs":4,"steps":1000,"seconds":171.2,"linear_baseline":null,"golden":"pass","device":"host","skipped_steps":0}"#
        );
        assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), Event::Result(result));
    }

    #[test]
    fn what_is_no_number_is_no_success() {
        let finite = result();
        assert_eq!(finite.fault(), None);
        let one = RunResult { not_finite: vec![Metric::CrossEntropy], ..finite.clone() };
        assert_eq!(one.fault().unwrap(), "cross_entropy is not finite, so the evaluation is no success");
        let two = RunResult { not_finite: vec![Metric::MeanIou, Metric::CrossEntropy], ..finite.clone() };
        assert!(two.fault().unwrap().starts_with("mean_iou, cross_entropy are not finite"));
        let idle = RunResult { skipped_steps: 1000, ..finite };
        assert_eq!(idle.fault().unwrap(), "no step updated anything");
    }

    #[test]
    fn a_loss_that_is_no_number_reads_back() {
        let step = r#"{"event":"step","step":3,"epoch":0.5,"loss":null,"components":[["l2",null]],"lr":0.1,"skipped":true,"images_per_s":1.0,"seconds":1.0}"#;
        let event: Event = serde_json::from_str(step).unwrap();
        let Event::Step(done) = &event else { panic!("{event:?}") };
        assert!(done.loss.is_nan() && done.components[0].1.is_nan());
        assert_eq!(serde_json::to_string(&event).unwrap(), step);
    }

    #[test]
    fn steps_read_back() {
        let step = StepDone {
            gradient_norm: None,
            loss_scale: None,
            skipped: false,
            step: 3,
            epoch: 0.75,
            loss: 2.5,
            components: vec![("cross_entropy".into(), 2.25), ("l2".into(), 0.25)],
            lr: 0.1,
            images_per_s: 100.0,
            seconds: 1.5,
        };
        let json = serde_json::to_string(&Event::Step(step.clone())).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), Event::Step(step));
    }
}
