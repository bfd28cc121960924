//! Data, preparation and detection of text in images.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Photographs with annotated text, in one of the published layouts: `train_images` with `train_gts`,
/// `ch4_training_images` with `ch4_training_localization_transcription_gt`, `Images/Train` with
/// `Groundtruth/Polygon/Train`, `images` with `gts`, and their test parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TextFolder {
    /// Folder with one of these layouts; `--data` replaces it.
    pub root: PathBuf,
    /// Format of annotation files.
    #[serde(default)]
    pub format: TextFormat,
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
