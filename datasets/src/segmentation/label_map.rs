//! A class per pixel.

use crate::grid::Grid;
use crate::image::Size;

/// The class of each pixel, or [`VOID`].
pub type LabelMap = Grid<u8>;

/// The label of ignored pixels: contours in PASCAL VOC, padding outside the image after a crop.
pub const VOID: u8 = 255;

impl LabelMap {
    /// The map at another size, each pixel that of the nearest centre (Pillow's `NEAREST`).
    #[must_use]
    pub fn nearest(&self, to: Size) -> Self {
        let (rows, columns) = (nearest_places(self.height(), to.height), nearest_places(self.width(), to.width));
        let mut resized = Self::filled(to, VOID);
        for (y, from) in rows.into_iter().enumerate() {
            let row = self.row(from);
            resized.row_mut(y).iter_mut().zip(&columns).for_each(|(out, column)| *out = row[*column]);
        }
        resized
    }

    /// The part of `size` whose upper left corner is at `(x, y)`; [`VOID`] beyond the map.
    #[must_use]
    pub fn part(&self, (x, y): (usize, usize), size: Size) -> Self {
        let mut part = Self::filled(size, VOID);
        let columns = self.width().saturating_sub(x).min(size.width);
        for row in 0..self.height().saturating_sub(y).min(size.height) {
            part.row_mut(row)[..columns].copy_from_slice(&self.row(y + row)[x..x + columns]);
        }
        part
    }
}

/// The nearest of `from` places for each of `to` along an axis. Pillow adds step after step, so that roundings add up:
/// where a centre lies between two places, the product of step and place can give the other one.
fn nearest_places(from: usize, to: usize) -> Vec<usize> {
    let step = from as f64 / to as f64;
    let centres = std::iter::successors(Some(0.5 * step), |centre| Some(centre + step));
    centres.take(to).map(|centre| (centre as usize).min(from.saturating_sub(1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(width: usize, values: &[u8]) -> LabelMap {
        LabelMap::new(Size::new(width, values.len() / width), values.to_vec()).unwrap()
    }

    /// `Image.resize((w, h), NEAREST)` of Pillow 13.
    #[test]
    fn the_nearest_pixel_is_taken() {
        let row = map(5, &[1, 2, 3, 4, 5]);
        assert_eq!(row.nearest(Size::new(3, 1)).values(), [1, 3, 5]);
        assert_eq!(row.nearest(Size::new(2, 1)).values(), [2, 4]);
        assert_eq!(row.nearest(Size::new(8, 1)).values(), [1, 1, 2, 3, 3, 4, 5, 5]);
        assert_eq!(map(2, &[1, 2, 3, 4]).nearest(Size::new(3, 3)).values(), [1, 2, 2, 3, 4, 4, 3, 4, 4]);
        assert_eq!(row.nearest(row.size()), row);
    }

    /// Pillow 13 on `numpy.arange(500)` as an image of one row, and of one column: the places where a centre lies
    /// between two pixels.
    #[test]
    fn centres_between_two_pixels_fall_as_in_pillow() {
        for (to, expected) in [
            (426, &[(106, 124), (319, 374)][..]),
            (110, &[(38, 174), (49, 224), (60, 274), (71, 324)]),
            (693, &[(346, 249)]),
        ] {
            let places = nearest_places(500, to);
            assert_eq!(places.len(), to);
            for (place, from) in expected {
                assert_eq!(places[*place], *from, "{to}: {place}");
            }
        }
        let values: Vec<u8> = (0..500).map(|place| (place % 251) as u8).collect();
        let (row, column) = (map(500, &values), map(1, &values));
        // 374 is 123 modulo 251.
        assert_eq!(row.nearest(Size::new(426, 1)).values()[319], 123);
        assert_eq!(column.nearest(Size::new(1, 426)).values()[319], 123);
    }

    #[test]
    fn what_lies_beyond_is_void() {
        let whole = map(3, &[1, 2, 3, 4, 5, 6]);
        assert_eq!(whole.part((1, 1), Size::new(3, 2)).values(), [5, 6, VOID, VOID, VOID, VOID]);
        assert_eq!(whole.part((1, 0), Size::new(1, 2)).values(), [2, 5]);
        assert_eq!(whole.part((7, 7), Size::new(1, 1)).values(), [VOID]);
    }
}
