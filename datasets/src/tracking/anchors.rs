//! Anchor boxes on a grid (`Anchors`).

use super::TargetBox;
use crate::geometry::Point;
use zoo_settings as settings;

/// Anchors of every shape at every place of a square grid, in the order of the network's outputs: shape, row, column.
#[derive(Debug, Clone, PartialEq)]
pub struct Anchors {
    /// Width and height of each shape.
    shapes: Vec<(f64, f64)>,
    stride: usize,
    side: usize,
    /// x and y of the middle of the grid.
    middle: f64,
}

impl Anchors {
    /// Anchors on `side` x `side` places around (`middle`, `middle`).
    pub fn new(settings: &settings::Anchors, side: usize, middle: f64) -> Self {
        let area = (settings.stride * settings.stride) as f64;
        let shapes = settings.ratios.iter().flat_map(|ratio| {
            // Cut to whole numbers as the original does.
            let width = (area / ratio).sqrt().trunc();
            let height = (width * ratio).trunc();
            settings.scales.iter().map(move |scale| (width * scale, height * scale))
        });
        Self { shapes: shapes.collect(), stride: settings.stride, side, middle }
    }

    /// Number of shapes.
    pub fn shapes(&self) -> usize {
        self.shapes.len()
    }

    /// Places along a side of the grid.
    pub fn side(&self) -> usize {
        self.side
    }

    /// Number of anchors: shapes x side x side.
    pub fn len(&self) -> usize {
        self.shapes.len() * self.side * self.side
    }

    /// True if there are no anchors.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Anchor `index`, counted by shape, row and column.
    ///
    /// # Panics
    /// If there are not that many.
    pub fn anchor(&self, index: usize) -> TargetBox {
        let (width, height) = self.shapes[index / (self.side * self.side)];
        let (row, column) = (index / self.side % self.side, index % self.side);
        let place = |i: usize| self.middle - (self.side / 2 * self.stride) as f64 + (i * self.stride) as f64;
        TargetBox { centre: Point::new(place(column), place(row)), width, height }
    }

    /// All anchors in order.
    pub fn iter(&self) -> impl Iterator<Item = TargetBox> {
        (0..self.len()).map(|index| self.anchor(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_and_places_of_the_original() {
        let anchors = Anchors::new(&settings::Anchors::default(), 25, 127.0);
        let shapes: Vec<(f64, f64)> = (0..5).map(|s| anchors.anchor(s * 625)).map(|a| (a.width, a.height)).collect();
        assert_eq!(shapes, [(104.0, 32.0), (88.0, 40.0), (64.0, 64.0), (40.0, 80.0), (32.0, 96.0)]);
        assert_eq!((anchors.len(), anchors.anchor(0).centre), (3125, Point::new(31.0, 31.0)));
        assert_eq!(anchors.anchor(12 * 25 + 12).centre, Point::new(127.0, 127.0));
        assert_eq!(anchors.anchor(625 + 25 + 2).centre, Point::new(47.0, 39.0));
    }
}
