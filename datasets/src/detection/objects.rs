//! Images with the boxes of their objects.

use super::BoundingBox;

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
