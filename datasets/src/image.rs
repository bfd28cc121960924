//! Images in memory and in files.

mod decode;
mod encode;
mod jpeg;
mod labels;
mod warp;

pub(crate) use decode::check_size;
pub use decode::{DecodeError, MAX_PIXELS, MAX_SIDE, decode, decode_region, encoded_size};
pub use encode::write_png;
pub use jpeg::JpegError;
pub use labels::decode_labels;
pub use warp::{warp, warp_grid};

/// Width and height in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Size {
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl From<zoo_settings::ImageSize> for Size {
    fn from(size: zoo_settings::ImageSize) -> Self {
        let [height, width] = size.extent();
        Self { width, height }
    }
}

impl Size {
    /// A size of `width` by `height`.
    pub const fn new(width: usize, height: usize) -> Self {
        Self { width, height }
    }

    /// A square.
    pub const fn square(side: usize) -> Self {
        Self::new(side, side)
    }

    /// Number of pixels.
    pub const fn area(self) -> usize {
        self.width * self.height
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

/// A rectangle of pixels inside an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rect {
    /// First column.
    pub x: usize,
    /// First row.
    pub y: usize,
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl Rect {
    /// A rectangle from its corner and size.
    pub const fn new(x: usize, y: usize, width: usize, height: usize) -> Self {
        Self { x, y, width, height }
    }

    /// All of an image of `size`.
    pub const fn full(size: Size) -> Self {
        Self::new(0, 0, size.width, size.height)
    }

    /// Its size.
    pub const fn size(self) -> Size {
        Size::new(self.width, self.height)
    }

    /// First column to the right of it.
    pub const fn right(self) -> usize {
        self.x + self.width
    }

    /// First row below it.
    pub const fn bottom(self) -> usize {
        self.y + self.height
    }
}

/// An image of 8-bit RGB pixels, row by row (HWC).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    size: Size,
    pixels: Vec<u8>,
}

impl Image {
    /// An image from its pixels; `None` unless both sides are positive and there are exactly `3 * width * height`
    /// bytes.
    pub fn new(size: Size, pixels: Vec<u8>) -> Option<Self> {
        let bytes = size.width.checked_mul(size.height)?.checked_mul(3)?;
        (bytes > 0 && bytes == pixels.len()).then_some(Self { size, pixels })
    }

    /// An image of one colour. Sides of 0 become 1.
    pub fn filled(size: Size, colour: [u8; 3]) -> Self {
        let size = Size::new(size.width.max(1), size.height.max(1));
        let [red, green, blue] = colour;
        let grey = red == green && green == blue;
        let pixels = if grey { vec![red; 3 * size.area()] } else { colour.repeat(size.area()) };
        Self { size, pixels }
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

    /// The bytes, HWC.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The bytes, HWC, to change in place.
    pub fn pixels_mut(&mut self) -> &mut [u8] {
        &mut self.pixels
    }

    /// The bytes of row `y`.
    ///
    /// # Panics
    /// If `y` is not a row of the image.
    pub fn row(&self, y: usize) -> &[u8] {
        &self.pixels[y * self.size.width * 3..][..self.size.width * 3]
    }

    /// A copy of the part inside `rect`; `None` if `rect` is empty or reaches beyond the image.
    pub fn crop(&self, rect: Rect) -> Option<Image> {
        if rect.right() > self.width() || rect.bottom() > self.height() {
            return None;
        }
        let mut pixels = Vec::with_capacity(rect.size().area() * 3);
        for y in rect.y..rect.bottom() {
            pixels.extend_from_slice(&self.row(y)[rect.x * 3..rect.right() * 3]);
        }
        Image::new(rect.size(), pixels)
    }
}
