//! Decoded images kept in memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::{DataError, Dataset, Image, Size, Source};

/// A data set whose images are kept, decoded, from their first use on, up to a number of bytes.
///
/// The contents of the cache depend on the order of use, but results do not.
pub struct Cached {
    inner: Arc<dyn Dataset>,
    images: Vec<OnceLock<Arc<Image>>>,
    /// Bytes of pixels that may still be kept.
    room: AtomicUsize,
}

impl Cached {
    /// Keeps up to `max_bytes` of pixels of `inner`.
    pub fn new(inner: Arc<dyn Dataset>, max_bytes: usize) -> Self {
        let images = std::iter::repeat_with(OnceLock::new).take(inner.len()).collect();
        Self { inner, images, room: AtomicUsize::new(max_bytes) }
    }

    /// Takes `bytes` out of the room that is left, if there is enough.
    fn reserve(&self, bytes: usize) -> bool {
        self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| room.checked_sub(bytes)).is_ok()
    }
}

impl Dataset for Cached {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn classes(&self) -> &[String] {
        self.inner.classes()
    }

    fn label(&self, index: usize) -> u32 {
        self.inner.label(index)
    }

    fn name(&self, index: usize) -> String {
        self.inner.name(index)
    }

    fn image_size(&self) -> Option<Size> {
        self.inner.image_size()
    }

    fn source(&self, index: usize) -> Result<Source<'_>, DataError> {
        let slot = &self.images[index];
        if let Some(image) = slot.get() {
            return Ok(Source::Shared(Arc::clone(image)));
        }
        if self.room.load(Ordering::Relaxed) == 0 {
            return self.inner.source(index);
        }
        let image = self.inner.image(index)?;
        let bytes = image.pixels().len();
        if !self.reserve(bytes) {
            return Ok(Source::Decoded(image));
        }
        let image = Arc::new(image);
        if slot.set(Arc::clone(&image)).is_err() {
            // Another thread was faster; release the space.
            self.room.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(Source::Shared(image))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Characters;

    #[test]
    fn the_cache_stays_below_its_limit_and_changes_nothing() {
        let plain = Characters::new(&Default::default(), 0, 5).unwrap();
        let bytes = plain.image(0).unwrap().pixels().len();
        let cached = Cached::new(Arc::new(plain.clone()), 2 * bytes + 1);
        for _ in 0..2 {
            for index in 0..5 {
                assert_eq!(cached.image(index).unwrap(), plain.image(index).unwrap());
            }
        }
        assert_eq!(cached.images.iter().filter(|slot| slot.get().is_some()).count(), 2);
        assert_eq!(cached.room.load(Ordering::Relaxed), 1);
    }
}
