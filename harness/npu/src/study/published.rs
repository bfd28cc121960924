//! Published figures, and verdicts on what is simulated or trained instead.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A published figure: a positive number, or a range of such numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, try_from = "AsWritten")]
pub enum PublishedFigure {
    /// A number.
    One(f64),
    /// The ends of a range.
    Range([f64; 2]),
}

/// A published figure, unchecked.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
enum AsWritten {
    One(f64),
    Range([f64; 2]),
}

impl TryFrom<AsWritten> for PublishedFigure {
    type Error = String;

    fn try_from(written: AsWritten) -> Result<Self, String> {
        let (low, high) = match written {
            AsWritten::One(value) => (value, value),
            AsWritten::Range([low, high]) => (low, high),
        };
        if !(low > 0.0 && low <= high && high.is_finite()) {
            return Err("a published figure is a number above 0, or a range `[low, high]` of such numbers".to_owned());
        }
        Ok(match written {
            AsWritten::One(value) => Self::One(value),
            AsWritten::Range(ends) => Self::Range(ends),
        })
    }
}

impl PublishedFigure {
    /// The number, or the middle of the range.
    pub fn middle(self) -> f64 {
        match self {
            Self::One(ms) => ms,
            Self::Range([low, high]) => low.midpoint(high),
        }
    }

    /// The ends of a range.
    pub fn range(self) -> Option<[f64; 2]> {
        match self {
            Self::One(_) => None,
            Self::Range(ends) => Some(ends),
        }
    }
}

/// How well a row is reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The times differ by at most 35 % and the ratios by at most a quarter, in the same direction.
    Agrees,
    /// They differ; the study gives the reason.
    Differs,
    /// The first row of a table, to which the others are compared; its ratio to itself says nothing.
    Base,
    /// Only a direction is published, and the simulation agrees with it. The size of the change is not tested.
    Illustrates,
    /// There is nothing to compare.
    Open,
}

impl Verdict {
    /// The verdict of a comparison, if it is possible. `is_first` marks the first row, to which ratios are relative.
    pub(super) fn of(agrees: Option<bool>, is_first: bool) -> Self {
        match agrees {
            _ if is_first => Self::Base,
            Some(true) => Self::Agrees,
            Some(false) => Self::Differs,
            None => Self::Open,
        }
    }
}

/// Largest relative difference of ratios.
const TOLERANCE: f64 = 0.25;
/// Ratios this close to one have no direction.
const NO_CHANGE: f64 = 0.03;

/// Whether a simulated ratio agrees with the published one: in the same direction, and within a quarter.
pub(super) fn ratios_agree(published: f64, simulated: f64) -> bool {
    let direction = |ratio: f64| match ratio {
        ratio if ratio > 1.0 + NO_CHANGE => 1,
        ratio if ratio < 1.0 - NO_CHANGE => -1,
        _ => 0,
    };
    let opposite = direction(published) * direction(simulated) < 0;
    !opposite && (simulated / published - 1.0).abs() <= TOLERANCE
}
