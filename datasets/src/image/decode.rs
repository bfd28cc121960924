//! Decoding PNG and JPEG files to 8-bit RGB, as Pillow's `Image.open(path).convert("RGB")` does.

use std::io::Cursor;

use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader};

use super::jpeg::{self, JpegError};
use super::{Image, Rect, Size};

/// Most pixels an image may have; a header that claims more is refused before anything is decoded.
pub const MAX_PIXELS: usize = 64 << 20;

/// Longest side an image may have.
pub const MAX_SIDE: usize = 20_000;

/// Why bytes are no usable image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Neither the signature of PNG nor of JPEG.
    #[error("neither a PNG nor a JPEG file")]
    UnknownFormat,
    /// The content of another format.
    #[error("{0}, but only PNG and JPEG files are read")]
    Foreign(&'static str),
    /// The header claims an image beyond [`MAX_SIDE`] or [`MAX_PIXELS`].
    #[error("{size} pixels exceed the limits of {MAX_SIDE} per side and {MAX_PIXELS} in total")]
    TooLarge {
        /// The size claimed.
        size: Size,
    },
    /// The requested part is empty or not inside the image.
    #[error("the part {region:?} is not inside an image of {size} pixels")]
    RegionOutside {
        /// The part.
        region: Rect,
        /// Size of the image.
        size: Size,
    },
    /// A damaged JPEG file, or one that uses a feature that is not supported.
    #[error(transparent)]
    Jpeg(#[from] JpegError),
    /// A file that is damaged otherwise.
    #[error("{0}")]
    Invalid(String),
}

/// The formats that are decoded.
enum Format {
    Png,
    Jpeg,
}

impl Format {
    fn detect(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            Ok(Self::Png)
        } else if bytes.starts_with(b"\xff\xd8") {
            Ok(Self::Jpeg)
        } else {
            Err(foreign(bytes).map_or(DecodeError::UnknownFormat, DecodeError::Foreign))
        }
    }
}

/// What bytes are, of that which often has the name of an image.
fn foreign(bytes: &[u8]) -> Option<&'static str> {
    let begins = |start: &[u8]| bytes.starts_with(start);
    let at = |place: usize, part: &[u8]| bytes.get(place..).is_some_and(|rest| rest.starts_with(part));
    let found = [
        (bytes.is_empty(), "an empty file"),
        (begins(b"GIF8"), "a GIF file"),
        (begins(b"BM"), "a BMP file"),
        (begins(b"RIFF") && at(8, b"WEBP"), "a WebP file"),
        (begins(b"II*\0") || begins(b"MM\0*"), "a TIFF file"),
        (at(4, b"ftypavif") || at(4, b"ftypavis"), "an AVIF file"),
        (at(4, b"ftyphe") || at(4, b"ftypmif1"), "a HEIC file"),
        (begins(b"\xff\x0a") || at(4, b"JXL "), "a JPEG XL file"),
        (at(4, b"jP  ") || begins(b"\xff\x4f\xff\x51"), "a JPEG 2000 file"),
        (begins(b"P5\n") || begins(b"P6\n"), "a PNM file"),
        (begins(b"version https://git-lfs"), "a pointer of Git LFS (`git lfs pull` gets the file)"),
        (begins(b"<"), "a page or another text in XML"),
    ];
    found.iter().find_map(|(fits, what)| fits.then_some(*what))
}

/// Refuses sizes beyond the limits, and empty images.
pub(crate) fn check_size(size: Size) -> Result<Size, DecodeError> {
    if size.width == 0 || size.height == 0 {
        return Err(DecodeError::Invalid(format!("an image of {size} pixels")));
    }
    if size.width > MAX_SIDE || size.height > MAX_SIDE || size.area() > MAX_PIXELS {
        return Err(DecodeError::TooLarge { size });
    }
    Ok(size)
}

/// The size an encoded image claims, without decoding it.
///
/// # Errors
/// If the header cannot be read or claims more than the limits.
pub fn encoded_size(bytes: &[u8]) -> Result<Size, DecodeError> {
    match Format::detect(bytes)? {
        Format::Png => {
            let reader = ImageReader::with_format(Cursor::new(bytes), ImageFormat::Png);
            let (width, height) = reader.into_dimensions().map_err(invalid)?;
            check_size(Size::new(width as usize, height as usize))
        }
        Format::Jpeg => jpeg::size(bytes),
    }
}

