//! Videos as folders of frames, with masks (DAVIS), outlines (VOT) or neither.

use std::path::{Path, PathBuf};

use super::folder::{images_in, read_image};
use super::layout::{expect_folder, unknown};
use super::masks::{Target, check_mask_size};
use super::outlines::{read_absences, read_outlines};
use super::stems::{Stems, stem};
use crate::files::{entries, natural};
use crate::geometry::{Point, Polygon};
use crate::grid::Mask;
use crate::tracking::{TargetBox, VideoDataset, VideoFrame};
use crate::{DataError, OnError};

/// Videos whose frames are image files, in the order of their numbers.
#[derive(Debug, Clone)]
pub struct FrameFolders {
    videos: Vec<Video>,
    skipped: usize,
}

#[derive(Debug, Clone)]
struct Video {
    folder: PathBuf,
    /// Image and mask of each frame.
    frames: Vec<(PathBuf, Option<PathBuf>)>,
    /// The target in the masks.
    target: Target,
    /// Outline of the target in each frame, where outlines are given.
    outlines: Vec<Option<Polygon>>,
}

/// File of outlines next to the frames of a video: that of VOT, GOT-10k and LaSOT, and that of OTB.
const OUTLINES: [&str; 2] = ["groundtruth.txt", "groundtruth_rect.txt"];

/// Files that say in which frames the target is absent, next to those of outlines: GOT-10k's, and LaSOT's two.
const ABSENCES: [&str; 3] = ["absence.label", "full_occlusion.txt", "out_of_view.txt"];

/// Folders of frames next to the file of outlines: VOT's, and that of LaSOT and OTB. Others have the frames beside it.
const FRAMES: [&str; 2] = ["color", "img"];

/// The file of outlines in the folder of a video.
fn outlines_in(video: &Path) -> Option<PathBuf> {
    OUTLINES.map(|name| video.join(name)).into_iter().find(|path| path.is_file())
}

/// Folders of DAVIS below which there is one folder per video, by resolution.
const RESOLUTIONS: [&str; 3] = ["480p", "Full-Resolution", "1080p"];

/// The files of a folder of videos.
const LAYOUTS: &str = "JPEGImages/480p/VIDEO/* with Annotations/480p/VIDEO/* (DAVIS), VIDEO/*.jpg with \
                       VIDEO/groundtruth.txt (VOT, GOT-10k), VIDEO/img/*.jpg with VIDEO/groundtruth.txt or \
                       VIDEO/groundtruth_rect.txt (LaSOT, OTB), or the frames of one video";

impl FrameFolders {
    /// One video: the images of `frames`, and the masks of the same names (`.png`) in `masks` where there are any.
    ///
    /// # Errors
    /// If a folder cannot be read or contains no image; and with [`OnError::Fail`] for a missing number between the
    /// first and the last frame, and a frame without mask. With [`OnError::Skip`] these are logged and counted, and a
    /// frame without mask counts as unknown.
    pub fn open(frames: &Path, masks: Option<&Path>, on_error: OnError) -> Result<Self, DataError> {
        let mut set = Self { videos: Vec::new(), skipped: 0 };
        set.add(frames, masks, None, on_error)?;
        Ok(set)
    }

    /// All videos of a DAVIS root: `JPEGImages/480p/NAME/*.jpg` with `Annotations/480p/NAME/*.png`. The target is the
    /// object `object` of the masks; without a number, masks show one object.
    ///
    /// # Errors
    /// If there are no such folders, and as [`open`](Self::open); and with [`OnError::Fail`] for a video whose first
    /// mask shows several objects. With [`OnError::Skip`] it is logged and counted.
    pub fn open_davis(root: &Path, object: Option<u8>, on_error: OnError) -> Result<Self, DataError> {
        let below = |part: &str, resolution: &str| root.join(part).join(resolution);
        let fits = |resolution: &&&str| below("JPEGImages", resolution).is_dir();
        let Some(resolution) = RESOLUTIONS.iter().find(fits) else {
            let path = below("JPEGImages", RESOLUTIONS[0]);
            return Err(DataError::absent(&path, "a folder of frames for each video"));
        };
        let images = below("JPEGImages", resolution);
        let mut set = Self { videos: Vec::new(), skipped: 0 };
        for folder in entries(&images)?.into_iter().filter(|path| path.is_dir()) {
            let masks = below("Annotations", resolution).join(folder.file_name().unwrap_or_default());
            set.add(&folder, Some(&masks), object, on_error)?;
        }
        if set.videos.is_empty() {
            return Err(DataError::empty(&images, set.skipped));
        }
        Ok(set)
    }

