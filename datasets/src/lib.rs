//! Data sets: readers, transforms, loader, generated sets.
//!
//! The crate does not depend on models or recipes; it is configured by plain structs. Settings that recipes write are
//! those of zoo-settings.
//!
//! * [`Image`]: 8-bit RGB; [`image::decode`] reads PNG and JPEG as Pillow does.
//! * [`transforms`]: Pillow's resize to the bit, torchvision's crops, normalisation, joined in a [`Pipeline`].
//! * [`Dataset`]: labelled images. [`ImageFolder`], [`Cifar10`] and [`IdxImages`] read them, [`open_root`] detects the
//!   kind of a folder, and [`Characters`] generates them.
//! * [`Loader`]: parallel, ordered, bounded batches, reproducible for any number of threads.
//! * [`segmentation`]: images with a class per pixel, read or generated, and their variation.
//! * [`detection`]: images with boxes, read or generated; anchors, their targets, and detections.
//! * [`language`]: text by characters or subwords, in windows or pairs of sentences.
//! * [`files`]: how files from anywhere are opened; [`atomic`]: how they are written.
//! * [`hash`] and [`Rng`]: the documented hash of the golden data, and random numbers made of it.
//!
//! ```
//! use zoo_datasets::transforms::{Filter, resize};
//! use zoo_datasets::{Image, Size};
//!
//! let image = Image::filled(Size::new(64, 48), [10, 20, 30]);
//! let small = resize(&image, Size::new(32, 24), Filter::Bilinear);
//! assert_eq!((small.width(), small.height(), &small.row(0)[..3]), (32, 24, &[10, 20, 30][..]));
//! ```

pub mod atomic;
mod cache;
mod characters;
mod checks;
mod dataset;
pub mod detection;
pub mod drawing;
mod error;
pub mod files;
pub mod geometry;
mod grid;
pub mod hash;
pub mod image;
pub mod language;
mod linear;
mod loader;
mod paint;
mod readers;
mod rng;
pub mod segmentation;
mod sheet;
pub mod text;
pub mod tracking;
pub mod transforms;

pub use cache::Cached;
pub use characters::Characters;
pub use dataset::{Annotated, Dataset, Source};
pub use error::DataError;
pub use grid::{Grid, Mask};
pub use image::{Image, Rect, Size};
pub use linear::{linear_baseline, linear_baseline_bytes, linear_baseline_samples};
pub use loader::{Ahead, Batch, Batches, Loader, LoaderConfig, Mix, Mixed, SampleLoader, Samples, Share};
pub use readers::{
    BoxFolder, Cifar10, Crop511, FrameFolders, IdxImages, ImageFolder, LabelFolder, Layout, LineError, Part, Root,
    TextFolder, open_class_folders, open_divided, open_root, parse_text_regions, read_image,
};
pub use rng::{Rng, shuffled};
pub use sheet::contact_sheet;
pub use transforms::{Normalize, Pipeline};
pub use zoo_settings::{OnError, TextFormat};
