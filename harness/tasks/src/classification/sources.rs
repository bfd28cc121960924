//! Sources of labelled images.

use std::sync::Arc;

use zoo_datasets::{Cached, Characters, Dataset, Layout, OnError, Root, open_divided};
use zoo_recipe::schema;

use super::LabelledImages;
use crate::{DataSets, InputError};

/// Class folders in two parts.
pub(super) fn folder(folder: &schema::ImageFolder, on_error: OnError) -> Result<DataSets, InputError> {
    let schema::ImageFolder { root, train, val, classes_from } = folder;
    let order = classes_from.as_ref().map(|file| root.join(file));
    let found = open_divided(root, [train.as_path(), val.as_path()], order.as_deref(), on_error)?;
    let samples = Arc::new(LabelledImages::new(found.train, found.val));
    Ok(DataSets { samples, description: format!("image folder {}", root.display()), skipped: found.skipped })
}

/// Class folders, divided into training and held-out images by hash.
pub(super) fn class_folders(folders: &schema::ClassFolders, on_error: OnError) -> Result<DataSets, InputError> {
    detected(&Layout::Classes(folders.root.clone()), on_error)
}

/// The data in a detected layout.
pub(super) fn detected(layout: &Layout, on_error: OnError) -> Result<DataSets, InputError> {
    let description = match layout {
        Layout::Divided { root, train, val } => {
            format!("class folders in {} and {}", root.join(train).display(), root.join(val).display())
        }
        Layout::Classes(root) => format!("class folders in {}, a tenth of the images held out", root.display()),
        Layout::Cifar10(root) => format!("CIFAR-10 in {}", root.display()),
        Layout::Idx(root) => format!("IDX files in {}", root.display()),
    };
    let Root { train, val, skipped } = layout.open(on_error)?;
    Ok(DataSets { samples: Arc::new(LabelledImages::new(train, val)), description, skipped })
}

pub(super) fn cifar10(section: &schema::Cifar10) -> Result<DataSets, InputError> {
    detected(&Layout::Cifar10(section.root.clone()), OnError::Fail)
}

pub(super) fn idx(section: &schema::Idx) -> Result<DataSets, InputError> {
    detected(&Layout::Idx(section.root.clone()), OnError::Fail)
}

pub(super) fn characters(section: &schema::Characters) -> Result<DataSets, InputError> {
    let train = Characters::new(section, 0, section.train)?;
    let val = Characters::new(section, Characters::HELD_OUT, section.val)?;
    let description = format!("generated characters, {0}x{0} pixels", section.size);
    let kept = [&train, &val].map(|set| (set.len() * 3 * section.size * section.size).min(KEPT_IMAGES) as u64);
    let cached = |set| -> Arc<dyn Dataset> { Arc::new(Cached::new(Arc::new(set), KEPT_IMAGES)) };
    let samples = Arc::new(LabelledImages { kept, ..LabelledImages::new(cached(train), cached(val)) });
    Ok(DataSets { samples, description, skipped: 0 })
}

/// Most bytes of generated images that are cached: drawing an image may take longer than a training step leaves time
/// for.
const KEPT_IMAGES: usize = 512 << 20;
