//! Settings of data that recipes write and data sets follow: each struct once, with its defaults and the ranges of its
//! JSON schema. zoo-recipe makes them part of its schema, and zoo-datasets takes them as they are, so neither needs the
//! other. Editors show the docstrings of fields, so write them for authors of recipes.
//!
//! ```
//! let shapes = zoo_settings::Shapes { train: 10, ..Default::default() };
//! assert_eq!((shapes.val, shapes.size.extent()), (200, [64, 64]));
//! ```

mod boxed_shapes;
mod characters;
mod detection;
mod image_size;
mod shapes;
mod text;
mod text_scenes;
mod tracking;
mod videos;

pub use boxed_shapes::BoxedShapes;
pub use characters::Characters;
pub use detection::{BoxAnchors, BoxDetection, BoxPreparation};
pub use image_size::ImageSize;
pub use shapes::Shapes;
pub use text::{TextDetection, TextPreparation, TextShape};
pub use text_scenes::TextScenes;
pub use tracking::{Anchors, CropVariation, PairPreparation, Tracking};
pub use videos::Videos;
