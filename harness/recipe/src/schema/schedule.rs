//! Learning rates as written; [`crate::schedule`] has the formulas.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema as JsonSchemaValue, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The learning rate of each step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Schedule {
    /// The same throughout, after the warm-up.
    Constant(Constant),
    /// Half a cosine from `base_lr` to `min_lr` (arXiv 1608.03983 without restarts; PyTorch's CosineAnnealingLR).
    Cosine(Cosine),
    /// The formula of MindSpore's ResNet50 migration guide: a line times 0.47 periods of a cosine.
    GuideCosine(GuideCosine),
    /// (1 - t/T)^power.
    Poly(Poly),
    /// Equal ratios from one learning rate to another (SiamMask's).
    Log(LogDecay),
    /// Times `gamma` every so often (PyTorch's StepLR).
    Step(StepDecay),
}

/// One learning rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// The learning rate.
    #[schemars(range(min = 0))]
    pub base_lr: f64,
    /// Rise at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<Warmup>,
}

/// min_lr + (base_lr - min_lr) * (1 + cos(pi*t/T))/2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cosine {
    /// Learning rate at t = 0.
    #[schemars(range(min = 0))]
    pub base_lr: f64,
    /// Learning rate at t = T.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub min_lr: f64,
    /// Rise at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<Warmup>,
    /// What t counts.
    #[serde(default)]
    pub per: Per,
    /// What T spans.
    #[serde(default)]
    pub t_max: TMax,
}

/// Warm-up from `lr_init` to `lr_max`; then lr_max * (linear*cosine + 1e-5) with linear = (total - i)/(total - warmup)
/// and cosine = (1 + cos(2*pi*0.47*i/(total - warmup)))/2, where the step i counts from the start of training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuideCosine {
    /// Where the warm-up starts.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub lr_init: f64,
    /// Where the warm-up ends.
    #[schemars(range(min = 0))]
    pub lr_max: f64,
    /// Length of the warm-up, in which step i uses (i+1)/length.
    #[serde(default)]
    pub warmup: Period,
}

/// min_lr + (base_lr - min_lr) * (1 - t/T)^power.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Poly {
    /// Learning rate at t = 0.
    #[schemars(range(min = 0))]
    pub base_lr: f64,
    /// Learning rate at t = T.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub min_lr: f64,
    /// Exponent.
    #[serde(default = "poly_power")]
    #[schemars(range(min = 0))]
    pub power: f64,
    /// Rise at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<Warmup>,
    /// What t counts.
    #[serde(default)]
    pub per: Per,
    /// What T spans.
    #[serde(default)]
    pub t_max: TMax,
}

fn poly_power() -> f64 {
    0.9
}

/// base_lr * (end_lr/base_lr)^(t/(T-1)): the last step or epoch is at `end_lr`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogDecay {
    /// First learning rate after the warm-up.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub base_lr: f64,
    /// Last learning rate.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub end_lr: f64,
    /// Rise at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<Warmup>,
    /// What t counts.
    #[serde(default)]
    pub per: Per,
}

/// base_lr * gamma^floor(t/every), where t counts from the start of training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepDecay {
    /// First learning rate.
    #[schemars(range(min = 0))]
    pub base_lr: f64,
    /// Factor of each drop.
    #[serde(default = "step_gamma")]
    #[schemars(range(min = 0, max = 1))]
    pub gamma: f64,
    /// Distance of the drops.
    pub every: Period,
    /// Rise at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<Warmup>,
}

fn step_gamma() -> f64 {
    0.1
}

/// Unit of a schedule's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// Every step has its own learning rate.
    #[default]
    Step,
    /// The learning rate changes between epochs.
    Epoch,
}

/// What the length T of a decay spans, and from where its t counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TMax {
    /// From the end of the warm-up to the end of training.
    #[default]
    AfterWarmup,
    /// All of training: the decay goes on under the warm-up, which hides its beginning.
    All,
    /// As `all`, and one more, so that the last step or epoch is not at the minimum yet (the DB authors' rule).
    AllPlusOne,
}

