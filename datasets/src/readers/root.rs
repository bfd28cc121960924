//! Detects the layout of a `--data` folder of labelled images.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cifar10::{Cifar10, TEST_FILE, training_files};
use super::class_order::ClassOrder;
use super::folder::{ImageFolder, images_in};
use super::idx::IdxImages;
use super::layout::{expect_folder, unknown};
use super::parts::{Purpose, divided, folders_in, name, plain};
use crate::hash::h;
use crate::{DataError, Dataset, OnError};

/// The layouts of labelled images, and where their files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// `train/CLASS/*` and `val/CLASS/*`, or other names of the two parts.
    Divided {
        /// The folder of both parts.
        root: PathBuf,
        /// Path of the training part below it.
        train: PathBuf,
        /// Path of the held-out part below it.
        val: PathBuf,
    },
    /// `CLASS/*` in this folder, split by hash.
    Classes(PathBuf),
    /// `data_batch_*.bin` and `test_batch.bin` in this folder.
    Cifar10(PathBuf),
    /// `train-images-idx3-ubyte` and its kin in this folder.
    Idx(PathBuf),
}

/// Training and validation data found in a folder.
#[derive(Clone)]
pub struct Root {
    /// Training part.
    pub train: Arc<dyn Dataset>,
    /// Validation part, with the same classes.
    pub val: Arc<dyn Dataset>,
    /// Number of skipped entries ([`OnError::Skip`]).
    pub skipped: usize,
}

/// The files of each [`Layout`].
const LAYOUTS: &str = "data_batch_*.bin and test_batch.bin (CIFAR-10 binary), train-images-idx3-ubyte and so on \
                       (MNIST), train/CLASS/* with val/CLASS/*, or CLASS/*";

/// Names of folders for the content of a data set in other tasks, as [`plain`] gives them.
const NO_CLASSES: [&str; 13] = [
    "images",
    "image",
    "imgs",
    "jpegimages",
    "labels",
    "masks",
    "mask",
    "annotations",
    "segmentationclass",
    "imagesets",
    "gts",
    "groundtruth",
    "color",
];

/// Share of held-out images, for folders without a split.
const VAL_FRACTION: f64 = 0.1;

/// How many folders may lie around a data set: what archives and tools of downloads leave.
const DEEPEST: usize = 4;

impl Layout {
    /// The layout in `dir`, or in the only folder in it. The parts of a divided set can have any usual names (`Training`
    /// and `Testing`, `valid`, `test_set`) and hold their class folders one level deeper (`train/images/CLASS/*`); a
    /// test part is held out if there is no other. Class folders can have any names but these.
    ///
    /// # Errors
    /// If no layout fits, or it is unclear which folders are the classes. The message says what was looked for.
    pub fn of(dir: &Path) -> Result<Self, DataError> {
        expect_folder(dir, LAYOUTS)?;
        Self::at(dir, DEEPEST)
    }

    fn at(dir: &Path, deeper: usize) -> Result<Self, DataError> {
        if let Some(binary) = binary(dir)? {
            return Ok(binary);
        }
        let refuse = |advice: String| Err(unknown(dir, LAYOUTS, Some(advice)));
        let folders = folders_in(dir)?;
        let names: Vec<String> = folders.iter().map(|folder| name(folder)).collect();
        let listed = |names: &[String]| names.iter().map(|name| format!("{name}/")).collect::<Vec<_>>().join(", ");
        let parts: Vec<PathBuf> =
            folders.iter().filter(|folder| Purpose::of(&name(folder)).is_some()).cloned().collect();
        // Among class folders, one of images can have the name of a part, such as `train` beside `bus`.
        let of_folders = |part: &PathBuf| Ok(!holds_images(part)? && !folders_in(part)?.is_empty());
        if !parts.is_empty() && (parts.len() == folders.len() || any(&parts, of_folders)?) {
            return match divided(&parts)? {
                [Some(train), Some(val)] => {
                    let [train, val] = [class_root(&train)?, class_root(&val)?];
                    expect_classes(&train)?;
                    let below = |part: &Path| part.strip_prefix(dir).unwrap_or(part).to_owned();
                    Ok(Self::Divided { root: dir.to_owned(), train: below(&train), val: below(&val) })
                }
                [Some(_), None] => refuse("no held-out part beside the training part: val/ or test/".to_owned()),
                [None, _] => refuse("no training part: train/".to_owned()),
            };
        }
        match folders.as_slice() {
            [] => Err(unknown(dir, LAYOUTS, None)),
            [only] if !holds_images(dir)? && !holds_images(only)? && deeper > 0 => Self::at(only, deeper - 1),
            _ if names.iter().all(|name| NO_CLASSES.contains(&plain(name).as_str())) => {
                refuse(format!("{}: names of contents, not of classes", listed(&names)))
            }
            folders => {
                if let Some(set) = find(folders, |folder| Ok(binary(folder)?.is_some()))? {
                    return refuse(format!("several data sets; try {}", set.display()));
                }
                expect_classes(dir)?;
                Ok(Self::Classes(dir.to_owned()))
            }
        }
    }

    /// Opens the data in this layout.
    ///
    /// # Errors
    /// If the parts differ in their classes or one would be empty, and as [`ImageFolder::open`], [`Cifar10::read`] and
    /// [`IdxImages::open_parts`].
    pub fn open(&self, on_error: OnError) -> Result<Root, DataError> {
        match self {
            Self::Divided { root, train, val } => open_divided(root, [train.as_path(), val.as_path()], None, on_error),
            Self::Classes(dir) => open_class_folders(dir, on_error),
            Self::Cifar10(dir) => {
                let (train, val) = (Cifar10::train(dir)?, Cifar10::test(dir)?);
                Ok(Root { train: Arc::new(train), val: Arc::new(val), skipped: 0 })
            }
            Self::Idx(dir) => {
                let [train, val] = IdxImages::open_parts(dir)?;
                Ok(Root { train: Arc::new(train), val: Arc::new(val), skipped: 0 })
            }
        }
    }
}

