//! Object detection: images with boxes, read or generated; anchors, their targets, and detections.

mod anchors;
mod boxes;
mod detect;
mod fit;
mod interpolate;
mod matching;
mod objects;
mod scenes;

pub use anchors::Pyramid;
pub use boxes::{BoundingBox, Corners};
pub use detect::{Detected, Outputs, detect};
pub use fit::{Fit, Fitted, mirror};
pub use interpolate::interpolate;
pub use matching::{AnchorTargets, BACKGROUND, IGNORED, check_limits};
pub use objects::{Object, Role};
pub use scenes::BoxScenes;
