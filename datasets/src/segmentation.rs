//! Semantic segmentation: images with a class per pixel, generated scenes, and augmentation.

mod augment;
mod label_map;
mod shapes;

pub use augment::{LabelAugment, Labelled};
pub use label_map::{LabelMap, VOID};
pub use shapes::Shapes;
pub(crate) use shapes::{CLASSES, outline};
