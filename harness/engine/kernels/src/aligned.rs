//! A buffer of f32 that starts on a cache line.

use std::ops::{Deref, DerefMut};

/// f32 values of one cache line.
const LINE: usize = 16;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LINE]);

/// f32 elements aligned to 64 bytes, so that 16 consecutive elements at a multiple of 16 are one cache line.
#[derive(Clone, Default)]
pub struct AlignedBuf {
    lines: Vec<Line>,
    len: usize,
}

impl AlignedBuf {
    /// A buffer of `len` zeros.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self { lines: vec![Line([0.0; LINE]); len.div_ceil(LINE)], len }
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
            self.lines.resize(len.div_ceil(LINE), Line([0.0; LINE]));
            self.len = len;
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: `Line` is `repr(C)` around `[f32; 16]`, so the vector's memory is `lines.len() * 16` initialised
        // f32 without gaps, and `len` never exceeds that.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
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