    /// All videos of a VOT root: `NAME/*.jpg`, `NAME/color/*.jpg` or `NAME/img/*.jpg` with `NAME/groundtruth.txt` or
    /// `NAME/groundtruth_rect.txt`.
    ///
    /// # Errors
    /// If there are no such folders, and as [`open`](Self::open).
    pub fn open_vot(root: &Path, on_error: OnError) -> Result<Self, DataError> {
        let mut set = Self { videos: Vec::new(), skipped: 0 };
        for folder in entries(root)? {
            if let Some(outlines) = outlines_in(&folder) {
                set.add_outlined(&folder, &outlines, on_error)?;
            }
        }
        if set.videos.is_empty() {
            return Err(DataError::empty(root, set.skipped));
        }
        Ok(set)
    }

    /// The videos in `root`: those of DAVIS (with the target `object`), those of VOT, or the images in it as one.
    ///
    /// # Errors
    /// As the layout that was found.
    pub fn open_root(root: &Path, object: Option<u8>, on_error: OnError) -> Result<Self, DataError> {
        expect_folder(root, LAYOUTS)?;
        if root.join("JPEGImages").is_dir() {
            return Self::open_davis(root, object, on_error);
        }
        if let Some(outlines) = outlines_in(root) {
            let mut set = Self { videos: Vec::new(), skipped: 0 };
            set.add_outlined(root, &outlines, on_error)?;
            return Ok(set);
        }
        if entries(root)?.iter().any(|path| outlines_in(path).is_some()) {
            return Self::open_vot(root, on_error);
        }
        if images_in(root)?.is_empty() {
            return Err(unknown(root, LAYOUTS, None));
        }
        Self::open(root, None, on_error)
    }

    fn add_outlined(&mut self, folder: &Path, outlines: &Path, on_error: OnError) -> Result<(), DataError> {
        let frames = FRAMES.map(|name| folder.join(name)).into_iter().find(|path| path.is_dir());
        self.add(frames.as_deref().unwrap_or(folder), None, None, on_error)?;
        let (mut outlines, skipped) = read_outlines(outlines, on_error)?;
        self.skipped += skipped;
        let Some(video) = self.videos.last_mut() else { return Ok(()) };
        for path in ABSENCES.map(|name| folder.join(name)).into_iter().filter(|path| path.is_file()) {
            let absences = read_absences(&path, video.frames.len())?;
            outlines.iter_mut().zip(absences).filter(|(_, absent)| *absent).for_each(|(outline, _)| *outline = None);
        }
        video.folder = folder.to_owned();
        video.outlines = outlines;
        Ok(())
    }

    /// Number of missing frames and masks.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    fn add(
        &mut self,
        folder: &Path,
        masks: Option<&Path>,
        object: Option<u8>,
        on_error: OnError,
    ) -> Result<(), DataError> {
        expect_folder(folder, "the frames of a video")?;
        let mut frames = Vec::new();
        let mut last: Option<u64> = None;
        let mut paths = images_in(folder)?;
        paths.sort_by(|one, other| natural(&stem(one), &stem(other)));
        let mut of_masks = masks.map(|masks| (masks, Stems::of(masks, &["png"])));
        for path in paths {
            let stem = stem(&path);
            let number = stem.parse::<u64>().ok();
            if let (Some(last), Some(number)) = (last, number)
                && number > last.saturating_add(1)
            {
                let missing = if number == last + 2 {
                    format!("frame {} is missing before it", last + 1)
                } else {
                    format!("frames {} to {} are missing before it", last + 1, number - 1)
                };
                DataError::unusable(path.display(), missing).leave_out(on_error, &mut self.skipped)?;
            }
            last = number;
            let mask = match &mut of_masks {
                Some((masks, of_masks)) => {
                    let found = of_masks.find(&stem)?;
                    if found.is_none() {
                        let mask = masks.join(format!("{stem}.png"));
                        let reason = format!("no mask for {}", path.display());
                        DataError::unusable(mask.display(), reason).leave_out(on_error, &mut self.skipped)?;
                    }
                    found
                }
                None => None,
            };
            frames.push((path, mask));
        }
        if frames.is_empty() {
            return Err(DataError::empty(folder, 0));
        }
        match Target::of(object, frames.iter().filter_map(|(_, mask)| mask.as_ref())) {
            Ok(target) => self.videos.push(Video { folder: folder.to_owned(), frames, target, outlines: Vec::new() }),
            Err(error) => error.leave_out(on_error, &mut self.skipped)?,
        }
        Ok(())
    }
}

