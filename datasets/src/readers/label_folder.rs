//! Folders of images with label maps: PASCAL VOC, and one folder of each per part.

use std::path::{Path, PathBuf};

use super::folder::{images_in, read_file, read_image};
use super::layout::{expect_folder, unknown};
use crate::image::decode_labels;
use crate::segmentation::{LabelMap, LabelMapDataset, VOID};
use crate::{DataError, Image, OnError, files};

/// Longest list of names that is read.
const MAX_LIST: u64 = 16 << 20;

/// File with the names of the classes, one per line, next to the splits.
pub(super) const CLASSES: &str = "classes.txt";

/// The classes of PASCAL VOC, in the order of its palette.
pub(super) const VOC: [&str; 21] = [
    "background",
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
];

/// The part of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelPart {
    /// Images to train on.
    Train,
    /// Images to evaluate on.
    Val,
}

impl LabelPart {
    fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Val => "val",
        }
    }
}

/// The files of both layouts.
const LAYOUTS: &str = "train/images with train/labels and their val parts, or JPEGImages with SegmentationClass and \
                       ImageSets/Segmentation/train.txt and val.txt (PASCAL VOC)";

/// Images with label maps, sorted by name. Files are read when they are used.
#[derive(Debug, Clone)]
pub struct LabelFolder {
    samples: Vec<(PathBuf, PathBuf)>,
    /// Names of the classes; labels are below their number, or [`VOID`].
    names: Vec<String>,
    skipped: usize,
}

impl LabelFolder {
    /// A part of the data set in `root`: `PART/images/*.jpg` with `PART/labels/*.png` of the same names, or PASCAL
    /// VOC's `JPEGImages` with `SegmentationClass` and the names in `ImageSets/Segmentation/PART.txt`.
    ///
    /// The classes are the lines of `classes.txt` if there is one, or else those of PASCAL VOC in its layout, or else
    /// `classes` numbers. Labels are below their number, or [`VOID`].
    ///
    /// # Errors
    /// If neither layout exists or no image is found; and with [`OnError::Fail`] for an image without label map. With
    /// [`OnError::Skip`] these are logged, counted and skipped.
    pub fn open_root(root: &Path, part: LabelPart, classes: usize, on_error: OnError) -> Result<Self, DataError> {
        expect_folder(root, LAYOUTS)?;
        let own = root.join(part.name());
        let (images, labels, images_found) = if own.join("images").is_dir() && own.join("labels").is_dir() {
            (own.join("images"), own.join("labels"), images_in(&own.join("images"))?)
        } else {
            let list = root.join("ImageSets/Segmentation").join(format!("{}.txt", part.name()));
            let (images, labels) = (root.join("JPEGImages"), root.join("SegmentationClass"));
            if !list.is_file() || !images.is_dir() || !labels.is_dir() {
                return Err(unknown(root, LAYOUTS, None));
            }
            let of_list = lines(&list)?.iter().map(|name| images.join(format!("{name}.jpg"))).collect();
            (images, labels, of_list)
        };
        let names = match root.join(CLASSES) {
            file if file.is_file() => lines(&file)?,
            _ if root.join("SegmentationClass").is_dir() => VOC.map(str::to_owned).to_vec(),
            _ => (0..classes).map(|class| class.to_string()).collect(),
        };
        let mut folder = Self { samples: Vec::new(), names, skipped: 0 };
        for image in images_found {
            let map = labels.join(image.file_stem().unwrap_or_default()).with_extension("png");
            match (image.is_file(), map.is_file()) {
                (true, true) => folder.samples.push((image, map)),
                (true, false) => {
                    on_error
                        .leave_out(DataError::NoAnnotation { image, folder: labels.clone() }, &mut folder.skipped)?;
                }
                (false, _) => {
                    let source = std::io::ErrorKind::NotFound.into();
                    on_error.leave_out(DataError::Io { path: image, source }, &mut folder.skipped)?;
                }
            }
        }
        if folder.samples.is_empty() {
            return Err(DataError::NoImages(images));
        }
        Ok(folder)
    }

    /// Number of skipped images.
    pub fn skipped(&self) -> usize {
        self.skipped
    }
}

/// The lines of a list that are not empty.
pub(super) fn lines(path: &Path) -> Result<Vec<String>, DataError> {
    Ok(numbered_lines(path)?.into_iter().map(|(_, line)| line).collect())
}

/// The lines of a list that are not empty, with their numbers, from 1.
pub(super) fn numbered_lines(path: &Path) -> Result<Vec<(usize, String)>, DataError> {
    let text = files::read_text(path, MAX_LIST)?;
    let lines = (1..).zip(text.lines().map(str::trim)).filter(|(_, line)| !line.is_empty());
    Ok(lines.map(|(number, line)| (number, line.to_owned())).collect())
}

impl LabelMapDataset for LabelFolder {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn classes(&self) -> &[String] {
        &self.names
    }

    fn name(&self, index: usize) -> String {
        self.samples[index].0.display().to_string()
    }

    fn load(&self, index: usize) -> Result<(Image, LabelMap), DataError> {
        let (image, path) = &self.samples[index];
        let image = read_image(image)?;
        let decoded = decode_labels(&read_file(path)?);
        let labels = decoded.map_err(|source| DataError::Decode { name: path.display().to_string(), source })?;
        if labels.size() != image.size() {
            return Err(DataError::MaskSize { path: path.clone(), found: labels.size(), expected: image.size() });
        }
        let classes = self.names.len();
        let beyond = |label: &u8| *label != VOID && usize::from(*label) >= classes;
        if let Some(place) = labels.values().iter().position(beyond) {
            let (x, y, label) = (place % labels.width(), place / labels.width(), labels.values()[place]);
            return Err(DataError::Label { path: path.clone(), x, y, label, classes });
        }
        Ok((image, labels))
    }
}