/// Opens the data set in `dir`, whichever [`Layout`] it has.
///
/// # Errors
/// As [`Layout::of`] and [`Layout::open`].
pub fn open_root(dir: &Path, on_error: OnError) -> Result<Root, DataError> {
    Layout::of(dir)?.open(on_error)
}

/// The files of CIFAR-10 or in IDX: in this folder, or in the one that their archives and torchvision make.
fn binary(dir: &Path) -> Result<Option<Layout>, DataError> {
    for dir in [dir.to_owned(), dir.join("cifar-10-batches-bin")] {
        if dir.join(TEST_FILE).is_file() && !training_files(&dir)?.is_empty() {
            return Ok(Some(Layout::Cifar10(dir)));
        }
    }
    let raw = [dir.to_owned(), dir.join("raw")].into_iter().find(|dir| IdxImages::lie_in(dir));
    Ok(raw.map(Layout::Idx))
}

fn holds_images(folder: &Path) -> Result<bool, DataError> {
    Ok(!images_in(folder)?.is_empty())
}

fn find(paths: &[PathBuf], fits: impl Fn(&PathBuf) -> Result<bool, DataError>) -> Result<Option<&PathBuf>, DataError> {
    for path in paths {
        if fits(path)? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn any(paths: &[PathBuf], fits: impl Fn(&PathBuf) -> Result<bool, DataError>) -> Result<bool, DataError> {
    Ok(find(paths, fits)?.is_some())
}

/// The folder of the class folders of a part: the part itself, or the only folder in it, if that holds folders alone.
fn class_root(part: &Path) -> Result<PathBuf, DataError> {
    match folders_in(part)?.as_slice() {
        [only] if !holds_images(part)? && !holds_images(only)? && !folders_in(only)?.is_empty() => class_root(only),
        _ => Ok(part.to_owned()),
    }
}

/// Refuses folders of which none holds images, but all hold several folders with the same names: these can be the
/// classes, or parts.
fn expect_classes(dir: &Path) -> Result<(), DataError> {
    let folders = folders_in(dir)?;
    let mut common: Option<BTreeSet<String>> = None;
    for folder in &folders {
        if holds_images(folder)? {
            return Ok(());
        }
        let inner: BTreeSet<String> = folders_in(folder)?.iter().map(|inner| name(inner)).collect();
        common = Some(common.map_or(inner.clone(), |common| &common & &inner));
    }
    let common: Vec<String> = common.into_iter().flatten().collect();
    if folders.len() < 2 || common.len() < 2 {
        return Ok(());
    }
    let (first, last) = (name(&folders[0]), name(&folders[folders.len() - 1]));
    let advice = format!(
        "all of {first}/ to {last}/ hold the folders {}: if these are the classes, put the images of each into one \
         folder; if the outer ones are, name them: data.source={{class_folders: {{root: {}}}}}",
        common.join(", "),
        dir.display()
    );
    Err(unknown(dir, LAYOUTS, Some(advice)))
}

/// Opens `CLASS/*` in `dir` with any folder names, split by the hash of each path below it: an image validates if
/// `h("split:PATH", 0)` is below a tenth of 2^64, independent of other images.
///
/// # Errors
/// If one part would be empty, and as [`ImageFolder::open`].
pub fn open_class_folders(dir: &Path, on_error: OnError) -> Result<Root, DataError> {
    let all = ImageFolder::open(dir, on_error)?;
    let validates = |path: &str| (h(&format!("split:{path}"), 0) as f64) < VAL_FRACTION * (u64::MAX as f64);
    let (train, val) = (all.filter(|path| !validates(path)), all.filter(validates));
    for (part, empty) in [(&train, "training"), (&val, "validation")] {
        if part.is_empty() {
            let total = all.len();
            let reason =
                format!("splitting {total} images by hash leaves no {empty} sample; use train/ and val/ folders");
            return Err(DataError::malformed(dir.display(), reason));
        }
    }
    Ok(Root { train: Arc::new(train), val: Arc::new(val), skipped: all.skipped() })
}

/// Opens `TRAIN/CLASS/*` and `VAL/CLASS/*` in `dir`, with the names of both folders in `parts`. The file `order` lists
/// the class folders in the order of class indices, one per line; without it they are sorted.
///
/// # Errors
/// If the parts differ in their classes, or the classes from the list; and as [`ImageFolder::open`].
pub fn open_divided(dir: &Path, parts: [&Path; 2], order: Option<&Path>, on_error: OnError) -> Result<Root, DataError> {
    let [train, val] = parts.map(|part| ImageFolder::open(&dir.join(part), on_error));
    let (train, val) = (train?, val?);
    for (one, other, only_in) in [(&train, &val, parts[0]), (&val, &train, parts[1])] {
        if let Some(class) = one.classes().iter().find(|class| other.classes().binary_search(class).is_err()) {
            let reason = format!("class '{class}' is only in {}/", only_in.display());
            return Err(DataError::malformed(dir.display(), reason));
        }
    }
    let (train, val) = match order.map(ClassOrder::read).transpose()? {
        Some(order) => (order.apply(train)?, order.apply(val)?),
        None => (train, val),
    };
    let skipped = train.skipped() + val.skipped();
    Ok(Root { train: Arc::new(train), val: Arc::new(val), skipped })
}
