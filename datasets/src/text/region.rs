//! Annotated text.

use crate::geometry::Polygon;
use crate::{DataError, Image};

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

/// Images with annotated text, addressed by index.
///
/// Implementations are pure: the same index gives the same image and regions, from any thread.
pub trait TextDataset: Send + Sync {
    /// Number of images.
    fn len(&self) -> usize;

    /// True if there are no images.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name of image `index` in messages: its path, or its generator.
    fn name(&self, index: usize) -> String;

    /// Image `index` (below [`len`](Self::len)) and its text. An image without text has no regions.
    ///
    /// # Errors
    /// If a file cannot be read or decoded.
    fn load(&self, index: usize) -> Result<(Image, Vec<TextRegion>), DataError>;
}
