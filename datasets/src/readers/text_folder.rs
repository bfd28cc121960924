//! Folders of images with annotated text: ICDAR 2015 and Total-Text.

use std::path::{Path, PathBuf};

use super::folder::{images_in, read_image};
use super::layout::{expect_folder, unknown};
use super::parts::{Part, name};
use super::stems::{Stems, stem};
use super::text_lines::{LineError, parse_text_regions};
use crate::text::TextRegion;
use crate::{Annotated, DataError, Image, OnError, TextFormat, files};

/// Longest annotation file that is read.
const MAX_ANNOTATION: u64 = 4 << 20;

/// Images with annotated text, sorted by name. Annotations are read when the folder is opened, images when they are
/// used.
#[derive(Debug, Clone)]
pub struct TextFolder {
    samples: Vec<(PathBuf, Vec<TextRegion>)>,
    skipped: usize,
}

/// Names of the folders of images and annotations below the root, as published and as DB's copies have them.
const LAYOUTS: [(Part, &str, &str); 10] = [
    (Part::Train, "train_images", "train_gts"),
    (Part::Val, "test_images", "test_gts"),
    (Part::Train, "ch4_training_images", "ch4_training_localization_transcription_gt"),
    (Part::Val, "ch4_test_images", "Challenge4_Test_Task1_GT"),
    (Part::Train, "Images/Train", "Groundtruth/Polygon/Train"),
    (Part::Val, "Images/Test", "Groundtruth/Polygon/Test"),
    (Part::Train, "train/images", "train/gts"),
    (Part::Val, "test/images", "test/gts"),
    (Part::Train, "images", "gts"),
    (Part::Val, "images", "gts"),
];

/// The published ones of [`LAYOUTS`].
const PUBLISHED: &str = "train_images with train_gts, images with gts, ch4_training_images with \
                         ch4_training_localization_transcription_gt, or Images/Train with Groundtruth/Polygon/Train, \
                         and their test parts";

impl TextFolder {
    /// The images of `images`, each with its annotation in `annotations`: of `img_1.jpg` in `gt_img_1.txt`,
    /// `img_1.txt`, `img_1.jpg.txt` or `poly_gt_img_1.txt`.
    ///
    /// # Errors
    /// If a folder cannot be read or holds no image; and with [`OnError::Fail`] for an image without annotation, an
    /// annotation that is too long, and a malformed line or a self-intersecting polygon (with its number). With
    /// [`OnError::Skip`] these are logged, counted and skipped; where such a line says where its text is, that area is
    /// ignored. A file without lines is an image without text.
    pub fn open(images: &Path, annotations: &Path, format: TextFormat, on_error: OnError) -> Result<Self, DataError> {
        for folder in [images, annotations] {
            expect_folder(folder, "images, with their annotations in another folder")?;
        }
        let paths = images_in(images)?;
        let mut of_annotations = Stems::of(annotations, &["txt"]);
        let mut folder = Self { samples: Vec::with_capacity(paths.len()), skipped: 0 };
        for path in paths {
            match annotation_of(&path, annotations, &mut of_annotations)
                .and_then(|file| Ok((files::read_text_lossy(&file, MAX_ANNOTATION)?, file)))
            {
                Ok((text, file)) => {
                    let regions = folder.regions(&text, &file, format, on_error)?;
                    folder.samples.push((path, regions));
                }
                Err(error) => error.leave_out(on_error, &mut folder.skipped)?,
            }
        }
        if folder.samples.is_empty() {
            return Err(DataError::empty(images, folder.skipped));
        }
        Ok(folder)
    }

    /// Opens a part of the data set in `root`, whichever of the published layouts it has.
    ///
    /// # Errors
    /// If no layout fits, and as [`open`](Self::open).
    pub fn open_root(root: &Path, part: Part, format: TextFormat, on_error: OnError) -> Result<Self, DataError> {
        expect_folder(root, PUBLISHED)?;
        let fits = |(of, images, gts): &&(Part, &str, &str)| {
            *of == part && root.join(images).is_dir() && root.join(gts).is_dir()
        };
        match LAYOUTS.iter().find(fits) {
            Some((_, images, gts)) => Self::open(&root.join(images), &root.join(gts), format, on_error),
            None => Err(unknown(root, PUBLISHED, None)),
        }
    }

    /// Number of skipped lines and images.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// The text in an annotation file.
    fn regions(
        &mut self,
        text: &str,
        file: &Path,
        format: TextFormat,
        on_error: OnError,
    ) -> Result<Vec<TextRegion>, DataError> {
        let mut regions = Vec::new();
        for region in parse_text_regions(text.as_bytes(), format) {
            match region {
                Ok(region) => regions.push(region),
                Err(LineError { line, reason, place }) => {
                    DataError::line(file, line, reason).leave_out(on_error, &mut self.skipped)?;
                    // As background, it would teach that there is no text.
                    let ignored = |polygon| TextRegion { polygon, text: String::new(), ignore: true };
                    regions.extend(place.map(ignored));
                }
            }
        }
        Ok(regions)
    }
}

/// The annotation file of an image, among the texts of a folder.
fn annotation_of(image: &Path, folder: &Path, texts: &mut Stems) -> Result<PathBuf, DataError> {
    let (name, stem) = (name(image), stem(image));
    for wanted in [format!("gt_{stem}"), stem.clone(), name, format!("poly_gt_{stem}")] {
        if let Some(found) = texts.find(&wanted)? {
            return Ok(found);
        }
    }
    let reason = format!("no annotation (gt_NAME.txt, NAME.txt) in {}", folder.display());
    Err(DataError::unusable(image.display(), reason))
}

impl Annotated<Vec<TextRegion>> for TextFolder {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn name(&self, index: usize) -> String {
        self.samples[index].0.display().to_string()
    }

    fn load(&self, index: usize) -> Result<(Image, Vec<TextRegion>), DataError> {
        let (path, regions) = &self.samples[index];
        Ok((read_image(path)?, regions.clone()))
    }
}
