//! Feature maps whose elements bounds look at.

use crate::{KernelError, error::MAP};

/// The elements of a row-major `[N, C, H, W]`.
#[derive(Clone, Copy)]
pub(super) struct FeatureMap<'a> {
    pub values: &'a [f32],
    pub dims: [usize; 4],
}

impl<'a> FeatureMap<'a> {
    pub fn new(dims: &[usize], values: &'a [f32]) -> Result<Self, KernelError> {
        let dims = dims.try_into().map_err(|_| KernelError::Operand { place: 0, expected: MAP })?;
        Ok(Self { values, dims })
    }

    /// Offset of a channel of an image.
    pub fn plane(&self, image: usize, channel: usize) -> usize {
        let [_, c, h, w] = self.dims;
        (image * c + channel) * h * w
    }
}
