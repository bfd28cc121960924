//! Host files: what a server's cores take for a sample. The types here are the schema.
//!
//! A pipeline's workers prepare samples side by side, each a whole sample at a time. What a step of the preparation
//! takes one core is a figure of the host; which steps there are, the recipe says, or, for published rows, what is
//! known of their pipelines ([`Pipeline`]).

use crate::{device::Figure, units::Seconds};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A server that feeds devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Name: that of the file.
    pub name: String,
    /// What it is, in a sentence.
    pub description: String,
    /// Cores of the whole server.
    pub cores: Figure,
    /// Time of a core over that of the core on which the steps were measured.
    pub core_time: Figure,
    /// The same where one device trains alone and few cores work, at a higher clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_time_alone: Option<Figure>,
    /// Workers of each device's pipeline, where several devices train.
    pub workers: Figure,
    /// Workers where one device trains alone.
    pub workers_alone: Figure,
    /// What each step of a pipeline takes one core.
    pub steps: Steps,
    /// Bytes per second that an operator on the host moves.
    pub operator_gb_per_s: Figure,
    /// Pipelines that are not as the recipe has them, as published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pipelines: Vec<Pipeline>,
}

/// What steps take the core on which they were measured: nanoseconds per pixel of the sample, unless they say
/// otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Steps {
    /// Finding, opening and reading a file, in microseconds.
    pub read_us: Figure,
    /// Pixels of a photograph as it is stored, in the mean.
    pub stored_pixels: Figure,
    /// Decoding JPEG, per pixel as it is stored.
    pub decode_ns: Figure,
    /// Cutting out and scaling.
    pub resize_ns: Figure,
    /// Mirroring every other sample.
    pub flip_ns: Figure,
    /// To f32, less the mean, over the deviation, channels first.
    pub normalize_ns: Figure,
    /// Brightness, contrast and saturation at random.
    pub color_jitter_ns: Figure,
    /// AutoAugment (arXiv 1805.09501).
    pub auto_augment_ns: Figure,
    /// RandAugment (arXiv 1909.13719).
    pub rand_augment_ns: Figure,
    /// Random erasing (arXiv 1708.04896) and Mixup or CutMix (arXiv 1710.09412, 1905.04899) of the batch.
    pub mix_ns: Figure,
    /// Turning, scaling and cutting scenes and video frames with their outlines.
    pub warp_ns: Figure,
    /// Maps of shrunken text and of distances to its outlines.
    pub text_targets_ns: Figure,
    /// Cutting a window out of a tokenised text, per token.
    pub token_ns: Figure,
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
    /// As tables show it.
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
    /// Seconds that a step takes per unit: per file, stored pixel, pixel of the sample, or token.
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

/// How a published pipeline differs from the recipe's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pipeline {
    /// Recipes whose pipeline it is; all, if none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recipes: Vec<String>,
    /// Where this is published.
    pub source: String,
    /// Workers of each device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<Figure>,
    /// Workers where one device trains alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers_alone: Option<Figure>,
    /// Time of a core, where the pipeline ran on another server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_time: Option<Figure>,
    /// Cores that a worker's calls spread over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<Figure>,
    /// Steps of the recipe that it leaves out: what lies in memory, or what the device does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<HostStep>,
    /// Steps beyond the recipe's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<HostStep>,
    /// Steps that only one worker of a process can be in at a time: threads of a Python interpreter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locked: Vec<HostStep>,
}

impl Host {
    /// What a step of so many units takes one core: files, stored pixels, pixels of the sample, or tokens. `core_time`
    /// is that of the core over that of the one on which the steps were measured.
    pub fn time(&self, step: HostStep, units: f64, core_time: f64) -> Seconds {
        Seconds(self.steps.seconds(step) * core_time * units)
    }

    /// Time of a core over that of the one on which the steps were measured, where `in_server` devices share a server.
    pub fn core_time(&self, pipeline: Option<&Pipeline>, in_server: usize) -> f64 {
        let general = match in_server {
            1 => self.core_time_alone.as_ref().unwrap_or(&self.core_time),
            _ => &self.core_time,
        };
        pipeline.and_then(|pipeline| pipeline.core_time.as_ref()).unwrap_or(general).value
    }

    /// The pipeline that is known for a recipe: the last that names it, else the last for all.
    pub fn pipeline(&self, recipe: &str) -> Option<&Pipeline> {
        let named = |pipeline: &&Pipeline| pipeline.recipes.iter().any(|name| name == recipe);
        let general = |pipeline: &&Pipeline| pipeline.recipes.is_empty();
        self.pipelines.iter().rev().find(named).or_else(|| self.pipelines.iter().rev().find(general))
    }
}
