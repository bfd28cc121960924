//! Checks of the settings of generated sets.

use crate::{DataError, Size};

/// What a set refuses, in the order of the checks: [`Checks::of`] a set, then what its settings must fulfil.
pub(crate) struct Checks {
    set: &'static str,
    refused: Option<String>,
}

impl Checks {
    /// No check yet of the settings of `set`.
    pub fn of(set: &'static str) -> Self {
        Self { set, refused: None }
    }

    fn and(self, holds: bool, otherwise: impl FnOnce() -> String) -> Self {
        let Self { set, refused } = self;
        Self { set, refused: refused.or_else(|| (!holds).then(otherwise)) }
    }

    /// Sides of `least` to 4096 pixels.
    pub fn size(self, size: Size, least: usize) -> Self {
        let sided = |side: usize| (least..=4096).contains(&side);
        self.and(sided(size.width) && sided(size.height), || format!("a size of {size} pixels"))
    }

    /// A range of a uniform draw within `least` and `most`.
    pub fn range(self, name: &str, [low, high]: [f64; 2], [least, most]: [f64; 2]) -> Self {
        // Written so that NaN is refused.
        self.and(least <= low && low <= high && high <= most, || format!("{name} from {low} to {high}"))
    }

    /// A limit of a uniform draw from 0 within `most`.
    pub fn limit(self, name: &str, limit: f64, most: f64) -> Self {
        self.and((0.0..=most).contains(&limit), || format!("{name} is {limit}, not within 0 to {most}"))
    }

    /// A range of numbers of things, up to `most`.
    pub fn count(self, name: &str, [low, high]: [usize; 2], most: usize) -> Self {
        self.and(low <= high && high <= most, || format!("{name} from {low} to {high}"))
    }

    /// # Errors
    /// The first check that failed.
    pub fn done(self) -> Result<(), DataError> {
        let Self { set, refused } = self;
        refused.map_or(Ok(()), |reason| Err(DataError::Config(format!("{set}: {reason}"))))
    }
}
