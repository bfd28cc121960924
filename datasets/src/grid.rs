//! Values on the pixels of an image: masks, probability maps, targets.

use crate::image::{Rect, Size};

/// One value per pixel, row by row (HW).
#[derive(Debug, Clone, PartialEq)]
pub struct Grid<T> {
    size: Size,
    values: Vec<T>,
}

/// True where a pixel belongs to something.
pub type Mask = Grid<bool>;

impl<T: Copy> Grid<T> {
    /// A grid of one value.
    pub fn filled(size: Size, value: T) -> Self {
        Self { size, values: vec![value; size.area()] }
    }

    /// A grid from its values; `None` unless there are exactly `width * height`.
    pub fn new(size: Size, values: Vec<T>) -> Option<Self> {
        (size.width.checked_mul(size.height)? == values.len()).then_some(Self { size, values })
    }

    /// Width and height.
    pub const fn size(&self) -> Size {
        self.size
    }

    /// Columns.
    pub const fn width(&self) -> usize {
        self.size.width
    }

    /// Rows.
    pub const fn height(&self) -> usize {
        self.size.height
    }

    /// All values, row by row.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// All values, row by row, to change in place.
    pub fn values_mut(&mut self) -> &mut [T] {
        &mut self.values
    }

    /// The values, taken out.
    pub fn into_values(self) -> Vec<T> {
        self.values
    }

    /// The value at column `x`, row `y`; `None` outside.
    pub fn get(&self, x: isize, y: isize) -> Option<T> {
        let (x, y) = (usize::try_from(x).ok()?, usize::try_from(y).ok()?);
        (x < self.size.width && y < self.size.height).then(|| self.values[y * self.size.width + x])
    }

    /// Row `y`.
    ///
    /// # Panics
    /// If `y` is not a row of the grid.
    pub fn row(&self, y: usize) -> &[T] {
        &self.values[y * self.size.width..][..self.size.width]
    }

    /// Row `y`, to change in place.
    ///
    /// # Panics
    /// If `y` is not a row of the grid.
    pub fn row_mut(&mut self, y: usize) -> &mut [T] {
        &mut self.values[y * self.size.width..][..self.size.width]
    }

    /// A grid of the same size with `f` of every value.
    pub fn map<U: Copy>(&self, f: impl Fn(T) -> U) -> Grid<U> {
        Grid { size: self.size, values: self.values.iter().map(|&value| f(value)).collect() }
    }
}

impl Mask {
    /// Number of pixels that belong to it.
    pub fn count(&self) -> usize {
        self.values.iter().filter(|&&inside| inside).count()
    }

    /// The smallest rectangle around all its pixels; `None` if it is empty.
    pub fn bounds(&self) -> Option<Rect> {
        let rows = |y: &usize| self.row(*y).contains(&true);
        let top = (0..self.height()).find(rows)?;
        let bottom = (0..self.height()).rfind(rows)?;
        let columns = |x: &usize| (top..=bottom).any(|y| self.values[y * self.size.width + x]);
        let left = (0..self.width()).find(columns)?;
        let right = (0..self.width()).rfind(columns)?;
        Some(Rect::new(left, top, right - left + 1, bottom - top + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_enclose_all_pixels() {
        let mut mask = Mask::filled(Size::new(5, 4), false);
        assert_eq!(mask.bounds(), None);
        mask.row_mut(1)[3] = true;
        mask.row_mut(2)[1] = true;
        assert_eq!((mask.bounds(), mask.count()), (Some(Rect::new(1, 1, 3, 2)), 2));
        assert_eq!((mask.get(3, 1), mask.get(5, 1), mask.get(0, -1)), (Some(true), None, None));
    }
}