/// Rise of the learning rate to `base_lr` at the beginning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Warmup {
    /// How long: `5 epochs`, `62 steps`.
    pub over: Period,
    /// Where it starts.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub start_lr: f64,
    /// The curve.
    #[serde(default)]
    pub shape: WarmupShape,
    /// Which fraction of the way step i of n is at.
    #[serde(default)]
    pub count: WarmupCount,
    /// Unit of i.
    #[serde(default)]
    pub per: Per,
}

/// Curve of a warm-up at the fraction f of its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WarmupShape {
    /// start + (base - start)*f
    #[default]
    Linear,
    /// start * (base/start)^f
    Geometric,
}

/// Where on its way a warm-up of n steps is in step i (from 0).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WarmupCount {
    /// (i+1)/n: the last step of the warm-up is at `base_lr` (MindSpore's and the NPU zoo's).
    #[default]
    FromOne,
    /// i/n: the first step is at `start_lr`, the first after the warm-up at `base_lr` (PyTorch's LinearLR).
    FromZero,
}

/// A stretch of training: `5 epochs`, `0.5 epochs`, `62 steps`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Period {
    /// Passes through the training set.
    Epochs(f64),
    /// Updates.
    Steps(u64),
}

impl Period {
    /// Length in steps, rounded to the nearest.
    pub fn steps(self, steps_per_epoch: usize) -> u64 {
        match self {
            Self::Epochs(epochs) => (epochs * steps_per_epoch as f64).round() as u64,
            Self::Steps(steps) => steps,
        }
    }
}

impl Default for Period {
    fn default() -> Self {
        Self::Steps(0)
    }
}

/// A text is no [`Period`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no stretch of training; write `5 epochs` or `62 steps`")]
pub struct PeriodError(String);

impl TryFrom<String> for Period {
    type Error = PeriodError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::try_from(text.as_str())
    }
}

impl TryFrom<&str> for Period {
    type Error = PeriodError;

    fn try_from(text: &str) -> Result<Self, Self::Error> {
        let fail = || PeriodError(text.to_owned());
        let (number, unit) = text.trim().split_once(' ').ok_or_else(fail)?;
        if !number.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(fail());
        }
        match unit.trim() {
            "epoch" | "epochs" => {
                number.parse().ok().filter(|epochs| (0.0..=1e9).contains(epochs)).map(Self::Epochs).ok_or_else(fail)
            }
            "step" | "steps" => number.parse().ok().filter(|steps| *steps <= 1 << 53).map(Self::Steps).ok_or_else(fail),
            _ => Err(fail()),
        }
    }
}

impl From<Period> for String {
    fn from(period: Period) -> Self {
        period.to_string()
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Epochs(1.0) => write!(f, "1 epoch"),
            Self::Epochs(epochs) => write!(f, "{epochs} epochs"),
            Self::Steps(1) => write!(f, "1 step"),
            Self::Steps(steps) => write!(f, "{steps} steps"),
        }
    }
}

impl JsonSchema for Period {
    fn schema_name() -> Cow<'static, str> {
        "Period".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> JsonSchemaValue {
        json_schema!({
            "description": "A stretch of training: `5 epochs`, `0.5 epochs`, `62 steps`.",
            "type": "string",
            "format": "period",
            "pattern": r"^[0-9.]+ +(epochs?|steps?)$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_read_and_print() {
        for (text, period) in [
            ("5 epochs", Period::Epochs(5.0)),
            ("1 epoch", Period::Epochs(1.0)),
            ("0.5 epochs", Period::Epochs(0.5)),
            ("62 steps", Period::Steps(62)),
            ("1 step", Period::Steps(1)),
        ] {
            assert_eq!(Period::try_from(text).unwrap(), period);
            assert_eq!(period.to_string(), text);
        }
        for text in [
            "",
            "5",
            "epochs",
            "5epochs",
            "-1 epochs",
            "0.5 steps",
            "5 days",
            "inf epochs",
            "1e300 epochs",
            "NaN epochs",
        ] {
            assert!(Period::try_from(text).is_err(), "{text}");
        }
    }

    #[test]
    fn periods_count_steps() {
        assert_eq!(Period::Epochs(5.0).steps(100), 500);
        assert_eq!(Period::Epochs(0.25).steps(62), 16);
        assert_eq!(Period::Steps(7).steps(100), 7);
    }
}
