//! Length and target of the training.

use std::fmt;

use super::{InitFrom, Length, Metric, Part, Period};

zoo_settings::settings! {
    /// Batch size, length, evaluations and checkpoints of the training.
    pub struct Train {
        /// Batch size: samples per update. With simulated devices, of one device; with several processes, of all of
        /// them together.
        #[schemars(range(min = 1, max = 65536))]
        pub batch: usize,
        /// Passes over the training set; an incomplete last batch is dropped.
        #[schemars(range(min = 1, max = 100000))]
        pub epochs: usize,
        /// Largest number of updates: the training, and with it the schedule, ends there, in the middle of an epoch.
        #[schemars(range(min = 1))]
        pub max_steps?: usize,
        /// Seed of initialisation, sample order, augmentation and dropout.
        pub seed: u64 = 0,
        /// Pretrained weights and running statistics, for example of a backbone.
        pub init_from?: InitFrom,
        /// A convolution that starts by whitening the patches of the training images.
        pub whiten?: Whiten,
        /// Modules that are trained differently: frozen, later, or with another learning rate. All other modules are
        /// trained from the start.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub parts: Vec<Part> = Vec::new(),
        /// Decay of an exponential moving average of the parameters, which evaluation uses: ema = decay*ema + (1 -
        /// decay)*parameter after each update.
        #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
        pub ema?: f64,
        /// Whether the decay of the average starts small: at update n it is at most (1 + n)/(10 + n) (`num_updates` of
        /// tf.train.ExponentialMovingAverage).
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub ema_warmup: bool = false,
        /// Slow weights that the network returns to at regular intervals (arXiv 1907.08610).
        pub lookahead?: Lookahead,
        /// Whether batch normalisation uses the statistics of all processes together (PyTorch's SyncBatchNorm) instead
        /// of each process its own.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub sync_bn: bool = false,
        /// How often the held-out set is evaluated; it is always evaluated at the end.
        pub eval_every: Period = Period::Epochs(1.0),
        /// How often a checkpoint is written; one is always written at the end.
        pub checkpoint_every: Period = Period::Epochs(1.0),
    }
}

impl Train {
    /// The length of the training with this number of batches per epoch.
    pub fn length(&self, steps_per_epoch: usize) -> Length {
        Length::new(steps_per_epoch, self.epochs, self.max_steps)
    }
}

zoo_settings::settings! {
    /// A convolution whose initial filters make the patches of the training images uncorrelated, with variances of
    /// about 1.
    ///
    /// The patches are those of the first training images, preprocessed as for evaluation, without padding. With the
    /// eigenvalues v and eigenvectors of their second moments, in decreasing order, the filters are each eigenvector
    /// divided by sqrt(v + eps), and then the same with opposite signs (arXiv 2404.00498, section 3.2). `train.parts`
    /// freezes them.
    pub struct Whiten {
        /// Full name of the convolution, which reads the images: two filters for each number of a patch, one group.
        pub module: String,
        /// Number of images.
        #[schemars(range(min = 1, max = 1000000))]
        pub images: usize = 5000,
        /// Added to the eigenvalues.
        #[schemars(extend("exclusiveMinimum" = 0))]
        pub eps: f64 = 5e-4,
    }
}

zoo_settings::settings! {
    /// Slow weights, which start as the weights. After every `every`-th update n of N, slow = d*slow + (1 - d)*weights
    /// with d = `decay`*(n/N)^`power`, and the weights continue from there. At the end, the weights are the slow ones.
    /// Running statistics are treated as weights, moments of the optimizer are not.
    #[derive(Copy)]
    pub struct Lookahead {
        /// Number of updates between the changes of the slow weights (k in the paper).
        #[schemars(range(min = 1, max = 1000000))]
        pub every: u64 = 5,
        /// Largest share of the slow weights that is kept (1 - alpha in the paper).
        #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
        pub decay: f64 = 0.5,
        /// How this share grows over the training; 0: it is constant.
        #[schemars(range(min = 0))]
        pub power: f64 = 0.0,
    }
}

impl Lookahead {
    /// The share of the slow weights that is kept after `done` of `steps` updates; `None` if they do not change then.
    pub fn decay(&self, done: u64, steps: u64) -> Option<f64> {
        let progress = done as f64 / steps.max(1) as f64;
        done.is_multiple_of(self.every.max(1)).then(|| self.decay * progress.powf(self.power))
    }
}

zoo_settings::settings! {
    /// The target that the training has to reach.
    pub struct Target {
        /// The metric measured on the held-out set.
        pub metric: Metric,
        /// The value to reach, in the range of the metric; shares as a fraction or with `%`.
        pub value: f64,
        /// Further targets that have to be reached.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub also: Vec<Goal> = Vec::new(),
        /// Spread of the runs of the source (one standard deviation).
        #[schemars(range(min = 0))]
        pub sigma?: f64,
        /// Source of the value.
        pub of?: String,
        /// Runs that converged as expected; `zoo verdict` compares other runs with them.
        pub reference?: ReferenceRuns,
        /// How much worse the mean of other runs may be than the mean of the reference; by default the distance of
        /// `value` from it.
        #[schemars(range(min = 0))]
        pub margin?: f64,
    }
}

zoo_settings::settings! {
    /// Summary of runs of one recipe with different seeds.
    pub struct ReferenceRuns {
        /// Mean of their results, in the range of the metric.
        pub mean: f64,
        /// Standard deviation of their results, with `runs - 1` in the denominator.
        #[schemars(range(min = 0))]
        pub sigma: f64,
        /// Number of runs.
        #[schemars(range(min = 2))]
        pub runs: usize,
        /// Who ran them, and where the results are published.
        pub source: String,
    }
}

impl Target {
    /// Everything that has to be reached, the main goal first.
    pub fn goals(&self) -> impl Iterator<Item = Goal> {
        std::iter::once(Goal { metric: self.metric, value: self.value }).chain(self.also.iter().copied())
    }
}

zoo_settings::settings! {
    /// A value to reach.
    #[derive(Copy)]
    pub struct Goal {
        /// The metric measured on the held-out set.
        pub metric: Metric,
        /// The value to reach, in the range of the metric; shares as a fraction or with `%`.
        pub value: f64,
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.metric, self.metric.format(self.value))
    }
}
