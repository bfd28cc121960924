//! Several images in a row.

use crate::image::{Image, Size};

/// `images` side by side, `columns` in a row, with gaps of two grey pixels; every place is as large as the largest
/// image.
pub fn strip(images: &[Image], columns: usize) -> Image {
    const GAP: usize = 2;
    const GREY: [u8; 3] = [64; 3];
    let columns = columns.clamp(1, images.len().max(1));
    let rows = images.len().div_ceil(columns).max(1);
    let largest = |side: fn(&Image) -> usize| images.iter().map(side).max().unwrap_or(1);
    let cell = Size::new(largest(Image::width), largest(Image::height));
    let size = Size::new(columns * (cell.width + GAP) + GAP, rows * (cell.height + GAP) + GAP);
    let mut sheet = Image::filled(size, GREY);
    for (i, image) in images.iter().enumerate() {
        let (left, top) = (GAP + i % columns * (cell.width + GAP), GAP + i / columns * (cell.height + GAP));
        for y in 0..image.height() {
            let start = 3 * ((top + y) * size.width + left);
            sheet.pixels_mut()[start..start + 3 * image.width()].copy_from_slice(image.row(y));
        }
    }
    sheet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_lie_side_by_side() {
        let images = [Image::filled(Size::new(3, 2), [1; 3]), Image::filled(Size::new(1, 4), [2; 3])];
        let row = strip(&images, 2);
        assert_eq!(row.size(), Size::new(12, 8));
        assert_eq!(row.crop(crate::Rect::new(2, 2, 3, 2)).unwrap(), images[0]);
        assert_eq!(row.crop(crate::Rect::new(7, 2, 1, 4)).unwrap(), images[1]);
        assert_eq!(strip(&images, 1).size(), Size::new(7, 14));
        assert_eq!(strip(&[], 5).size(), Size::new(5, 5));
    }
}