impl VideoDataset for FrameFolders {
    fn len(&self) -> usize {
        self.videos.len()
    }

    fn name(&self, index: usize) -> String {
        self.videos[index].folder.display().to_string()
    }

    fn frames(&self, index: usize) -> usize {
        self.videos[index].frames.len()
    }

    fn frame(&self, index: usize, frame: usize) -> Result<VideoFrame, DataError> {
        let Video { frames, target, .. } = &self.videos[index];
        let (image, mask) = &frames[frame];
        let picture = read_image(image)?;
        let mask = match mask {
            Some(path) => {
                let mask = target.pixels(path)?;
                check_mask_size(&mask, picture.size(), path)?;
                Some(mask)
            }
            None => None,
        };
        let around_mask = mask.as_ref().and_then(Mask::bounds).map(|bounds| {
            // Pixels reach half a pixel to both sides of their centres, which are whole numbers.
            let target = TargetBox::from_rect(bounds);
            TargetBox { centre: target.centre - Point::new(0.5, 0.5), ..target }
        });
        let outline = self.outline(index, frame);
        let target = around_mask.or_else(|| outline.as_ref().map(TargetBox::from_polygon));
        Ok(VideoFrame { image: picture, target, mask })
    }

    fn outline(&self, index: usize, frame: usize) -> Option<Polygon> {
        self.videos[index].outlines.get(frame).cloned().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Image, Size, write_png};
    use std::fs;

