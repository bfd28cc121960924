//! Folders of images with label maps: PASCAL VOC, and one folder of each per part.

use std::path::{Path, PathBuf};

use super::folder::{IMAGES, images_in, read_file, read_image};
use super::label_pairs::{no_label_map, paired};
use super::layout::{expect_folder, unknown};
use super::masks::check_mask_size;
use super::parts::{Part, divided, folders_in, name, only, plain};
use super::stems::Stems;
use crate::image::decode_labels;
use crate::segmentation::{LabelMap, VOID};
use crate::{Annotated, DataError, Image, OnError, files};

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

/// Usual names of the folders of images and of label maps, as [`plain`] gives them.
const OF_IMAGES: [&str; 10] =
    ["images", "image", "imgs", "img", "jpegimages", "leftimg8bit", "photos", "pictures", "rgb", "input"];
const OF_LABELS: [&str; 15] = [
    "labels",
    "label",
    "masks",
    "mask",
    "annotations",
    "annotation",
    "gts",
    "gt",
    "gtfine",
    "groundtruth",
    "segmentation",
    "segmentations",
    "segmentationclass",
    "labelmaps",
    "targets",
];

/// The files of both layouts.
const LAYOUTS: &str = "train/images with train/labels and their val parts, or JPEGImages with SegmentationClass and \
                       ImageSets/Segmentation/train.txt and val.txt (PASCAL VOC)";

/// Images with label maps, sorted by name. Files are read when they are used.
#[derive(Debug, Clone)]
pub struct LabelFolder {
    samples: Vec<(PathBuf, PathBuf)>,
    /// Names of the classes; labels are below their number, or [`VOID`].
    names: Vec<String>,
    /// The values of the classes in the files, if they are not their numbers.
    values: Option<Vec<u8>>,
    skipped: usize,
}

impl LabelFolder {
    /// A part of the data set in `root`, or in the only folder in it: `PART/images/*.jpg` with `PART/labels/*.png` of
    /// the same names ([other usual names](paired) are understood), `images/PART` with `labels/PART`, or PASCAL VOC's
    /// `JPEGImages` with `SegmentationClass` and the names in `ImageSets/Segmentation/PART.txt`. Parts can have any
    /// usual names (`Training`, `validation`); a test part is held out if there is no other.
    ///
    /// The classes are the lines of `classes.txt` if there is one, or else those of PASCAL VOC in its layout, or else
    /// `classes` numbers. Labels are below their number, or [`VOID`].
    ///
    /// # Errors
    /// If neither layout exists or no image is found; and with [`OnError::Fail`] for an image without label map. With
    /// [`OnError::Skip`] these are logged, counted and skipped.
    pub fn open_root(root: &Path, part: Part, classes: usize, on_error: OnError) -> Result<Self, DataError> {
        expect_folder(root, LAYOUTS)?;
        let inner = inner(root)?;
        let root = inner.as_deref().unwrap_or(root);
        let mut skipped = 0;
        let (images, samples) = match folders(root, part)? {
            Some([images, labels]) => {
                let found = images_in(&images)?;
                (images, paired(found, &labels, on_error, &mut skipped)?)
            }
            None => listed(root, part, on_error, &mut skipped)?,
        };
        if samples.is_empty() {
            return Err(DataError::empty(&images, 0));
        }
        let names = match root.join(CLASSES) {
            file if file.is_file() => lines(&file)?,
            _ if root.join("SegmentationClass").is_dir() => VOC.map(str::to_owned).to_vec(),
            _ => (0..classes).map(|class| class.to_string()).collect(),
        };
        Ok(Self { samples, names, values: None, skipped })
    }

    /// The same images, whose label maps hold `values` in place of the numbers of the classes, in their order.
    ///
    /// # Errors
    /// A value that occurs twice; another number of values than of named classes.
    pub fn with_values(self, values: &[u8]) -> Result<Self, DataError> {
        if let Some(twice) = (1..values.len()).find(|place| values[..*place].contains(&values[*place])) {
            return Err(DataError::Config(format!("the values of label maps list {} twice", values[twice])));
        }
        if values.len() != self.names.len() {
            let (found, expected) = (values.len(), self.names.len());
            return Err(DataError::Config(format!("{found} values of label maps for {expected} classes")));
        }
        Ok(Self { values: Some(values.to_vec()), ..self })
    }

