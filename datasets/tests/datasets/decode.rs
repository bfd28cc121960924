//! Decoding against Pillow's pixels: samplings, scans, colour models and modes; and damaged files.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use zoo_datasets::hash::fnv1a64;
use zoo_datasets::image::{self, DecodeError};
use zoo_datasets::{Rect, Rng, Size};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images")
}

/// Name, size and hash of the pixels of every image, as `make.py` recorded them.
fn expected() -> Vec<(String, Size, u64)> {
    let text = fs::read_to_string(folder().join("expected.txt")).unwrap();
    let entry = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let size = Size::new(fields[1].parse().unwrap(), fields[2].parse().unwrap());
        (fields[0].to_owned(), size, u64::from_str_radix(fields[3], 16).unwrap())
    };
    text.lines().map(entry).collect()
}

fn bytes(name: &str) -> Vec<u8> {
    fs::read(folder().join(name)).unwrap()
}

#[test]
fn pixels_are_pillows() {
    let expected = expected();
    assert!(expected.len() > 40);
    for (name, size, hash) in expected {
        let bytes = bytes(&name);
        assert_eq!(image::encoded_size(&bytes).unwrap(), size, "{name}");
        let image = image::decode(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(image.size(), size, "{name}");
        assert_eq!(fnv1a64(image.pixels()), hash, "{name}: pixels differ");
    }
}

#[test]
fn a_region_is_the_crop_of_the_whole() {
    for (name, size, _) in expected() {
        let bytes = bytes(&name);
        let whole = image::decode(&bytes).unwrap();
        let mut rng = Rng::new(5, 0, size.area() as u64);
        for _ in 0..20 {
            let (x, y) = (rng.below(size.width), rng.below(size.height));
            let rect = Rect::new(x, y, 1 + rng.below(size.width - x), 1 + rng.below(size.height - y));
            assert_eq!(image::decode_region(&bytes, rect).unwrap(), whole.crop(rect).unwrap(), "{name} {rect:?}");
        }
        for rect in [Rect::new(0, 0, 0, 1), Rect::new(0, 0, size.width + 1, 1), Rect::new(0, size.height, 1, 1)] {
            assert!(matches!(image::decode_region(&bytes, rect), Err(DecodeError::RegionOutside { .. })), "{name}");
        }
    }
}

#[test]
fn truncated_files_are_errors() {
    for (name, _, _) in expected() {
        let bytes = bytes(&name);
        // The end-of-image marker of a baseline file tells nothing about pixels, but must be there.
        for cut in (0..bytes.len() - 1).step_by(1 + bytes.len() / 97) {
            let whole = image::decode(&bytes[..cut]);
            // A PNG file is complete when its pixels are, so that cutting the last chunks goes unnoticed.
            let complete = name.ends_with(".png") && cut + 24 >= bytes.len();
            assert!(complete || whole.is_err(), "{name} cut to {cut} of {} bytes", bytes.len());
        }
    }
}

/// A baseline header that claims `width` x `height` pixels.
fn claims(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = vec![0xFF, 0xD8, 0xFF, 0xC0, 0, 11, 8];
    bytes.extend(height.to_be_bytes());
    bytes.extend(width.to_be_bytes());
    bytes.extend([1, 1, 0x11, 0]);
    bytes
}

#[test]
fn absurd_sizes_are_refused_before_decoding() {
    for (width, height) in [(20_001, 1), (1, 20_001), (65_535, 65_535), (8193, 8193)] {
        let size = Size::new(width.into(), height.into());
        let refused = image::decode(&claims(width, height)).unwrap_err();
        assert!(matches!(refused, DecodeError::TooLarge { size: claimed } if claimed == size), "{refused}");
        assert!(matches!(image::encoded_size(&claims(width, height)), Err(DecodeError::TooLarge { .. })));
    }
    assert!(matches!(image::decode(&claims(0, 7)).unwrap_err(), DecodeError::Invalid(_)));
    assert!(matches!(image::decode(&claims(9, 7)).unwrap_err(), DecodeError::Jpeg(_)));
    // A PNG header of 100000 x 100000 pixels.
    let mut png = bytes("rgba.png");
    png[16..24].copy_from_slice(&[0, 1, 0x86, 0xA0, 0, 1, 0x86, 0xA0]);
    assert!(image::decode(&png).is_err());
}

#[test]
fn unsupported_processes_are_named() {
    let mut arithmetic = claims(8, 8);
    arithmetic[3] = 0xC9;
    let message = image::decode(&arithmetic).unwrap_err().to_string();
    assert!(message.contains("SOF9"), "{message}");
    let mut twelve_bits = claims(8, 8);
    twelve_bits[6] = 12;
    assert!(image::decode(&twelve_bits).unwrap_err().to_string().contains("12 bits"));
    assert!(matches!(image::decode(b"GIF89a"), Err(DecodeError::Foreign("a GIF file"))));
    assert!(matches!(image::decode(b""), Err(DecodeError::Foreign("an empty file"))));
    assert!(matches!(image::decode(b"no image"), Err(DecodeError::UnknownFormat)));
}

/// As libpng and the specification say; png 0.18.1 panics, and Pillow leaves the rest out.
#[test]
fn a_palette_is_made_of_whole_colours() {
    let odd = include_bytes!("../../../tests/fuzz/findings/image/palette-of-11-bytes.png");
    let message = image::decode(odd).unwrap_err().to_string();
    assert_eq!(message, "a palette of 11 bytes, which is not a multiple of 3");
}

proptest! {
    #[test]
    fn random_bytes_never_panic(tail in proptest::collection::vec(any::<u8>(), 0..400), signature in 0..3_usize) {
        let head: &[u8] = [&b"\xff\xd8\xff"[..], b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b""][signature];
        let bytes = [head, &tail].concat();
        let _ = image::decode(&bytes);
        let _ = image::decode_region(&bytes, Rect::new(0, 0, 3, 3));
    }

    /// Damaged files give an image of the claimed size or an error.
    #[test]
    fn damaged_files_never_panic(
        file in 0..1000_usize,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let expected = expected();
        let mut bytes = bytes(&expected[file % expected.len()].0);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(image) = image::decode(&bytes) {
            prop_assert_eq!(image.size(), image::encoded_size(&bytes).unwrap());
        }
    }
}
