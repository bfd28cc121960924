//! Writes PNG files.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};

use super::Image;
use crate::DataError;

/// Writes `image` as a PNG file.
///
/// # Errors
/// If the file cannot be written.
pub fn write_png(image: &Image, path: &Path) -> Result<(), DataError> {
    let io_error = DataError::io(path);
    let file = BufWriter::new(File::create(path).map_err(io_error)?);
    // Sides come from images in memory, so they fit; an image beyond u32 is refused by the encoder's size check.
    let side = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    PngEncoder::new(file)
        .write_image(image.pixels(), side(image.width()), side(image.height()), ExtendedColorType::Rgb8)
        .map_err(|error| io_error(io::Error::other(error)))
}
