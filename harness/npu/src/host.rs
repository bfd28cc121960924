//! Host files: the time that the cores of a server need for a sample. The types define the schema.
//!
//! The workers of a pipeline prepare samples in parallel; each worker prepares whole samples. The host file contains
//! the time that one core needs for each step. The steps are those of the recipe or, for published measurements,
//! those of the known pipeline ([`Pipeline`]).

use crate::{figure::Figure, units::Seconds};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

zoo_recipe::settings! {
    /// A server that feeds devices.
    pub struct Host {
        /// Name of the host and of its file.
        pub name: String,
        /// Description in one sentence.
        pub description: String,
        /// Cores of the whole server.
        pub cores: Figure,
        /// Time of a core, relative to the core on which the steps were measured.
        pub core_time: Figure,
        /// The same if a single device trains, so that few cores work, at a higher clock.
        pub core_time_alone?: Figure,
        /// Workers of each device's pipeline, if several devices train.
        pub workers: Figure,
        /// Workers, if a single device trains.
        pub workers_alone: Figure,
        /// Time of one core for each step of a pipeline.
        pub steps: Steps,
        /// Bandwidth of an operator on the host.
        pub operator_gb_per_s: Figure,
        /// Published pipelines that differ from the recipe.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub pipelines: Vec<Pipeline> = Vec::new(),
    }
}

zoo_recipe::settings! {
    /// Time of each step on the core where it was measured, in nanoseconds per pixel of the sample unless stated
    /// otherwise.
    pub struct Steps {
        /// Finding, opening and reading a file, in microseconds.
        pub read_us: Figure,
        /// Average number of pixels of a stored photograph.
        pub stored_pixels: Figure,
        /// Decoding JPEG, per stored pixel.
        pub decode_ns: Figure,
        /// Cropping and scaling.
        pub resize_ns: Figure,
        /// Mirroring every other sample.
        pub flip_ns: Figure,
        /// Conversion to f32, minus the mean, divided by the deviation, channels first.
        pub normalize_ns: Figure,
        /// Random brightness, contrast and saturation.
        pub color_jitter_ns: Figure,
        /// AutoAugment (arXiv 1805.09501).
        pub auto_augment_ns: Figure,
        /// RandAugment (arXiv 1909.13719).
        pub rand_augment_ns: Figure,
        /// Random erasing (arXiv 1708.04896) and Mixup or CutMix (arXiv 1710.09412, 1905.04899) of the batch.
        pub mix_ns: Figure,
        /// Rotating, scaling and cropping scenes and video frames with their outlines.
        pub warp_ns: Figure,
        /// Maps of shrunken text and of distances to its outlines.
        pub text_targets_ns: Figure,
        /// Cropping a window from a tokenised text, per token.
        pub token_ns: Figure,
    }
}

/// A step of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HostStep {
    /// See [`Steps::read_us`].
    Read,
    /// See [`Steps::decode_ns`].
    Decode,
    /// See [`Steps::resize_ns`].
    Resize,
    /// See [`Steps::flip_ns`].
    Flip,
    /// See [`Steps::normalize_ns`].
    Normalize,
    /// See [`Steps::color_jitter_ns`].
    ColorJitter,
    /// See [`Steps::auto_augment_ns`].
    AutoAugment,
    /// See [`Steps::rand_augment_ns`].
    RandAugment,
    /// See [`Steps::mix_ns`].
    Mix,
    /// See [`Steps::warp_ns`].
    Warp,
    /// See [`Steps::text_targets_ns`].
    TextTargets,
    /// See [`Steps::token_ns`].
    Tokens,
}

impl HostStep {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Decode => "decode",
            Self::Resize => "crop and scale",
            Self::Flip => "mirror",
            Self::Normalize => "normalise",
            Self::ColorJitter => "colour jitter",
            Self::AutoAugment => "AutoAugment",
            Self::RandAugment => "RandAugment",
            Self::Mix => "erase and mix",
            Self::Warp => "warp",
            Self::TextTargets => "text targets",
            Self::Tokens => "tokens",
        }
    }
}

impl Steps {
    /// Time of a step per unit, in seconds: per file, stored pixel, pixel of the sample, or token.
    fn seconds(&self, step: HostStep) -> f64 {
        let ns = |figure: &Figure| figure.value * 1e-9;
        match step {
            HostStep::Read => self.read_us.value * 1e-6,
            HostStep::Decode => ns(&self.decode_ns),
            HostStep::Resize => ns(&self.resize_ns),
            HostStep::Flip => ns(&self.flip_ns),
            HostStep::Normalize => ns(&self.normalize_ns),
            HostStep::ColorJitter => ns(&self.color_jitter_ns),
            HostStep::AutoAugment => ns(&self.auto_augment_ns),
            HostStep::RandAugment => ns(&self.rand_augment_ns),
            HostStep::Mix => ns(&self.mix_ns),
            HostStep::Warp => ns(&self.warp_ns),
            HostStep::TextTargets => ns(&self.text_targets_ns),
            HostStep::Tokens => ns(&self.token_ns),
        }
    }
}

zoo_recipe::settings! {
    /// Differences between a published pipeline and that of the recipe.
    pub struct Pipeline {
        /// Recipes with this pipeline; all if none is named.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub recipes: Vec<String> = Vec::new(),
        /// Where it is published.
        pub source: String,
        /// Workers of each device.
        pub workers?: Figure,
        /// Workers, if a single device trains.
        pub workers_alone?: Figure,
        /// Relative time of a core, if the pipeline ran on another server.
        pub core_time?: Figure,
        /// Number of cores over which the calls of a worker are spread.
        pub threads?: Figure,
        /// Steps of the recipe that it omits, because the data are in memory or the device does them.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub without: Vec<HostStep> = Vec::new(),
        /// Steps in addition to those of the recipe.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub with: Vec<HostStep> = Vec::new(),
        /// Steps that only one worker of a process can execute at a time, as with threads of a Python interpreter.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub locked: Vec<HostStep> = Vec::new(),
    }
}

impl Host {
    /// Time of one core for `units` units of a step: files, stored pixels, pixels of the sample, or tokens.
    /// `core_time` is relative to the core on which the steps were measured.
    pub fn time(&self, step: HostStep, units: f64, core_time: f64) -> Seconds {
        Seconds(self.steps.seconds(step) * core_time * units)
    }

    /// Relative time of a core if `in_server` devices share a server.
    pub fn core_time(&self, pipeline: Option<&Pipeline>, in_server: usize) -> f64 {
        let general = match in_server {
            1 => self.core_time_alone.as_ref().unwrap_or(&self.core_time),
            _ => &self.core_time,
        };
        pipeline.and_then(|pipeline| pipeline.core_time.as_ref()).unwrap_or(general).value
    }

    /// The known pipeline of a recipe: the last one that names it, or else the last one for all recipes.
    pub fn pipeline(&self, recipe: &str) -> Option<&Pipeline> {
        let named = |pipeline: &&Pipeline| pipeline.recipes.iter().any(|name| name == recipe);
        let general = |pipeline: &&Pipeline| pipeline.recipes.is_empty();
        self.pipelines.iter().rev().find(named).or_else(|| self.pipelines.iter().rev().find(general))
    }
}
