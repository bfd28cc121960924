//! The interface between a data set and the loader.

use std::borrow::Cow;
use std::sync::Arc;

use crate::DataError;
use crate::image::{self, DecodeError, Image, Rect, Size};

/// Labelled images, addressed by index.
///
/// Implementations are pure: the same index gives the same image, from any thread.
pub trait Dataset: Send + Sync {
    /// Number of samples.
    fn len(&self) -> usize;

    /// True if there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Names of the classes; labels are indices into them.
    fn classes(&self) -> &[String];

    /// Class of sample `index` (below [`len`](Self::len)).
    fn label(&self, index: usize) -> u32;

    /// The name of sample `index` in messages: its path, or its generator.
    fn name(&self, index: usize) -> String;

    /// Size of all images, if they share one.
    fn image_size(&self) -> Option<Size>;

    /// The image of sample `index`, possibly still encoded.
    ///
    /// # Errors
    /// If its file cannot be read.
    fn source(&self, index: usize) -> Result<Source<'_>, DataError>;

    /// The image of sample `index`.
    ///
    /// # Errors
    /// If its file cannot be read or decoded.
    fn image(&self, index: usize) -> Result<Image, DataError> {
        self.source(index)?.decode().map_err(|source| DataError::Decode { name: self.name(index), source })
    }
}

/// Images with an annotation each, addressed by index: a label map, the outlines of its text, its objects.
///
/// Implementations are pure: the same index gives the same image and annotation, from any thread.
pub trait Annotated<A>: Send + Sync {
    /// Number of images.
    fn len(&self) -> usize;

    /// True if there are no images.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Names of the classes, in the order of the labels; none if annotations have no classes. For boxes, index 0 is the
    /// background and has no object, as in torchvision's models, unless the annotations use it.
    fn classes(&self) -> &[String] {
        &[]
    }

    /// The name of image `index` in messages: its path, or its generator.
    fn name(&self, index: usize) -> String;

    /// Image `index` (below [`len`](Self::len)) and its annotation; a label map has the size of the image.
    ///
    /// # Errors
    /// If a file cannot be read or decoded, or the annotation is of an image of another size.
    fn load(&self, index: usize) -> Result<(Image, A), DataError>;
}

/// An image that may still be encoded, so that only the part that is needed has to be decoded.
#[derive(Debug, Clone)]
pub enum Source<'a> {
    /// Pixels.
    Decoded(Image),
    /// Pixels that are kept elsewhere too.
    Shared(Arc<Image>),
    /// The bytes of a PNG or JPEG file.
    Encoded(Cow<'a, [u8]>),
}

impl Source<'_> {
    /// Size of the image.
    ///
    /// # Errors
    /// If the file's header is damaged or claims too large an image.
    pub fn size(&self) -> Result<Size, DecodeError> {
        match self {
            Self::Decoded(image) => Ok(image.size()),
            Self::Shared(image) => Ok(image.size()),
            Self::Encoded(bytes) => image::encoded_size(bytes),
        }
    }

    /// The whole image.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn decode(self) -> Result<Image, DecodeError> {
        match self {
            Self::Decoded(image) => Ok(image),
            Self::Shared(image) => Ok(Arc::unwrap_or_clone(image)),
            Self::Encoded(bytes) => image::decode(&bytes),
        }
    }

    /// The part of the image inside `region`.
    ///
    /// # Errors
    /// If the file is damaged, or `region` is empty or not inside the image.
    pub fn decode_region(self, region: Rect) -> Result<Image, DecodeError> {
        let image = match &self {
            Self::Decoded(image) => image,
            Self::Shared(image) => image.as_ref(),
            Self::Encoded(bytes) => return image::decode_region(bytes, region),
        };
        if region == Rect::full(image.size()) {
            return self.decode();
        }
        image.crop(region).ok_or(DecodeError::RegionOutside { region, size: image.size() })
    }
}
