//! Images with the boxes of their objects.

use super::BoundingBox;
use crate::{DataError, Image};

/// What an annotated box stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// One object, to learn and to find.
    Single,
    /// Many objects in one box (COCO's `iscrowd`): not learned; detections inside it are neither right nor wrong.
    Crowd,
    /// An object that need not be found (PASCAL VOC's `difficult`): not learned; its detection is neither right nor
    /// wrong.
    Difficult,
}

/// An annotated box.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Object {
    /// Its class: an index into the names of the classes.
    pub class: usize,
    /// Where it is, in pixels of the image.
    pub bounds: BoundingBox,
    /// Its area in pixels, which is smaller than that of the box if the outline is known (COCO's `area`).
    pub area: f64,
    /// What it stands for.
    pub role: Role,
}

/// Images with boxes, addressed by index.
///
/// Implementations are pure: the same index gives the same image and objects, from any thread.
pub trait BoxDataset: Send + Sync {
    /// Number of images.
    fn len(&self) -> usize;

    /// True if there are no images.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Names of the classes. Index 0 is the background and has no object, as in torchvision's models, unless the
    /// annotations use it.
    fn classes(&self) -> &[String];

    /// The name of image `index` in messages: its path, or its generator.
    fn name(&self, index: usize) -> String;

    /// Image `index` (below [`len`](Self::len)) and its objects.
    ///
    /// # Errors
    /// If a file cannot be read or decoded, or the image has another size than its annotation says.
    fn load(&self, index: usize) -> Result<(Image, Vec<Object>), DataError>;
}
