//! Sizes of layers and their windows.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// A number of elements, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Size(#[schemars(range(min = 1, max = 16777216))] pub usize);

/// A number of elements, possibly none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Count(#[schemars(range(max = 65536))] pub usize);

/// Number of repetitions of a block in a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Repeat(#[schemars(range(min = 1, max = 1024))] pub usize);

/// `[height, width]`, written as one number if they are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "PairAsWritten", into = "PairAsWritten")]
pub struct Pair(pub [usize; 2]);

/// A size in both directions, or as `[height, width]`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum PairAsWritten {
    /// The same in both directions.
    Both(Size),
    /// Height, width.
    Each([Size; 2]),
}

impl Pair {
    /// The default of strides and dilations.
    pub(crate) const ONES: Self = Self([1, 1]);
}

impl From<PairAsWritten> for Pair {
    fn from(written: PairAsWritten) -> Self {
        match written {
            PairAsWritten::Both(size) => Self([size.0; 2]),
            PairAsWritten::Each(sizes) => Self(sizes.map(|size| size.0)),
        }
    }
}

impl From<Pair> for PairAsWritten {
    fn from(Pair([height, width]): Pair) -> Self {
        if height == width { Self::Both(Size(height)) } else { Self::Each([Size(height), Size(width)]) }
    }
}

impl JsonSchema for Pair {
    fn schema_name() -> Cow<'static, str> {
        "Pair".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        PairAsWritten::json_schema(generator)
    }
}

/// `3x5`
impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.0[0], self.0[1])
    }
}

/// Rows and columns around an image: `[top, bottom, left, right]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "PaddingAsWritten", into = "PaddingAsWritten")]
pub struct Padding(pub [usize; 4]);

/// Rows and columns added around an image.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum PaddingAsWritten {
    /// The same on all four sides.
    All(Count),
    /// `[above and below, left and right]`.
    Axes([Count; 2]),
    /// `[top, bottom, left, right]`.
    Sides([Count; 4]),
}

impl From<PaddingAsWritten> for Padding {
    fn from(written: PaddingAsWritten) -> Self {
        Self(match written {
            PaddingAsWritten::All(Count(side)) => [side; 4],
            PaddingAsWritten::Axes([Count(height), Count(width)]) => [height, height, width, width],
            PaddingAsWritten::Sides(sides) => sides.map(|side| side.0),
        })
    }
}

impl From<Padding> for PaddingAsWritten {
    fn from(Padding(sides): Padding) -> Self {
        if sides == [sides[0]; 4] { Self::All(Count(sides[0])) } else { Self::Sides(sides.map(Count)) }
    }
}

impl JsonSchema for Padding {
    fn schema_name() -> Cow<'static, str> {
        "Padding".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        PaddingAsWritten::json_schema(generator)
    }
}

/// One number if all sides are equal.
impl fmt::Display for Padding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.0;
        if rest == [first; 3] { write!(f, "{first}") } else { write!(f, "{:?}", self.0) }
    }
}
