//! COCO's annotations of boxes: `instances_*.json`.
//!
//! `{"images": [{"id", "file_name", "width", "height"}], "annotations": [{"id", "image_id", "category_id", "bbox": [x,
//! y, width, height], "area", "iscrowd"}], "categories": [{"id", "name"}]}`; other keys are ignored. The class of an
//! object is the number of its category, as in torchvision's detectors.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde::Deserialize;

use super::box_folder::{BoxedImage, check_bounds};
use super::crop511::is_plain;
use crate::detection::{BoundingBox, Object, Role};
use crate::image::{MAX_SIDE, Size};
use crate::{DataError, OnError, files};

/// Longest file that is read; that of COCO's training images has 470 MB.
const MAX_FILE: u64 = 1 << 30;

/// Largest number of a category.
const MAX_CATEGORY: i64 = 65_535;

#[derive(Deserialize)]
struct File {
    images: Vec<ImageEntry>,
    annotations: Vec<Annotation>,
    categories: Vec<Category>,
}

#[derive(Deserialize)]
struct ImageEntry {
    id: Option<i64>,
    file_name: Option<String>,
    width: Option<usize>,
    height: Option<usize>,
}

#[derive(Deserialize)]
struct Annotation {
    id: Option<i64>,
    image_id: Option<i64>,
    category_id: Option<i64>,
    bbox: Option<Vec<f64>>,
    area: Option<f64>,
    iscrowd: Option<u8>,
}

#[derive(Deserialize)]
struct Category {
    id: Option<i64>,
    name: Option<String>,
}

/// Reads an annotation file of images in `folder`: the images, sorted by their numbers, and the names of the classes.
/// Classes without category are called `N/A`, and class 0 `background`.
///
/// # Errors
/// If the file cannot be read or is not such a JSON file (with line and column); and with [`OnError::Fail`] for a
/// missing or repeated number, a category or image that does not exist, and a box without area or outside of its image.
/// With [`OnError::Skip`] these are logged, counted and skipped.
pub(super) fn read(
    path: &Path,
    folder: &Path,
    on_error: OnError,
    skipped: &mut usize,
) -> Result<(Vec<BoxedImage>, Vec<String>), DataError> {
    let text = files::read_text(path, MAX_FILE)?;
    let refuse = |error: serde_json::Error| DataError::Annotation {
        path: path.to_owned(),
        line: error.line().max(1),
        reason: error.to_string(),
    };
    let file: File = serde_json::from_str(&text).map_err(refuse)?;
    drop(text);
    let mut leave_out = |entry: String, reason: String| {
        on_error.leave_out(DataError::Entry { path: path.to_owned(), entry, reason }, skipped)
    };

    let mut classes = vec!["background".to_owned()];
    let mut known = HashSet::new();
    for (number, category) in file.categories.into_iter().enumerate() {
        match category.read() {
            Ok((id, _)) if !known.insert(id) => {
                leave_out(format!("categories[{number}]"), format!("a second category {id}"))?;
            }
            Ok((id, name)) => {
                classes.resize(classes.len().max(id + 1), "N/A".to_owned());
                classes[id] = name;
            }
            Err(reason) => leave_out(format!("categories[{number}]"), reason)?,
        }
    }

    let mut images: Vec<(i64, BoxedImage)> = Vec::with_capacity(file.images.len());
    let mut place = HashMap::with_capacity(file.images.len());
    for (number, entry) in file.images.into_iter().enumerate() {
        let (at, image) = (format!("images[{number}]{}", named(entry.id)), entry.read(path, folder));
        match image {
            Ok((id, _)) if place.contains_key(&id) => leave_out(at, format!("a second image {id}"))?,
            Ok((_, image)) if !image.path.is_file() => {
                leave_out(at, format!("{}: no such file", image.path.display()))?;
            }
            Ok((id, image)) => {
                place.insert(id, images.len());
                images.push((id, image));
            }
            Err(reason) => leave_out(at, reason)?,
        }
    }

    let mut seen = HashSet::with_capacity(file.annotations.len());
    for (number, annotation) in file.annotations.into_iter().enumerate() {
        let find = |id: i64| place.get(&id).map(|place| (*place, images[*place].1.size));
        match annotation.read(find, &known) {
            Ok(Found { id, .. }) if !seen.insert(id) => {
                leave_out(format!("annotations[{number}]"), format!("a second annotation {id}"))?;
            }
            Ok(Found { image, object, .. }) => images[image].1.objects.push(object),
            Err(reason) => leave_out(format!("annotations[{number}]{}", named(annotation.id)), reason)?,
        }
    }
    images.sort_by_key(|(id, _)| *id);
    Ok((images.into_iter().map(|(_, image)| image).collect(), classes))
}

/// The number of an entry in messages.
fn named(id: Option<i64>) -> String {
    id.map_or(String::new(), |id| format!(" (id {id})"))
}

/// A value that must be there.
fn needed<T>(value: Option<T>, key: &str) -> Result<T, String> {
    value.ok_or_else(|| format!("no `{key}`"))
}

impl Category {
    fn read(self) -> Result<(usize, String), String> {
        let (id, name) = (needed(self.id, "id")?, needed(self.name, "name")?);
        let class = usize::try_from(id).ok().filter(|_| id <= MAX_CATEGORY);
        Ok((class.ok_or_else(|| format!("category {id} is not within 0 to {MAX_CATEGORY}"))?, name))
    }
}

impl ImageEntry {
    fn read(self, annotation: &Path, folder: &Path) -> Result<(i64, BoxedImage), String> {
        let (id, name) = (needed(self.id, "id")?, needed(self.file_name, "file_name")?);
        let size = Size::new(needed(self.width, "width")?, needed(self.height, "height")?);
        if ![size.width, size.height].iter().all(|side| (1..=MAX_SIDE).contains(side)) {
            return Err(format!("an image of {size} pixels"));
        }
        if !is_plain(&name) {
            return Err(format!("{name:?} is not a path below the folder of images"));
        }
        let (path, annotation) = (folder.join(name), annotation.to_owned());
        Ok((id, BoxedImage { path, annotation, size, objects: Vec::new() }))
    }
}

/// A sound annotation.
struct Found {
    id: i64,
    /// Index of its image.
    image: usize,
    object: Object,
}

impl Annotation {
    /// `find` returns index and size of the image of a number.
    fn read(&self, find: impl Fn(i64) -> Option<(usize, Size)>, categories: &HashSet<usize>) -> Result<Found, String> {
        let (id, image) = (needed(self.id, "id")?, needed(self.image_id, "image_id")?);
        let (image, size) = find(image).ok_or_else(|| format!("image {image} is not in `images`"))?;
        let category = needed(self.category_id, "category_id")?;
        let class = usize::try_from(category).ok().filter(|class| categories.contains(class));
        let class = class.ok_or_else(|| format!("category {category} is not in `categories`"))?;
        let Some(&[x, y, width, height]) = self.bbox.as_deref() else {
            return Err("no `bbox` of four numbers".into());
        };
        let bounds = BoundingBox { x, y, width, height };
        check_bounds(&bounds, size)?;
        let area = self.area.unwrap_or(bounds.area());
        let role = if self.iscrowd.unwrap_or(0) == 0 { Role::Single } else { Role::Crowd };
        Ok(Found { id, image, object: Object { class, bounds, area, role } })
    }
}
