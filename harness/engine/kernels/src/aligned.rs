//! A buffer of f32 that starts on a cache line.

use crate::allocator::advise_large_pages;
use std::ops::{Deref, DerefMut};

/// f32 values of one cache line.
const LINE: usize = 16;

/// f32 elements aligned to 64 bytes, so that 16 consecutive elements at a multiple of 16 are one cache line.
///
/// Zeros come from the system, which gives memory to a page when it is first written; large buffers have large pages.
#[derive(Default)]
pub struct AlignedBuf {
    values: Vec<f32>,
    /// Index of the first element: those before it only align it.
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// A buffer of `len` zeros.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let mut values = vec![0.0; len + LINE - 1];
        advise_large_pages(&mut values);
        // A multiple of four bytes is at most 15 elements before a multiple of 64.
        let start = values.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE - 1);
        Self { values, start, len }
    }

    /// A copy of `data`.
    #[must_use]
    pub fn from_slice(data: &[f32]) -> Self {
        let mut out = Self::zeroed(data.len());
        out.copy_from_slice(data);
        out
    }

    /// Makes the buffer hold at least `len` elements; new elements are zero, old ones keep their values.
    pub fn grow(&mut self, len: usize) {
        if len > self.len {
            let mut larger = Self::zeroed(len);
            larger[..self.len].copy_from_slice(self);
            *self = larger;
        }
    }
}

impl Clone for AlignedBuf {
    fn clone(&self) -> Self {
        Self::from_slice(self)
    }
}

impl Deref for AlignedBuf {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.values[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.values[self.start..self.start + self.len]
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlignedBuf").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_and_keeps_values_when_it_grows() {
        let mut buf = AlignedBuf::from_slice(&[1.0, 2.0, 3.0]);
        assert_eq!(buf.as_ptr() as usize % 64, 0);
        buf.grow(40);
        assert_eq!(buf.as_ptr() as usize % 64, 0);
        assert_eq!(&buf[..4], &[1.0, 2.0, 3.0, 0.0]);
        assert_eq!(buf.len(), 40);
        buf.grow(10);
        assert_eq!(buf.len(), 40);
        assert!(AlignedBuf::default().is_empty());
    }
}
