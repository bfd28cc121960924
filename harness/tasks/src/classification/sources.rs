//! Sources of labelled images.

use std::{path::Path, sync::Arc};

use zoo_datasets::{
    Alphabet, Cached, Characters, CharactersConfig, Cifar10, Dataset, IdxImages, IdxPart, Layout, OnError, Root,
    open_class_folders, open_divided,
};
use zoo_recipe::{Recipe, schema};

use super::LabelledImages;
use crate::{DataSets, InputError, preprocess::pair};

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
    Ok(found(&folders.root, open_class_folders(&folders.root, on_error)?))
}

/// The detected content of a folder.
pub(super) fn found(root: &Path, found: Root) -> DataSets {
    let root = root.display();
    let description = match found.layout {
        Layout::TrainVal => format!("class folders in {root}/train and {root}/val"),
        Layout::Classes => format!("class folders in {root}, a tenth of the images held out"),
        Layout::Cifar10 => format!("CIFAR-10 in {root}"),
        Layout::Idx => format!("IDX files in {root}"),
    };
    let samples = Arc::new(LabelledImages::new(found.train, found.val));
    DataSets { samples, description, skipped: found.skipped }
}

pub(super) fn cifar10(section: &schema::Cifar10) -> Result<DataSets, InputError> {
    let description = format!("CIFAR-10 in {}", section.root.display());
    Ok(images(Cifar10::train(&section.root)?, Cifar10::test(&section.root)?, description))
}

pub(super) fn idx(section: &schema::Idx) -> Result<DataSets, InputError> {
    let description = format!("IDX files in {}", section.root.display());
    let [train, test] = [IdxPart::Train, IdxPart::Test].map(|part| IdxImages::open(&section.root, part));
    Ok(images(train?, test?, description))
}

fn images(train: impl Dataset + 'static, val: impl Dataset + 'static, description: String) -> DataSets {
    let samples = Arc::new(LabelledImages::new(Arc::new(train), Arc::new(val)));
    DataSets { samples, description, skipped: 0 }
}

pub(super) fn characters(recipe: &Recipe, section: &schema::Characters) -> Result<DataSets, InputError> {
    let alphabet = match section.classes {
        10 => Alphabet::Digits,
        36 => Alphabet::Alphanumeric,
        n => {
            let message = format!("characters have 10 classes (digits) or 36 (digits and letters), not {n}");
            return Err(InputError::at(recipe, "data.source.characters.classes", message));
        }
    };
    let config = CharactersConfig {
        alphabet,
        side: section.size,
        font_size: pair(section.font.map(|share| share * CharactersConfig::UNIT_SIDE)),
        shift: section.shift * CharactersConfig::UNIT_SIDE,
        rotation: section.rotation,
        shear: section.shear,
        x_scale: pair(section.stretch),
        luminance_gap: pair(section.contrast),
        strokes: section.strokes,
        blur: pair(section.blur),
        noise: pair(section.noise),
        ..CharactersConfig::default()
    };
    let train = Characters::new(config, section.seed, 0, section.train)?;
    let val = Characters::new(config, section.seed, Characters::HELD_OUT, section.val)?;
    let description = format!("generated characters, {0}x{0} pixels", section.size);
    let kept = [&train, &val].map(|set| (set.len() * 3 * section.size * section.size).min(KEPT_IMAGES) as u64);
    let cached = |set| -> Arc<dyn Dataset> { Arc::new(Cached::new(set, KEPT_IMAGES)) };
    let samples = Arc::new(LabelledImages { kept, ..LabelledImages::new(cached(train), cached(val)) });
    Ok(DataSets { samples, description, skipped: 0 })
}

/// Most bytes of generated images that are cached: drawing an image may take longer than a training step leaves time
/// for.
const KEPT_IMAGES: usize = 512 << 20;
