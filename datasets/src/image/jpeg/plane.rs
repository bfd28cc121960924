//! The samples of one component, or the part of them that is needed.

use std::ops::Range;

use super::header::{Component, QuantTable};
use super::idct::{Block, Extent, inverse_dct};
use crate::image::{Rect, Size};

/// Samples of a component: whole blocks that cover what a part of the image depends on.
pub(super) struct Plane {
    samples: Vec<u8>,
    stride: usize,
    /// Blocks that are kept.
    columns: Range<usize>,
    rows: Range<usize>,
    /// Size of the component, without padding.
    size: Size,
}

impl Plane {
    /// The plane with the samples for `region` of the image, where `scale` is the number of pixels per sample in each
    /// direction. Smooth upsampling reads one sample beyond the region.
    pub fn new(component: &Component, scale: Size, region: Rect) -> Self {
        let blocks = |first: usize, end: usize, scale: usize, length: usize| {
            let first = (first / scale).saturating_sub(1);
            let last = ((end - 1) / scale + 1).min(length - 1);
            first / 8..last / 8 + 1
        };
        let columns = blocks(region.x, region.right(), scale.width, component.size.width);
        let rows = blocks(region.y, region.bottom(), scale.height, component.size.height);
        let stride = columns.len() * 8;
        Self { samples: vec![0; stride * rows.len() * 8], stride, columns, rows, size: component.size }
    }

    /// Block rows that are kept.
    pub fn block_rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Column and row of all blocks that are kept.
    pub fn blocks(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let columns = self.columns.clone();
        self.rows.clone().flat_map(move |row| columns.clone().map(move |column| (column, row)))
    }

    /// True if the block is kept.
    #[inline(always)]
    pub fn holds(&self, column: usize, row: usize) -> bool {
        self.columns.contains(&column) && self.rows.contains(&row)
    }

    /// Computes the samples of a block that is kept.
    #[inline(always)]
    pub fn put(&mut self, column: usize, row: usize, block: &Block, extent: Extent, quant: &QuantTable) {
        let position = (row - self.rows.start) * 8 * self.stride + (column - self.columns.start) * 8;
        inverse_dct(block, extent, quant, &mut self.samples, position, self.stride);
    }

    /// The samples of row `y` from [`first_column`](Self::first_column) on; beyond the component, its last row.
    pub fn row(&self, y: usize) -> &[u8] {
        let y = y.min(self.size.height - 1) - self.rows.start * 8;
        &self.samples[y * self.stride..][..self.stride]
    }

    /// Column of the first sample of every [`row`](Self::row).
    pub fn first_column(&self) -> usize {
        self.columns.start * 8
    }

    /// Size of the component.
    pub fn size(&self) -> Size {
        self.size
    }
}
