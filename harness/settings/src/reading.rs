//! How files are read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happens if a sample is broken or unreadable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// Stop and report it.
    #[default]
    Fail,
    /// Skip and count it; the first few are reported.
    Skip,
}

/// Format of annotation files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TextFormat {
    /// `x1,y1,x2,y2,x3,y3,x4,y4,text`; `###` is ignored.
    #[default]
    Icdar2015,
    /// Polygons of any number of corners, `x1,y1,...,xn,yn,text` or the original `x: [[...]], y: [[...]]`; `#` is
    /// ignored.
    TotalText,
}
