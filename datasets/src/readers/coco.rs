//! COCO's annotations of boxes: `instances_*.json`.
//!
//! `{"images": [{"id", "file_name", "width", "height"}], "annotations": [{"id", "image_id", "category_id", "bbox": [x,
//! y, width, height], "area", "iscrowd"}], "categories": [{"id", "name"}]}`; other keys are ignored. The class of an
//! object is the number of its category, as in torchvision's detectors.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

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

// Exporters write numbers as fractions and as text, so that values are read as they are and judged one by one.
#[derive(Deserialize)]
struct ImageEntry {
    id: Option<Value>,
    file_name: Option<Value>,
    width: Option<Value>,
    height: Option<Value>,
}

#[derive(Deserialize)]
struct Annotation {
    id: Option<Value>,
    image_id: Option<Value>,
    category_id: Option<Value>,
    bbox: Option<Value>,
    area: Option<Value>,
    iscrowd: Option<Value>,
}

#[derive(Deserialize)]
struct Category {
    id: Option<Value>,
    name: Option<Value>,
}

/// The identity of an image or annotation: a number, or any other text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Id {
    Number(i64),
    Text(String),
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
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
    let refuse = |error: serde_json::Error| DataError::line(path, error.line().max(1), error.to_string());
    let file: File = match serde_json::from_str(&text) {
        Ok(file) => file,
        Err(_) => serde_json::from_slice(&without_nan(&text)).map_err(refuse)?,
    };
    drop(text);
    let mut leave_out = |entry: String, reason: String| {
        DataError::unusable(format_args!("{}: {entry}", path.display()), reason).leave_out(on_error, skipped)
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

    let mut images: Vec<(Id, BoxedImage)> = Vec::with_capacity(file.images.len());
    let mut place = HashMap::with_capacity(file.images.len());
    for (number, entry) in file.images.into_iter().enumerate() {
        let at = format!("images[{number}]{}", named(entry.id.as_ref()));
        match entry.read(path, folder) {
            Ok((id, _)) if place.contains_key(&id) => leave_out(at, format!("a second image {id}"))?,
            Ok((_, image)) if !image.path.is_file() => {
                leave_out(at, format!("{}: no such file", image.path.display()))?;
            }
            Ok((id, image)) => {
                place.insert(id.clone(), images.len());
                images.push((id, image));
            }
            Err(reason) => leave_out(at, reason)?,
        }
    }

    let mut seen = HashSet::with_capacity(file.annotations.len());
    for (number, annotation) in file.annotations.into_iter().enumerate() {
        let find = |id: &Id| place.get(id).map(|place| (*place, images[*place].1.size));
        match annotation.read(find, &known) {
            Ok(Found { id, .. }) if seen.contains(&id) => {
                leave_out(format!("annotations[{number}]"), format!("a second annotation {id}"))?;
            }
            Ok(Found { id, image, object }) => {
                seen.insert(id);
                images[image].1.objects.push(object);
            }
            Err(reason) => leave_out(format!("annotations[{number}]{}", named(annotation.id.as_ref())), reason)?,
        }
    }
    images.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok((images.into_iter().map(|(_, image)| image).collect(), classes))
}

/// A file with `null` in place of NaN and infinities, which Python's `json` writes although JSON has no such numbers.
fn without_nan(text: &str) -> Vec<u8> {
    let (mut written, mut rest, mut quoted) = (Vec::with_capacity(text.len()), text.as_bytes(), false);
    while let Some(byte) = rest.first() {
        let word = [&b"NaN"[..], b"Infinity", b"-Infinity"].into_iter().find(|word| rest.starts_with(word));
        let taken = match word.filter(|_| !quoted) {
            Some(word) => {
                written.extend(b"null");
                word.len()
            }
            None => {
                let taken = if quoted && *byte == b'\\' { rest.len().min(2) } else { 1 };
                written.extend(&rest[..taken]);
                quoted ^= *byte == b'"';
                taken
            }
        };
        rest = &rest[taken..];
    }
    written
}

/// The identity of an entry in messages.
fn named(id: Option<&Value>) -> String {
    id.map_or(String::new(), |id| format!(" (id {id})"))
}

/// A value that must be there.
fn needed<'a>(value: Option<&'a Value>, key: &str) -> Result<&'a Value, String> {
    value.ok_or_else(|| format!("no `{key}`"))
}

/// What a value is instead of what was expected.
fn unexpected(key: &str, value: &Value, expected: &str) -> String {
    const SHOWN: usize = 60;
    let value: String = value.to_string().chars().take(SHOWN).collect();
    format!("`{key}` is {value}, expected {expected}")
}

/// A number, also one that is written as text.
fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    number.filter(|number| number.is_finite())
}

