//! Sources of images with text.

use std::path::Path;

use zoo_datasets::{OnError, Part, Size, TextFolder, TextFormat, text::TextScenes};
use zoo_recipe::schema;

use crate::{DataSets, InputError, SampleSets, annotated::AnnotatedImages};

/// Generated scenes.
pub(super) fn scenes(section: &schema::TextScenes) -> Result<DataSets, InputError> {
    let train = TextScenes::new(section, 0, section.train)?;
    let val = TextScenes::new(section, TextScenes::HELD_OUT, section.val)?;
    let description = format!("generated scenes with text, {} pixels", Size::from(section.size));
    Ok(AnnotatedImages::new(train, val).opened(description, 0))
}

/// Photographs in one of the published layouts.
pub(super) fn folder(root: &Path, format: TextFormat, on_error: OnError) -> Result<DataSets, InputError> {
    let train = TextFolder::open_root(root, Part::Train, format, on_error)?;
    let val = TextFolder::open_root(root, Part::Val, format, on_error)?;
    let skipped = train.skipped() + val.skipped();
    let samples = AnnotatedImages::new(train, val);
    let division = if samples.is_undivided() { ", not divided into training and held-out images" } else { "" };
    let description = format!("images with text in {}{division}", root.display());
    Ok(samples.opened(description, skipped))
}
