//! Contact sheets of data sets.

use crate::image::{Image, Size};
use crate::transforms::{Filter, resize};
use crate::{DataError, Dataset};

/// Longest side of a picture on the sheet.
const MAX_CELL: usize = 256;

/// The first `rows * columns` images of `dataset` in a grid with one-pixel gaps; places beyond its end stay grey.
///
/// All cells have the size of the first image, shrunk to 256 pixels if it is larger; other images are resized to it.
///
/// # Errors
/// If an image cannot be read, or the grid is empty or has more than 10000 cells.
pub fn contact_sheet(dataset: &dyn Dataset, rows: usize, columns: usize) -> Result<Image, DataError> {
    const GREY: [u8; 3] = [64; 3];
    let cells = rows.saturating_mul(columns);
    if !(1..=10_000).contains(&cells) || dataset.is_empty() {
        return Err(DataError::Config(format!("a sheet of {rows} x {columns} out of {} images", dataset.len())));
    }
    let first = dataset.image(0)?.size();
    let cell = Size::new(first.width.min(MAX_CELL), first.height.min(MAX_CELL));
    let size = Size::new(columns * (cell.width + 1) + 1, rows * (cell.height + 1) + 1);
    let mut sheet = Image::filled(size, GREY);
    for index in 0..cells.min(dataset.len()) {
        let image = resize(&dataset.image(index)?, cell, Filter::Bilinear);
        let (left, top) = (1 + index % columns * (cell.width + 1), 1 + index / columns * (cell.height + 1));
        for y in 0..cell.height {
            let start = ((top + y) * size.width + left) * 3;
            sheet.pixels_mut()[start..start + cell.width * 3].copy_from_slice(image.row(y));
        }
    }
    Ok(sheet)
}
