//! Folders of images with annotated boxes: COCO and PASCAL VOC.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::folder::read_image;
use super::label_folder::{CLASSES, VOC, lines};
use super::layout::{expect_folder, unknown};
use super::parts::Part;
use super::stems::Stems;
use super::{coco, voc};
use crate::detection::{BoundingBox, Object, Role};
use crate::files::entries;
use crate::image::Size;
use crate::{Annotated, DataError, Image, OnError};

/// An image file with its annotation.
#[derive(Debug, Clone)]
pub(super) struct BoxedImage {
    pub path: PathBuf,
    /// The file that describes it.
    pub annotation: PathBuf,
    /// Size of the image according to that file.
    pub size: Size,
    pub objects: Vec<Object>,
}

/// Images with annotated boxes. Annotations are read when the folder is opened, images when they are used.
#[derive(Debug, Clone)]
pub struct BoxFolder {
    images: Vec<BoxedImage>,
    classes: Vec<String>,
    skipped: usize,
}

/// Pixels by which a box may reach beyond its image: outlines are rounded.
const OVERHANG: f64 = 1.0;

/// Refuses boxes without area, and those that reach beyond the image.
pub(super) fn check_bounds(bounds: &BoundingBox, size: Size) -> Result<(), String> {
    let &BoundingBox { x, y, width, height } = bounds;
    // Written so that NaN is refused.
    if !(width > 0.0 && height > 0.0 && bounds.inside(size).is_some_and(|inside| inside.area() > 0.0)) {
        return Err(format!(
            "the box at ({x}, {y}) of {width} x {height} has no area inside the image of {size} pixels"
        ));
    }
    let within = |start: f64, length: f64, side: usize| start >= -OVERHANG && start + length <= side as f64 + OVERHANG;
    if within(x, width, size.width) && within(y, height, size.height) {
        return Ok(());
    }
    Err(format!("the box at ({x}, {y}) of {width} x {height} reaches beyond the image of {size} pixels"))
}

/// The files of both layouts.
const LAYOUTS: &str = "annotations/instances_train*.json and instances_val*.json (COCO), or Annotations with \
                       JPEGImages and ImageSets/Main/train.txt and val.txt (PASCAL VOC)";

impl BoxFolder {
    /// A part of the data set in `root`: COCO's layout, `annotations/instances_PART*.json` (for example
    /// `instances_train2017.json`) with images in the folder `train2017`, `images/train2017` or `images`; or PASCAL
    /// VOC's, `Annotations/*.xml` with `JPEGImages` and the names in `ImageSets/Main/PART.txt`. Classes of COCO are the
    /// numbers of the categories; those of VOC are its twenty, or the lines of `classes.txt` in `root`, from 1. To
    /// train on, images without a single object are left out, as in torchvision's `references/detection`.
    ///
    /// # Errors
    /// If neither layout exists, no image is left, no object is left to train on, or a file cannot be read; and with [`OnError::Fail`] for an image
    /// without file or annotation, and an unusable annotation. With [`OnError::Skip`] these are logged, counted and
    /// skipped.
    pub fn open_root(root: &Path, part: Part, on_error: OnError) -> Result<Self, DataError> {
        expect_folder(root, LAYOUTS)?;
        let mut folder = if let Some(file) = instances(root, part)? {
            Self::coco(root, &file, on_error)?
        } else {
            let list = root.join("ImageSets/Main").join(format!("{}.txt", part.of(PARTS)));
            if !list.is_file() || !root.join("Annotations").is_dir() {
                return Err(unknown(root, LAYOUTS, None));
            }
            Self::voc(root, &list, on_error)?
        };
        if folder.images.is_empty() {
            return Err(DataError::empty(root, folder.skipped));
        }
        if part == Part::Train {
            let images = folder.images.len();
            let boxes: usize = folder.images.iter().map(|image| image.objects.len()).sum();
            folder.images.retain(|image| image.objects.iter().any(|object| object.role == Role::Single));
            if folder.images.is_empty() {
                let reason = format!("nothing to learn: {}", folder.without_objects(images, boxes));
                return Err(DataError::malformed(root.display(), reason));
            }
        }
        Ok(folder)
    }

