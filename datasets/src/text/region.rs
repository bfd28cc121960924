//! Annotated text.

use crate::geometry::Polygon;

/// A piece of text in an image.
#[derive(Debug, Clone, PartialEq)]
pub struct TextRegion {
    /// Its outline in pixels.
    pub polygon: Polygon,
    /// The text; empty if unknown.
    pub text: String,
    /// True for text that counts neither as found nor as missed (`###` in ICDAR's files, `#` in Total-Text's).
    pub ignore: bool,
}
