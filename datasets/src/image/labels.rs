//! Decoding PNG files whose pixels are classes.

use std::io::Cursor;

use png::{BitDepth, ColorType, Decoder, DecodingError, Limits, Transformations};

use super::decode::{DecodeError, check_palette, check_size};
use super::{MAX_PIXELS, Size};
use crate::grid::Grid;

/// The indices of a PNG file with a palette of 256 colours at most, or the levels of a grey one: what Pillow's
/// `Image.open(path)` gives without a conversion (of 1 bit: with `convert("L")`). Levels of fewer than 8 bits are scaled
/// to 0..255, so the 4 levels of 2 bits are 0, 85, 170 and 255; indices are not, nor are levels of 16 bits.
///
/// # Errors
/// If the bytes are no such file, are damaged, or claim more than the limits; colours in place of classes, and levels
/// above 255.
pub fn decode_labels(bytes: &[u8]) -> Result<Grid<u8>, DecodeError> {
    let invalid = |error: DecodingError| DecodeError::Invalid(error.to_string());
    if !bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        return Err(DecodeError::Invalid("not a PNG file, but label maps must be".to_owned()));
    }
    check_palette(bytes)?;
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), Limits { bytes: 4 * MAX_PIXELS });
    decoder.set_transformations(Transformations::IDENTITY);
    let mut reader = decoder.read_info().map_err(invalid)?;
    let info = reader.info();
    let size = check_size(Size::new(info.width as usize, info.height as usize))?;
    let (bits, scale) = match (info.color_type, info.bit_depth) {
        (ColorType::Indexed, BitDepth::One) => (1, 1),
        (ColorType::Indexed, BitDepth::Two) => (2, 1),
        (ColorType::Indexed, BitDepth::Four) => (4, 1),
        (ColorType::Grayscale, BitDepth::One) => (1, 255),
        (ColorType::Grayscale, BitDepth::Two) => (2, 85),
        (ColorType::Grayscale, BitDepth::Four) => (4, 17),
        (ColorType::Indexed | ColorType::Grayscale, BitDepth::Eight) => (8, 1),
        (ColorType::Grayscale, BitDepth::Sixteen) => (16, 1),
        (colour, depth) => {
            let found = format!("{colour:?} of {} bits", depth as u8);
            return Err(DecodeError::Invalid(format!(
                "{found} are colours, not classes: the classes of a label map are palette entries or grey levels. Write \
                 the number of its class for each pixel, in Pillow Image.fromarray(classes.astype(\"uint8\")).save(PATH)"
            )));
        }
    };
    let line = reader.output_line_size(info.width);
    let line = line.ok_or_else(|| DecodeError::Invalid("rows without end".to_owned()))?;
    let mut packed = vec![0; line.saturating_mul(size.height)];
    reader.next_frame(&mut packed).map_err(invalid)?;
    let mut labels = Vec::with_capacity(size.area());
    for row in packed.chunks_exact(line) {
        if bits == 16 {
            let levels = row.as_chunks::<2>().0.iter().map(|level| u16::from_be_bytes(*level));
            for level in levels.take(size.width) {
                let label = u8::try_from(level).map_err(|_| {
                    DecodeError::Invalid(format!("the grey level {level} of 16 bits is beyond 255, the last label"))
                })?;
                labels.push(label);
            }
            continue;
        }
        let of_byte = |byte: &u8| {
            let byte = *byte;
            (0..8 / bits).rev().map(move |place| ((byte >> (place * bits)) & (u8::MAX >> (8 - bits))) * scale)
        };
        labels.extend(row.iter().flat_map(of_byte).take(size.width));
    }
    Grid::new(size, labels).ok_or_else(|| DecodeError::Invalid("pixel count does not match the header".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A PNG file of packed rows.
    fn png(size: (u32, u32), (colour, depth): (ColorType, BitDepth), rows: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, size.0, size.1);
        encoder.set_color(colour);
        encoder.set_depth(depth);
        if colour == ColorType::Indexed {
            encoder.set_palette((0..3 << depth as u8).map(|i| (i * 7) as u8).collect::<Vec<u8>>());
        }
        encoder.write_header().unwrap().write_image_data(rows).unwrap();
        bytes
    }

    /// `numpy.array(Image.open(path))` of Pillow 13; of 1 bit after `convert("L")`.
    #[test]
    fn classes_are_indices_and_scaled_levels_whatever_their_bits() {
        for (colour, scales) in [(ColorType::Indexed, [1, 1, 1]), (ColorType::Grayscale, [255, 85, 17])] {
            let decoded = |size, depth, rows: &[u8]| decode_labels(&png(size, (colour, depth), rows)).unwrap();
            assert_eq!(decoded((3, 2), BitDepth::Eight, &[0, 1, 255, 20, 0, 7]).values(), [0, 1, 255, 20, 0, 7]);
            let [of_1_bit, of_2_bits, of_4_bits] = scales;
            let found = decoded((3, 2), BitDepth::Four, &[0x1f, 0x20, 0xa0, 0x30]);
            assert_eq!(found.values(), [1, 15, 2, 10, 0, 3].map(|level| level * of_4_bits));
            let found = decoded((5, 1), BitDepth::Two, &[0b00_01_10_11, 0b10_00_00_00]);
            assert_eq!(found.values(), [0, 1, 2, 3, 2].map(|level| level * of_2_bits));
            let found = decoded((9, 1), BitDepth::One, &[0b1010_0001, 0b1000_0000]);
            assert_eq!(found.values(), [1, 0, 1, 0, 0, 0, 0, 1, 1].map(|level| level * of_1_bit));
        }
    }

    #[test]
    fn levels_of_16_bits_are_labels_up_to_255() {
        let file = |rows: &[u8]| decode_labels(&png((2, 1), (ColorType::Grayscale, BitDepth::Sixteen), rows));
        assert_eq!(file(&[0, 7, 0, 255]).unwrap().values(), [7, 255]);
        assert!(file(&[0, 7, 1, 0]).unwrap_err().to_string().contains("the grey level 256 of 16 bits"));
    }

    #[test]
    fn colours_are_refused() {
        let file = png((1, 1), (ColorType::Rgb, BitDepth::Eight), &[1, 2, 3]);
        let error = decode_labels(&file).unwrap_err().to_string();
        assert!(error.contains("Rgb of 8 bits are colours, not classes"), "{error}");
        assert!(decode_labels(b"\xff\xd8").unwrap_err().to_string().contains("not a PNG file"));
    }

    proptest! {
        #[test]
        fn damaged_files_are_errors(place in 8usize..80, value: u8, keep in 0usize..100) {
            let mut file = png((4, 3), (ColorType::Indexed, BitDepth::Eight), &[1; 12]);
            let place = place % file.len();
            file[place] = value;
            let _ = decode_labels(&file);
            file.truncate(keep);
            let _ = decode_labels(&file);
        }
    }
}