    /// Number of skipped images.
    pub fn skipped(&self) -> usize {
        self.skipped
    }
}

/// The only folder in `root`, which archives leave, unless `root` itself holds the data.
fn inner(root: &Path) -> Result<Option<PathBuf>, DataError> {
    match folders_in(root)?.as_slice() {
        [only] if divided(std::slice::from_ref(only))? == [None, None] => {
            Ok(Some(inner(only)?.unwrap_or(only.clone())))
        }
        _ => Ok(None),
    }
}

/// The folders of images and of label maps of a part: in the folder of the part, or the part in both.
fn folders(root: &Path, part: Part) -> Result<Option<[PathBuf; 2]>, DataError> {
    let both = |folder: &Path| {
        let found = folders_in(folder)?;
        let of = |names: &[&str], what: &str| {
            let fits = |path: &&PathBuf| names.contains(&plain(&name(path)).as_str());
            only(found.iter().filter(fits).collect(), || format!("the folder of {what}"))
        };
        let (images, labels) = (of(&OF_IMAGES, "images")?, of(&OF_LABELS, "label maps")?);
        Ok::<_, DataError>(images.zip(labels))
    };
    if let Some(own) = part.of(divided(&folders_in(root)?)?) {
        return Ok(both(&own)?.map(<[PathBuf; 2]>::from));
    }
    let Some((images, labels)) = both(root)? else { return Ok(None) };
    let [images, labels] = [images, labels].map(|folder| divided(&folders_in(&folder)?));
    Ok(part.of(images?).zip(part.of(labels?)).map(<[PathBuf; 2]>::from))
}

/// The pairs of PASCAL VOC, by the list of a part, and the folder of images.
fn listed(
    root: &Path,
    part: Part,
    on_error: OnError,
    skipped: &mut usize,
) -> Result<(PathBuf, Vec<(PathBuf, PathBuf)>), DataError> {
    let (images, labels) = (root.join("JPEGImages"), root.join("SegmentationClass"));
    let lists = root.join("ImageSets/Segmentation");
    if ![&lists, &images, &labels].into_iter().all(|folder| folder.is_dir()) {
        return Err(unknown(root, LAYOUTS, None));
    }
    let Some(list) = part.of(divided(&files::entries(&lists)?)?) else {
        return Err(unknown(&lists, LAYOUTS, None));
    };
    let (mut photographs, mut maps) = (Stems::of(&images, &IMAGES), Stems::of(&labels, &["png"]));
    let mut pairs = Vec::new();
    for name in lines(&list)? {
        let image = images.join(format!("{name}.jpg"));
        let pair = photographs.find(&name).and_then(|found| {
            let image = found.ok_or_else(|| DataError::io(&image)(std::io::ErrorKind::NotFound.into()))?;
            let map = maps.find(&name)?.ok_or_else(|| no_label_map(&image, &labels, None))?;
            Ok((image, map))
        });
        match pair {
            Ok(pair) => pairs.push(pair),
            Err(error) => error.leave_out(on_error, skipped)?,
        }
    }
    Ok((images, pairs))
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

impl Annotated<LabelMap> for LabelFolder {
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
        let labels = decode_labels(&read_file(path)?).map_err(DataError::decode(path))?;
        check_mask_size(&labels, image.size(), path)?;
        let classes = self.names.len();
        let class_of = |value: u8| match &self.values {
            Some(values) => values.iter().position(|listed| *listed == value).map(|class| class as u8),
            None => (usize::from(value) < classes).then_some(value),
        };
        let table: [Option<u8>; 256] =
            std::array::from_fn(|value| class_of(value as u8).or((value == 255).then_some(VOID)));
        if let Some(place) = labels.values().iter().position(|value| table[usize::from(*value)].is_none()) {
            let (x, y, label) = (place % labels.width(), place / labels.width(), labels.values()[place]);
            let is = match &self.values {
                None => format!("not below {classes}, the number of classes"),
                Some(values) => format!("not among the values {values:?} of the classes"),
            };
            let reason = format!("label {label} at column {x}, row {y} is {is}, nor 255 (no class)");
            return Err(DataError::unusable(path.display(), reason));
        }
        Ok((image, labels.map(|value| table[usize::from(value)].unwrap_or(VOID))))
    }
}
