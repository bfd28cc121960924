//! Animated GIF files.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

use gif::{Encoder, Frame, Repeat};

use crate::DataError;
use crate::image::Image;

/// Speed of the search for a frame's 256 colours: 1 is best, 30 is fastest.
const SPEED: i32 = 10;

/// Writes `frames` as an animated GIF that repeats for ever, each frame shown for `hundredths` of a second.
///
/// # Errors
/// If there are no frames, they differ in size or are beyond 65535 pixels a side, or the file cannot be written.
pub fn write_gif(frames: &[Image], hundredths: u16, path: &Path) -> Result<(), DataError> {
    let io_error = DataError::io(path);
    let first = frames.first().ok_or_else(|| DataError::Config("an animation without frames".into()))?;
    if let Some(other) = frames.iter().find(|frame| frame.size() != first.size()) {
        let sizes = format!("{} and {}", first.size(), other.size());
        return Err(DataError::Config(format!("an animation of frames of {sizes} pixels")));
    }
    let (Ok(width), Ok(height)) = (u16::try_from(first.width()), u16::try_from(first.height())) else {
        return Err(DataError::Config(format!("an animation of {} pixels", first.size())));
    };
    let failed = |error: gif::EncodingError| match error {
        gif::EncodingError::Io(source) => io_error(source),
        other => io_error(io::Error::other(other)),
    };
    let file = BufWriter::new(File::create(path).map_err(io_error)?);
    let mut encoder = Encoder::new(file, width, height, &[]).map_err(failed)?;
    encoder.set_repeat(Repeat::Infinite).map_err(failed)?;
    for image in frames {
        let mut frame = Frame::from_rgb_speed(width, height, image.pixels(), SPEED);
        frame.delay = hundredths;
        encoder.write_frame(&frame).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Size;

    #[test]
    fn frames_come_back_from_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.gif");
        let frames = [[250, 0, 0], [0, 0, 250]].map(|colour| Image::filled(Size::new(5, 4), colour));
        write_gif(&frames, 7, &path).unwrap();
        let mut options = gif::DecodeOptions::new();
        options.set_color_output(gif::ColorOutput::RGBA);
        let mut decoder = options.read_info(File::open(&path).unwrap()).unwrap();
        for image in &frames {
            let frame = decoder.read_next_frame().unwrap().unwrap();
            assert_eq!((frame.width, frame.height, frame.delay), (5, 4, 7));
            assert!(frame.buffer.chunks(4).zip(image.pixels().chunks(3)).all(|(a, b)| a[..3] == *b));
        }
        assert!(decoder.read_next_frame().unwrap().is_none());
        assert!(write_gif(&[], 7, &path).is_err());
        let unlike = [frames[0].clone(), Image::filled(Size::new(4, 5), [0; 3])];
        assert!(write_gif(&unlike, 7, &path).is_err());
    }
}
