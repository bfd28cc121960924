//! Time.

use serde::Serialize;
use std::{
    iter::Sum,
    ops::{Add, AddAssign, Div, Mul, Sub},
};

/// A duration, or a point in time from the start of the step, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Seconds(pub f64);

impl Seconds {
    /// No time.
    pub const ZERO: Self = Self(0.0);

    /// The later time, or the longer duration.
    pub fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }

    /// The earlier time, or the shorter duration.
    pub fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }

    /// In milliseconds.
    pub fn ms(self) -> f64 {
        1e3 * self.0
    }

    /// In microseconds.
    pub fn us(self) -> f64 {
        1e6 * self.0
    }
}

impl Add for Seconds {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Seconds {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Seconds {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Mul<f64> for Seconds {
    type Output = Self;
    fn mul(self, factor: f64) -> Self {
        Self(self.0 * factor)
    }
}

impl Div<f64> for Seconds {
    type Output = Self;
    fn div(self, divisor: f64) -> Self {
        Self(self.0 / divisor)
    }
}

impl Sum for Seconds {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}
