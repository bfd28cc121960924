//! Text in images: regions, targets of DB ("Real-time scene text detection with differentiable binarization", arXiv
//! 1911.08947), augmentation, detection from probability maps, and the ICDAR 2015 protocol.
//!
//! The original implementation is <https://github.com/MhLiao/DB>; functions refer to the parts that they follow.

mod augment;
mod detect;
mod evaluate;
mod region;
mod scenes;
mod targets;
mod training;
mod word;

pub use augment::{TextAugment, TextSample};
pub use detect::{Detection, detect, evaluation_size};
pub use evaluate::{Counts, Score, compare};
pub use region::TextRegion;
pub use scenes::TextScenes;
pub use targets::TextTargets;
pub use training::{TextExample, TextTraining};