    /// Frames of 20 x 10 pixels, and masks of a pixel or, where a size is given, of that size.
    fn davis(frames: &[&str], masks: &[(&str, Size)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let folder = |part: &str| dir.path().join(part).join("480p/tennis");
        for part in ["JPEGImages", "Annotations"] {
            fs::create_dir_all(folder(part)).unwrap();
        }
        for name in frames {
            let image = Image::filled(Size::new(20, 10), [50; 3]);
            write_png(&image, &folder("JPEGImages").join(format!("{name}.png"))).unwrap();
        }
        for (name, size) in masks {
            let mut mask = Image::filled(*size, [0; 3]);
            mask.pixels_mut()[3 * (size.width + 2)..][..9].fill(128);
            write_png(&mask, &folder("Annotations").join(format!("{name}.png"))).unwrap();
        }
        dir
    }

    const SIZE: Size = Size::new(20, 10);

    #[test]
    fn targets_come_from_masks() {
        let dir = davis(&["00000", "00001"], &[("00000", SIZE), ("00001", SIZE)]);
        let set = FrameFolders::open_davis(dir.path(), None, OnError::Fail).unwrap();
        assert_eq!((set.len(), set.frames(0), set.skipped()), (1, 2, 0));
        let frame = set.frame(0, 1).unwrap();
        // Pixels 2 to 4 of row 1.
        let target = frame.target.unwrap();
        assert_eq!((target.centre, target.width, target.height), (Point::new(3.0, 1.0), 3.0, 1.0));
        assert_eq!(frame.mask.unwrap().count(), 3);
    }

    #[test]
    fn missing_frames_and_masks_are_named_or_counted() {
        let gap = davis(&["00000", "00003"], &[("00000", SIZE), ("00003", SIZE)]);
        let error = FrameFolders::open_davis(gap.path(), None, OnError::Fail).unwrap_err().to_string();
        assert!(error.contains("00003.png: frames 1 to 2 are missing"), "{error}");
        assert_eq!(FrameFolders::open_davis(gap.path(), None, OnError::Skip).unwrap().skipped(), 1);
        let without = davis(&["00000", "00001"], &[("00000", SIZE)]);
        let error = FrameFolders::open_davis(without.path(), None, OnError::Fail).unwrap_err().to_string();
        assert!(error.contains("Annotations/480p/tennis/00001.png: no mask for"), "{error}");
        let set = FrameFolders::open_davis(without.path(), None, OnError::Skip).unwrap();
        assert_eq!((set.skipped(), set.frame(0, 1).unwrap().mask), (1, None));
    }

    #[test]
    fn a_target_is_absent_where_its_outline_is_or_a_flag_says_so() {
        for (outlines, frames) in [("groundtruth.txt", "img"), ("groundtruth_rect.txt", "img"), ("groundtruth.txt", "")]
        {
            let dir = tempfile::tempdir().unwrap();
            let video = dir.path().join("bird");
            fs::create_dir_all(video.join(frames)).unwrap();
            for number in 1..=4 {
                let image = Image::filled(Size::new(20, 10), [50; 3]);
                write_png(&image, &video.join(frames).join(format!("{number:04}.png"))).unwrap();
            }
            fs::write(video.join(outlines), "2\t2\t5\t5\nNaN\tNaN\tNaN\tNaN\n3\t2\t5\t5\n4\t2\t5\t5\n").unwrap();
            let seen = || {
                let set = FrameFolders::open_root(dir.path(), None, OnError::Fail).unwrap();
                let visible = (0..4).map(|frame| set.frame(0, frame).unwrap().target.is_some()).collect::<Vec<_>>();
                assert_eq!(visible, (0..4).map(|frame| set.outline(0, frame).is_some()).collect::<Vec<_>>());
                visible
            };
            assert_eq!(seen(), [true, false, true, true]);
            fs::write(video.join("full_occlusion.txt"), "0,0,1,0").unwrap();
            fs::write(video.join("out_of_view.txt"), "0,0,0,1").unwrap();
            assert_eq!(seen(), [true, false, false, false]);
            fs::write(video.join("absence.label"), "1\n0\n").unwrap();
            let error = FrameFolders::open_root(dir.path(), None, OnError::Fail).unwrap_err().to_string();
            assert!(error.ends_with("absence.label:2: 2 flags for 4 frames"), "{error}");
        }
    }

    #[test]
    fn a_mask_of_several_objects_needs_a_choice() {
        let dir = davis(&["00000", "00001"], &[("00000", SIZE), ("00001", SIZE)]);
        let mut mask = Image::filled(SIZE, [0; 3]);
        mask.pixels_mut()[..6].copy_from_slice(&[1, 1, 1, 2, 2, 2]);
        write_png(&mask, &dir.path().join("Annotations/480p/tennis/00000.png")).unwrap();
        let open = |object, on_error| FrameFolders::open_root(dir.path(), object, on_error);
        let error = open(None, OnError::Fail).unwrap_err().to_string();
        assert!(error.contains("tennis/00000.png: objects 1, 2"), "{error}");
        assert!(open(None, OnError::Skip).unwrap_err().to_string().contains("1 entry cannot be used"));
        let set = open(Some(2), OnError::Fail).unwrap();
        assert_eq!(set.frame(0, 0).unwrap().target.unwrap().centre, Point::new(1.0, 0.0));
        assert_eq!(set.frame(0, 1).unwrap().target, None);
    }

    #[test]
    fn a_mask_of_another_size_is_named() {
        let dir = davis(&["00000"], &[("00000", Size::new(20, 11))]);
        let set = FrameFolders::open_davis(dir.path(), None, OnError::Fail).unwrap();
        let error = set.frame(0, 0).unwrap_err().to_string();
        assert!(error.contains("00000.png: a mask of 20x11 pixels for an image of 20x10"), "{error}");
    }

    #[test]
    fn folders_without_frames_are_refused() {
        let dir = davis(&[], &[]);
        assert!(matches!(FrameFolders::open_davis(dir.path(), None, OnError::Skip), Err(DataError::Absent { .. })));
        assert!(matches!(
            FrameFolders::open_davis(&dir.path().join("x"), None, OnError::Skip),
            Err(DataError::Absent { .. })
        ));
        assert!(matches!(FrameFolders::open(dir.path(), None, OnError::Skip), Err(DataError::Absent { .. })));
        let empty = tempfile::tempdir().unwrap();
        let error = FrameFolders::open_root(empty.path(), None, OnError::Fail).unwrap_err().to_string();
        assert!(error.contains("Expected JPEGImages/480p/VIDEO/*") && error.ends_with("Found nothing"), "{error}");
    }
}
