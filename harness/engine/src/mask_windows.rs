//! Upsampling of the logits of a position to the size of its mask window, and its adjoint.

use zoo_graph::ops::{Interpolation, ResizeTap};

/// Bilinear interpolation of a map of `side * side` logits to `size * size` pixels.
pub(crate) struct Enlarged {
    /// Height and width of the map.
    pub side: usize,
    taps: Vec<ResizeTap>,
}

impl Enlarged {
    /// From one size to another.
    pub fn new(side: usize, size: usize, align_corners: bool) -> Self {
        Self { side, taps: Interpolation::Bilinear { align_corners }.taps(side, size) }
    }

    /// The enlarged map.
    pub fn enlarge(&self, map: &[f64]) -> Vec<f64> {
        let mut pixels = Vec::with_capacity(self.taps.len() * self.taps.len());
        let mut row = vec![0.0; self.side];
        for down in &self.taps {
            let [above, below] = [down.first, down.second].map(|i| &map[i * self.side..][..self.side]);
            for (row, (a, b)) in row.iter_mut().zip(above.iter().zip(below)) {
                *row = (1.0 - down.weight) * a + down.weight * b;
            }
            let across = self.taps.iter();
            pixels.extend(across.map(|t| (1.0 - t.weight) * row[t.first] + t.weight * row[t.second]));
        }
        pixels
    }

    /// The gradient of each logit from its pixels.
    pub fn reduce(&self, pixels: &[f64]) -> Vec<f64> {
        let mut map = vec![0.0; self.side * self.side];
        for (down, pixels) in self.taps.iter().zip(pixels.chunks_exact(self.taps.len())) {
            let mut row = vec![0.0; self.side];
            for (across, g) in self.taps.iter().zip(pixels) {
                row[across.first] += (1.0 - across.weight) * g;
                row[across.second] += across.weight * g;
            }
            for (i, share) in [(down.first, 1.0 - down.weight), (down.second, down.weight)] {
                let line = &mut map[i * self.side..][..self.side];
                line.iter_mut().zip(&row).for_each(|(sum, g)| *sum += share * g);
            }
        }
        map
    }
}