/// Decodes a PNG or JPEG file to RGB as Pillow does: grey is repeated, alpha dropped without blending, palettes looked
/// up, 16-bit colours cut to their high byte, 16-bit grey clipped at 255 (Pillow's mode `I;16`).
///
/// # Errors
/// If the bytes are no such file, are damaged, or claim more than the limits.
pub fn decode(bytes: &[u8]) -> Result<Image, DecodeError> {
    match Format::detect(bytes)? {
        Format::Png => decode_png(bytes),
        Format::Jpeg => jpeg::decode(bytes, None),
    }
}

/// Decodes the part of an image inside `region`; identical to the same crop of the whole image.
///
/// # Errors
/// As [`decode`], or if `region` is empty or not inside the image.
pub fn decode_region(bytes: &[u8], region: Rect) -> Result<Image, DecodeError> {
    if let Format::Jpeg = Format::detect(bytes)? {
        return jpeg::decode(bytes, Some(region));
    }
    let image = decode(bytes)?;
    if region == Rect::full(image.size()) {
        return Ok(image);
    }
    image.crop(region).ok_or(DecodeError::RegionOutside { region, size: image.size() })
}

fn invalid(error: ImageError) -> DecodeError {
    DecodeError::Invalid(error.to_string())
}

/// Refuses a palette that is not made of whole colours (PNG specification, 11.2.2 PLTE), over which png 0.18.1 panics
/// (<https://github.com/image-rs/image-png/issues/694>).
pub(super) fn check_palette(png: &[u8]) -> Result<(), DecodeError> {
    let mut chunks = png.get(8..).unwrap_or_default();
    // A chunk: the length of its content, its name, its content, a checksum.
    while let Some((length, chunk)) = chunks.split_first_chunk() {
        let length = u32::from_be_bytes(*length) as usize;
        match chunk.get(..4) {
            Some(b"PLTE") if !length.is_multiple_of(3) => {
                return Err(DecodeError::Invalid(format!("a palette of {length} bytes, which is not a multiple of 3")));
            }
            Some(b"IDAT") | None => break,
            Some(_) => chunks = chunk.get(length.saturating_add(8)..).unwrap_or_default(),
        }
    }
    Ok(())
}

fn decode_png(bytes: &[u8]) -> Result<Image, DecodeError> {
    check_palette(bytes)?;
    let decoder = ImageReader::with_format(Cursor::new(bytes), ImageFormat::Png).into_decoder().map_err(invalid)?;
    let (width, height) = decoder.dimensions();
    let size = check_size(Size::new(width as usize, height as usize))?;
    // Of a grey file with a transparent level the decoder makes one with alpha. Depth and colour type are the bytes 24
    // and 25 of every file, in its header.
    let grey = bytes.get(24..26) == Some(&[16, 0]);
    let pixels = match DynamicImage::from_decoder(decoder).map_err(invalid)? {
        DynamicImage::ImageLumaA16(image) if grey => image.pixels().flat_map(|p| [clipped(p[0]); 3]).collect(),
        image => rgb_pixels(image),
    };
    Image::new(size, pixels).ok_or_else(|| DecodeError::Invalid("pixel count does not match the header".into()))
}

/// A grey level of 16 bits: Pillow clips it, but takes the high byte of colours and of grey with alpha.
fn clipped(level: u16) -> u8 {
    level.min(255) as u8
}

fn rgb_pixels(image: DynamicImage) -> Vec<u8> {
    let high = |v: u16| (v >> 8) as u8;
    match image {
        DynamicImage::ImageRgb8(image) => image.into_raw(),
        DynamicImage::ImageLuma8(image) => image.into_raw().into_iter().flat_map(|v| [v; 3]).collect(),
        DynamicImage::ImageLumaA8(image) => image.pixels().flat_map(|p| [p[0]; 3]).collect(),
        DynamicImage::ImageRgba8(image) => image.pixels().flat_map(|p| [p[0], p[1], p[2]]).collect(),
        DynamicImage::ImageLuma16(image) => image.into_raw().into_iter().flat_map(|v| [clipped(v); 3]).collect(),
        DynamicImage::ImageLumaA16(image) => image.pixels().flat_map(|p| [high(p[0]); 3]).collect(),
        DynamicImage::ImageRgb16(image) => image.into_raw().into_iter().map(high).collect(),
        DynamicImage::ImageRgba16(image) => image.pixels().flat_map(|p| [high(p[0]), high(p[1]), high(p[2])]).collect(),
        other => other.into_rgb8().into_raw(),
    }
}
