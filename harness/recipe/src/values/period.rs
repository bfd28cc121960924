//! Durations of training.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema as JsonSchemaValue, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A duration: `5 epochs`, `0.5 epochs`, `62 steps`.
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

impl Period {
    /// [`Period::steps`] in Python, with `per_epoch` steps per epoch.
    pub(crate) fn emit(self) -> String {
        match self {
            Self::Epochs(1.0) => "per_epoch".to_owned(),
            Self::Epochs(epochs) if epochs.fract() == 0.0 => format!("{epochs:.0} * per_epoch"),
            Self::Epochs(epochs) => format!("math.floor({epochs:?} * per_epoch + 0.5)"),
            Self::Steps(steps) => steps.to_string(),
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
#[error("`{0}` is not a duration; write `5 epochs` or `62 steps`")]
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
            "description": "A duration: `5 epochs`, `0.5 epochs`, `62 steps`.",
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
