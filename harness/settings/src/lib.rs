//! Settings of data that recipes write and data sets follow: each struct once, with its defaults and the ranges of its
//! JSON schema. zoo-recipe makes them part of its schema, and zoo-datasets takes them as they are, so neither needs the
//! other. Editors show the docstrings of fields, so write them for authors of recipes.
//!
//! ```
//! let shapes = zoo_settings::Shapes { train: 10, ..Default::default() };
//! assert_eq!((shapes.val, shapes.size.extent()), (200, [64, 64]));
//! ```

#[doc(hidden)]
pub use serde_inline_default::serde_inline_default;

/// Declares settings: a struct whose keys have their defaults beside them. A key without a default must be written;
/// `key?: T` may be left out, is an `Option<T>`, and is not written if there is none. If no key must be written, the
/// struct has a default too.
#[macro_export]
macro_rules! settings {
    ($(#[$about:meta])* pub struct $name:ident {$(
        $(#[$about_key:meta])* pub $key:ident $(?: $optional:ty)? $(: $value:ty = $default:expr)?,
    )+}) => {
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        $(#[$about])*
        pub struct $name {$(
            $(#[$about_key])*
            // The second attribute is never there: it ties the first one to optional keys.
            $(#[serde(skip_serializing_if = "Option::is_none")] #[cfg_attr(any(), doc = stringify!($optional))])?
            pub $key: $($value)? $(Option<$optional>)?,
        )+}

        impl Default for $name {
            fn default() -> Self {
                Self {$($key: $($default)? $(<Option<$optional>>::None)?,)+}
            }
        }
    };
    ($(#[$about:meta])* pub struct $name:ident {$(
        $(#[$about_key:meta])* pub $key:ident $(?: $optional:ty)? $(: $value:ty $(= $default:expr)?)?,
    )*}) => {
        #[$crate::serde_inline_default]
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        $(#[$about])*
        pub struct $name {$(
            $(#[$about_key])*
            $($(#[serde_inline_default($default)])?)?
            $(#[serde(skip_serializing_if = "Option::is_none")] #[cfg_attr(any(), doc = stringify!($optional))])?
            pub $key: $($value)? $(Option<$optional>)?,
        )*}
    };
}

mod boxed_shapes;
mod characters;
mod detection;
mod image_size;
mod pad_mode;
mod reading;
mod shapes;
mod steps;
mod text;
mod text_scenes;
mod tracking;
mod videos;

pub use boxed_shapes::BoxedShapes;
pub use characters::Characters;
pub use detection::{BoxAnchors, BoxDetection, BoxPreparation};
pub use image_size::ImageSize;
pub use pad_mode::PadMode;
pub use reading::{OnError, TextFormat};
pub use shapes::Shapes;
pub use steps::{
    CenterCrop, ChannelOrder, ColorJitter, Filter, HorizontalFlip, Levels, Normalize, RandAugment, RandomCoveringCrop,
    RandomCrop, RandomErasing, RandomResizedCrop, Resize, ResizeTo, Step, TrivialAugment,
};
pub use text::{TextDetection, TextPreparation, TextShape};
pub use text_scenes::TextScenes;
pub use tracking::{Anchors, CropVariation, PairPreparation, Tracking};
pub use videos::Videos;
