//! SiamMask's training data: crops of 511 x 511 pixels around their targets, listed in a JSON file.
//!
//! `{"VIDEO": {"TRACK": {"000012": [x1, y1, x2, y2]}}}` refers to `VIDEO/000012.TRACK.x.jpg` and, if the set has masks,
//! `VIDEO/000012.TRACK.m.png` below its root. Boxes (or `[width, height]`) are in the original frame. In a crop, the
//! target is in the centre, scaled so that its context is 127 pixels wide.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::folder::read_image;
use super::layout::expect_folder;
use super::masks::{check_mask_size, read_mask};
use crate::geometry::Point;
use crate::tracking::{TargetBox, VideoDataset, VideoFrame, context_side};
use crate::{DataError, OnError, files};

/// Longest index that is read; the original ones have up to some 300 MB.
const MAX_INDEX: u64 = 1 << 30;

/// Side of the template at whose scale crops are stored, and the part of a target's sides that is its context.
const TEMPLATE: f64 = 127.0;
const CONTEXT: f64 = 0.5;

/// Tracks of a set of crops; each is a video.
#[derive(Debug, Clone)]
pub struct Crop511 {
    root: PathBuf,
    tracks: Vec<Track>,
    has_masks: bool,
    frame_range: Option<usize>,
    skipped: usize,
}

#[derive(Debug, Clone)]
struct Track {
    video: String,
    name: String,
    /// Number of each frame, and width and height of the target in the original frame; sorted by number.
    frames: Vec<(u64, f64, f64)>,
}

impl Crop511 {
    /// Reads the index `index` of the crops below `root`. `has_masks` says whether the set has masks (COCO and
    /// YouTube-VOS do, ImageNet DET and VID do not).
    ///
    /// # Errors
    /// If a file cannot be read or is not such a JSON file (with its line); and with [`OnError::Fail`] for a box that
    /// is not a list of 2 or 4 numbers or is empty, and a track without frames. With [`OnError::Skip`] these are
    /// logged, counted and skipped. Entries of a track whose name is not a number (`frames`, `hard`) are notes of other
    /// tools.
    pub fn open(root: &Path, index: &Path, has_masks: bool, on_error: OnError) -> Result<Self, DataError> {
        expect_folder(root, "crops, VIDEO/FRAME.TRACK.x.jpg")?;
        let refuse = |line: usize, reason: String| DataError::line(index, line, reason);
        let text = files::read_text(index, MAX_INDEX)?;
        let videos: Map<String, Value> =
            serde_json::from_str(&text).map_err(|error| refuse(error.line().max(1), error.to_string()))?;
        let mut set = Self { root: root.to_owned(), tracks: Vec::new(), has_masks, frame_range: None, skipped: 0 };
        let mut leave_out = |place: String, reason: String| {
            let place = format_args!("{}: {place}", index.display()).to_string();
            DataError::unusable(place, reason).leave_out(on_error, &mut set.skipped)
        };
        for (video, tracks) in &videos {
            let Some(tracks) = tracks.as_object() else {
                leave_out(video.clone(), "not an object of tracks".into())?;
                continue;
            };
            for (name, frames) in tracks {
                let place = format!("{video}/{name}");
                let Some(frames) = frames.as_object().filter(|_| is_plain(video) && is_plain(name)) else {
                    leave_out(place, "not an object of frames in a plain folder".into())?;
                    continue;
                };
                let mut track = Track { video: video.clone(), name: name.clone(), frames: Vec::new() };
                for (number, value) in frames {
                    let Ok(frame) = number.parse::<u64>() else { continue };
                    match sides(value) {
                        Ok((width, height)) => track.frames.push((frame, width, height)),
                        Err(reason) => leave_out(format!("{place}/{number}"), reason)?,
                    }
                }
                track.frames.sort_unstable_by_key(|(frame, ..)| *frame);
                if track.frames.is_empty() {
                    leave_out(place, "a track without frames".into())?;
                } else {
                    set.tracks.push(track);
                }
            }
        }
        if set.tracks.is_empty() {
            return Err(DataError::empty(root, set.skipped));
        }
        Ok(set)
    }

    /// The set with this most frames between the images of a pair.
    pub fn with_frame_range(self, frame_range: Option<usize>) -> Self {
        Self { frame_range, ..self }
    }

    /// Number of skipped entries.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    fn path(&self, track: &Track, frame: u64, ending: &str) -> PathBuf {
        self.root.join(&track.video).join(format!("{frame:06}.{}.{ending}", track.name))
    }
}

/// True for names that stay inside the root: relative, without `..`.
pub(super) fn is_plain(name: &str) -> bool {
    Path::new(name).components().all(|part| matches!(part, std::path::Component::Normal(_))) && !name.is_empty()
}

/// Width and height of a box.
fn sides(value: &Value) -> Result<(f64, f64), String> {
    let numbers: Option<Vec<f64>> = value.as_array().and_then(|list| list.iter().map(Value::as_f64).collect());
    let (width, height) = match numbers.as_deref() {
        Some(&[x1, y1, x2, y2]) => (x2 - x1, y2 - y1),
        Some(&[width, height]) => (width, height),
        _ => return Err("not a list of 2 or 4 numbers".into()),
    };
    let sane = |side: f64| side > 0.0 && side <= 1e6;
    if sane(width) && sane(height) { Ok((width, height)) } else { Err(format!("a box of {width} x {height}")) }
}

impl VideoDataset for Crop511 {
    fn frame_range(&self, _index: usize) -> Option<usize> {
        self.frame_range
    }

