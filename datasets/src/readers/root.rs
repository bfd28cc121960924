//! Detects the layout of a `--data` folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cifar10::{Cifar10, TEST_FILE, training_files};
use super::class_order::ClassOrder;
use super::folder::ImageFolder;
use super::idx::{IdxImages, IdxPart};
use super::layout::{expect_folder, names, unknown};
use crate::hash::h;
use crate::{DataError, Dataset, OnError};

/// The layouts of a data folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// `train/CLASS/*` and `val/CLASS/*`.
    TrainVal,
    /// `CLASS/*`, split by hash.
    Classes,
    /// `data_batch_*.bin` and `test_batch.bin`, in the folder or in `cifar-10-batches-bin/` below it.
    Cifar10,
    /// `train-images-idx3-ubyte` and its kin.
    Idx,
}

/// Training and validation data found in a folder.
#[derive(Clone)]
pub struct Root {
    /// Predictions.
    pub layout: Layout,
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

/// Share of held-out images, for folders without a split.
const VAL_FRACTION: f64 = 0.1;

/// Opens the data set in `dir`, whichever [`Layout`] it has.
///
/// A folder `CLASS/*` is split by the hash of each path below it: an image validates if `h("split:PATH", 0)` is below a
/// tenth of 2^64, independent of other images.
///
/// # Errors
/// If no layout fits (the message says what was looked for), if the parts differ in their classes or one would be
/// empty, and as [`ImageFolder::open`], [`Cifar10::read`] and [`IdxImages::open`].
pub fn open_root(dir: &Path, on_error: OnError) -> Result<Root, DataError> {
    expect_folder(dir, LAYOUTS)?;
    let inner = inner(dir)?;
    match layout(dir)? {
        Some(Layout::Cifar10) => cifar10(dir),
        Some(Layout::Idx) => idx(dir),
        Some(Layout::TrainVal) => open_divided(dir, ["train", "val"].map(Path::new), None, on_error),
        Some(Layout::Classes) if inner.is_none() => open_class_folders(dir, on_error),
        Some(Layout::Classes) | None => Err(unknown(dir, LAYOUTS, inner)),
    }
}

/// The layout of a folder, by the names in it.
fn layout(dir: &Path) -> Result<Option<Layout>, DataError> {
    if cifar10_below(dir)?.is_some() {
        return Ok(Some(Layout::Cifar10));
    }
    if IdxImages::lie_in(dir) {
        return Ok(Some(Layout::Idx));
    }
    Ok(match ["train", "val"].map(|part| dir.join(part).is_dir()) {
        [true, true] => Some(Layout::TrainVal),
        [false, false] if names(dir)?.iter().any(|name| name.ends_with('/')) => Some(Layout::Classes),
        _ => None,
    })
}

/// The folder with CIFAR-10's files: this one, or the one that its archive contains.
fn cifar10_below(dir: &Path) -> Result<Option<PathBuf>, DataError> {
    for dir in [dir.to_owned(), dir.join("cifar-10-batches-bin")] {
        if dir.join(TEST_FILE).is_file() && !training_files(&dir)?.is_empty() {
            return Ok(Some(dir));
        }
    }
    Ok(None)
}

/// The only entry of a folder, if it is a data set and no class: what unpacking an archive often leaves.
fn inner(dir: &Path) -> Result<Option<PathBuf>, DataError> {
    let names = names(dir)?;
    let [name] = names.as_slice() else { return Ok(None) };
    let Some(name) = name.strip_suffix('/') else { return Ok(None) };
    let inner = dir.join(name);
    Ok(layout(&inner)?.is_some_and(|layout| layout != Layout::Classes).then_some(inner))
}

/// Opens `CLASS/*` in `dir`, split by hash as described for [`open_root`], with any folder names.
///
/// # Errors
/// If one part would be empty, and as [`ImageFolder::open`].
pub fn open_class_folders(dir: &Path, on_error: OnError) -> Result<Root, DataError> {
    split(dir, ImageFolder::open(dir, on_error)?)
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
            return Err(DataError::ClassMismatch {
                root: dir.to_owned(),
                class: class.clone(),
                only_in: only_in.to_owned(),
            });
        }
    }
    let (train, val) = match order.map(ClassOrder::read).transpose()? {
        Some(order) => (order.apply(train)?, order.apply(val)?),
        None => (train, val),
    };
    let skipped = train.skipped() + val.skipped();
    Ok(Root { layout: Layout::TrainVal, train: Arc::new(train), val: Arc::new(val), skipped })
}

fn cifar10(dir: &Path) -> Result<Root, DataError> {
    let dir = cifar10_below(dir)?.unwrap_or_else(|| dir.to_owned());
    let (train, val) = (Cifar10::train(&dir)?, Cifar10::test(&dir)?);
    Ok(Root { layout: Layout::Cifar10, train: Arc::new(train), val: Arc::new(val), skipped: 0 })
}

fn idx(dir: &Path) -> Result<Root, DataError> {
    let (train, val) = (IdxImages::open(dir, IdxPart::Train)?, IdxImages::open(dir, IdxPart::Test)?);
    Ok(Root { layout: Layout::Idx, train: Arc::new(train), val: Arc::new(val), skipped: 0 })
}

fn split(dir: &Path, all: ImageFolder) -> Result<Root, DataError> {
    let validates = |path: &str| (h(&format!("split:{path}"), 0) as f64) < VAL_FRACTION * (u64::MAX as f64);
    let (train, val) = (all.filter(|path| !validates(path)), all.filter(validates));
    for (part, empty) in [(&train, "training"), (&val, "validation")] {
        if part.is_empty() {
            return Err(DataError::EmptySplit { root: dir.to_owned(), total: all.len(), empty });
        }
    }
    Ok(Root { layout: Layout::Classes, train: Arc::new(train), val: Arc::new(val), skipped: all.skipped() })
}