    /// Why none of some images with some boxes has an object to learn.
    fn without_objects(&self, images: usize, boxes: usize) -> String {
        let boxes = match boxes {
            0 => "there are no boxes".to_owned(),
            n => format!(
                "all {n} boxes are crowds (`iscrowd` of COCO) or `difficult` (PASCAL VOC), which are not learned"
            ),
        };
        let skipped = match self.skipped {
            0 => String::new(),
            n => format!("; {n} entries were left out because they cannot be used"),
        };
        format!("none of the {images} training images has an object: {boxes}{skipped}")
    }

    fn coco(root: &Path, file: &Path, on_error: OnError) -> Result<Self, DataError> {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let name = name.trim_start_matches(INSTANCES);
        let places = [root.join(name), root.join("images").join(name), root.join("images")];
        let Some(folder) = places.iter().find(|place| place.is_dir()) else {
            return Err(DataError::absent(&places[0], "the images of this part"));
        };
        let mut skipped = 0;
        let (images, classes) = coco::read(file, folder, on_error, &mut skipped)?;
        Ok(Self { images, classes, skipped })
    }

    fn voc(root: &Path, list: &Path, on_error: OnError) -> Result<Self, DataError> {
        let classes: Vec<String> = match root.join(CLASSES) {
            file if file.is_file() => std::iter::once(VOC[0].to_owned()).chain(lines(&file)?).collect(),
            _ => VOC.map(str::to_owned).to_vec(),
        };
        let (mut images, mut skipped) = (Vec::new(), 0);
        let (photographs, descriptions) = (root.join("JPEGImages"), root.join("Annotations"));
        let mut of_photographs = Stems::of(&photographs, &["jpg", "jpeg", "png"]);
        let mut of_descriptions = Stems::of(&descriptions, &["xml"]);
        for name in lines(list)? {
            let Some(path) = of_photographs.find(&name)? else {
                let missing = DataError::io(&photographs.join(format!("{name}.jpg")))(ErrorKind::NotFound.into());
                missing.leave_out(on_error, &mut skipped)?;
                continue;
            };
            let annotation = of_descriptions.find(&name)?.unwrap_or_else(|| descriptions.join(format!("{name}.xml")));
            match voc::read(&annotation, &classes, on_error, &mut skipped) {
                Ok((size, objects)) => images.push(BoxedImage { path, annotation, size, objects }),
                Err(error) => error.leave_out(on_error, &mut skipped)?,
            }
        }
        Ok(Self { images, classes, skipped })
    }

    /// Number of skipped images and annotations.
    pub fn skipped(&self) -> usize {
        self.skipped
    }
}

/// Names of both parts.
const PARTS: [&str; 2] = ["train", "val"];

const INSTANCES: &str = "instances_";

/// COCO's annotation file of a part.
///
/// # Errors
/// Several such files, and a folder that cannot be read.
fn instances(root: &Path, part: Part) -> Result<Option<PathBuf>, DataError> {
    let folder = root.join("annotations");
    // Windows would take PASCAL VOC's for the same.
    if !folder.is_dir() {
        return Ok(None);
    }
    let start = format!("{INSTANCES}{}", part.of(PARTS));
    let fits = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&start) && name.ends_with(".json")
    };
    let mut found = entries(&folder)?.into_iter().filter(fits);
    match (found.next(), found.next()) {
        (Some(first), Some(second)) => {
            let message = format!("{} and {}: only one of them can be read", first.display(), second.display());
            Err(DataError::Config(message))
        }
        (first, _) => Ok(first),
    }
}

impl Annotated<Vec<Object>> for BoxFolder {
    fn len(&self) -> usize {
        self.images.len()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn name(&self, index: usize) -> String {
        self.images[index].path.display().to_string()
    }

    fn load(&self, index: usize) -> Result<(Image, Vec<Object>), DataError> {
        let BoxedImage { path, annotation, size, objects } = &self.images[index];
        let image = read_image(path)?;
        if image.size() != *size {
            let (found, annotation) = (image.size(), annotation.display());
            let reason = format!("{found} pixels, but {size} according to {annotation}");
            return Err(DataError::unusable(path.display(), reason));
        }
        Ok((image, objects.clone()))
    }
}