    fn len(&self) -> usize {
        self.tracks.len()
    }

    fn name(&self, index: usize) -> String {
        let track = &self.tracks[index];
        format!("{}[{}]", self.root.join(&track.video).display(), track.name)
    }

    fn frames(&self, index: usize) -> usize {
        self.tracks[index].frames.len()
    }

    fn frame(&self, index: usize, frame: usize) -> Result<VideoFrame, DataError> {
        let track = &self.tracks[index];
        let (number, width, height) = track.frames[frame];
        let image = read_image(&self.path(track, number, "x.jpg"))?;
        let scale = TEMPLATE / context_side(width, height, CONTEXT);
        let middle = |side: usize| (side / 2) as f64;
        let target = TargetBox {
            centre: Point::new(middle(image.width()), middle(image.height())),
            width: width * scale,
            height: height * scale,
        };
        let mask = if self.has_masks {
            let path = self.path(track, number, "m.png");
            let mask = read_mask(&path)?;
            check_mask_size(&mask, image.size(), &path)?;
            Some(mask)
        } else {
            None
        };
        Ok(VideoFrame { image, target: Some(target), mask })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::image::{Image, Size, write_png};
    use std::fs;

    /// A root with one video, whose crop is a PNG by content: decoding goes by the signature.
    fn root(index: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let video = dir.path().join("v/0");
        fs::create_dir_all(&video).unwrap();
        let mut image = Image::filled(Size::square(511), [0; 3]);
        image.pixels_mut()[..3].fill(255);
        for name in ["000003.00.x.jpg", "000003.00.m.png", "000009.00.x.jpg"] {
            write_png(&image, &video.join(name)).unwrap();
        }
        write_png(&Image::filled(Size::new(511, 2), [0; 3]), &video.join("000009.00.m.png")).unwrap();
        let path = dir.path().join("train.json");
        fs::write(&path, index).unwrap();
        (dir, path)
    }

    const SOUND: &str = r#"{"v/0": {"00": {"000009": [10, 10, 50, 40], "000003": [40.0, 30], "hard": [1]}}}"#;

    #[test]
    fn crops_have_their_target_in_the_middle() {
        let (dir, index) = root(SOUND);
        let set = Crop511::open(dir.path(), &index, true, OnError::Fail).unwrap();
        assert_eq!((set.len(), set.frames(0), set.skipped()), (1, 2, 0));
        let frame = set.frame(0, 0).unwrap();
        let target = frame.target.unwrap();
        let scale = 127.0 / (75.0_f64 * 65.0).sqrt();
        assert_eq!(target.centre, Point::new(255.0, 255.0));
        assert!((target.width - 40.0 * scale).abs() < 1e-9 && (target.height - 30.0 * scale).abs() < 1e-9);
        assert_eq!(frame.mask.unwrap().count(), 1);
        let without = Crop511::open(dir.path(), &index, false, OnError::Fail).unwrap();
        assert_eq!(without.frame(0, 1).unwrap().mask, None);
    }

    #[test]
    fn broken_files_are_named() {
        let (dir, index) = root(SOUND);
        let set = Crop511::open(dir.path(), &index, true, OnError::Fail).unwrap();
        let error = set.frame(0, 1).unwrap_err();
        assert!(error.to_string().contains("000009.00.m.png: a mask of"), "{error}");
        fs::remove_file(dir.path().join("v/0/000003.00.x.jpg")).unwrap();
        let error = set.frame(0, 0).unwrap_err();
        assert!(matches!(&error, DataError::Io { path, .. } if path.ends_with("000003.00.x.jpg")), "{error}");
    }

    #[test]
    fn broken_entries_are_named_or_counted() {
        let cases = [
            (r#"{"v/0": {"00": {"000003": [1, 1, 1, 9]}, "01": {"1": [4, 4]}}}"#, "v/0/00/000003: a box of 0 x 8", 2),
            (r#"{"v/0": {"00": {"3": "box"}, "01": {"1": [4, 4]}}}"#, "v/0/00/3: not a list", 2),
            (r#"{"v/0": {"00": {}, "01": {"1": [4, 4]}}}"#, "v/0/00: a track without frames", 1),
            (r#"{"v/0": 7, "w": {"01": {"1": [4, 4]}}}"#, "v/0: not an object", 1),
            (r#"{"../v": {"00": {"1": [4, 4]}}, "w": {"01": {"1": [4, 4]}}}"#, "../v/00: not an object", 1),
        ];
        for (content, message, skipped) in cases {
            let (dir, index) = root(content);
            let error = Crop511::open(dir.path(), &index, true, OnError::Fail).unwrap_err().to_string();
            assert!(error.contains("train.json") && error.contains(message), "{error}");
            let set = Crop511::open(dir.path(), &index, true, OnError::Skip).unwrap();
            assert_eq!((set.len(), set.skipped()), (1, skipped), "{content}");
        }
        for (content, line) in [("{\"v\": {\n\n\"00\": }", 3), ("", 1), ("[]", 1)] {
            let (dir, index) = root(content);
            let error = Crop511::open(dir.path(), &index, true, OnError::Skip).unwrap_err();
            assert!(error.to_string().contains(&format!(".json:{line}: ")), "{error}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_index_is_read_or_refused(content in "[\\[\\]{}\",:0-9a-z. -]{0,60}") {
            let (dir, index) = root(&content);
            if let Ok(set) = Crop511::open(dir.path(), &index, true, OnError::Skip) {
                prop_assert!((0..set.len()).all(|i| set.frames(i) > 0));
            }
        }
    }
}