/// A whole number, also one that is written as a fraction or as text.
fn whole(key: &str, value: Option<&Value>) -> Result<i64, String> {
    let value = needed(value, key)?;
    // Beyond this, fractions have no place for all whole numbers.
    const LARGEST: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;
    let fraction = || number(value).filter(|number| number.fract() == 0.0 && number.abs() <= LARGEST);
    let found = value.as_i64().or_else(|| value.as_str()?.trim().parse().ok()).or_else(|| Some(fraction()? as i64));
    found.ok_or_else(|| unexpected(key, value, "a whole number"))
}

/// The length of a side in pixels.
fn side(key: &str, value: Option<&Value>) -> Result<usize, String> {
    let side = whole(key, value)?;
    let side = usize::try_from(side).ok().filter(|side| (1..=MAX_SIDE).contains(side));
    side.ok_or_else(|| unexpected(key, value.unwrap_or(&Value::Null), &format!("1 to {MAX_SIDE} pixels")))
}

fn identity(key: &str, value: Option<&Value>) -> Result<Id, String> {
    match (whole(key, value), value) {
        (Ok(number), Some(Value::String(text))) if number.to_string() != *text => Ok(Id::Text(text.clone())),
        (Ok(number), _) => Ok(Id::Number(number)),
        (Err(_), Some(Value::String(text))) => Ok(Id::Text(text.clone())),
        (Err(_), Some(value)) => Err(unexpected(key, value, "a number or a text")),
        (Err(reason), None) => Err(reason),
    }
}

fn text<'a>(key: &str, value: Option<&'a Value>) -> Result<&'a str, String> {
    let value = needed(value, key)?;
    value.as_str().ok_or_else(|| unexpected(key, value, "a text"))
}

impl Category {
    fn read(&self) -> Result<(usize, String), String> {
        let (id, name) = (whole("id", self.id.as_ref())?, text("name", self.name.as_ref())?);
        let class = usize::try_from(id).ok().filter(|_| id <= MAX_CATEGORY);
        let class = class.ok_or_else(|| format!("category {id} is not within 0 to {MAX_CATEGORY}"))?;
        Ok((class, name.to_owned()))
    }
}

impl ImageEntry {
    fn read(&self, annotation: &Path, folder: &Path) -> Result<(Id, BoxedImage), String> {
        let (id, name) = (identity("id", self.id.as_ref())?, text("file_name", self.file_name.as_ref())?);
        let size = Size::new(side("width", self.width.as_ref())?, side("height", self.height.as_ref())?);
        if !is_plain(name) {
            return Err(format!("{name:?} is not a path below the folder of images"));
        }
        let (path, annotation) = (folder.join(name), annotation.to_owned());
        Ok((id, BoxedImage { path, annotation, size, objects: Vec::new() }))
    }
}

/// A sound annotation.
struct Found {
    id: Id,
    /// Index of its image.
    image: usize,
    object: Object,
}

impl Annotation {
    /// `find` returns index and size of the image of a number.
    fn read(&self, find: impl Fn(&Id) -> Option<(usize, Size)>, categories: &HashSet<usize>) -> Result<Found, String> {
        let (id, image) = (identity("id", self.id.as_ref())?, identity("image_id", self.image_id.as_ref())?);
        let (image, size) = find(&image).ok_or_else(|| format!("image {image} is not in `images`"))?;
        let category = whole("category_id", self.category_id.as_ref())?;
        let class = usize::try_from(category).ok().filter(|class| categories.contains(class));
        let class = class.ok_or_else(|| format!("category {category} is not in `categories`"))?;
        let bounds = self.bounds()?;
        check_bounds(&bounds, size)?;
        let (area, role) = (self.area()?.unwrap_or(bounds.area()), self.role()?);
        Ok(Found { id, image, object: Object { class, bounds, area, role } })
    }

    fn bounds(&self) -> Result<BoundingBox, String> {
        let value = needed(self.bbox.as_ref(), "bbox")?;
        let numbers: Option<Vec<f64>> = value.as_array().and_then(|list| list.iter().map(number).collect());
        let &[x, y, width, height] = numbers.as_deref().unwrap_or_default() else {
            return Err(unexpected("bbox", value, "four numbers: x, y, width and height"));
        };
        Ok(BoundingBox { x, y, width, height })
    }

    fn area(&self) -> Result<Option<f64>, String> {
        let Some(value) = &self.area else { return Ok(None) };
        let area = number(value).filter(|area| *area >= 0.0);
        area.map(Some).ok_or_else(|| unexpected("area", value, "a number of at least 0"))
    }

    fn role(&self) -> Result<Role, String> {
        let Some(value) = &self.iscrowd else { return Ok(Role::Single) };
        match value.as_bool().or_else(|| Some(number(value)? != 0.0)) {
            Some(false) => Ok(Role::Single),
            Some(true) => Ok(Role::Crowd),
            None => Err(unexpected("iscrowd", value, "0 or 1")),
        }
    }
}
