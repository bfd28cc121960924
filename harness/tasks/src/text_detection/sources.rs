//! Sources of images with text.

use std::path::Path;

use zoo_datasets::{
    OnError, TextFolder, TextFormat, TextPart,
    text::{TextScenes, TextScenesConfig},
};
use zoo_recipe::schema;

use crate::{
    DataSets, InputError, SampleSets,
    annotated::AnnotatedImages,
    preprocess::{pair, size},
};

/// Generated scenes.
pub(super) fn scenes(section: &schema::TextScenes) -> Result<DataSets, InputError> {
    let config = TextScenesConfig {
        size: size(section.size),
        words: pair(section.words),
        font_size: pair(section.font),
        rotation: section.rotation,
        bent: section.bent,
        luminance_gap: pair(section.contrast),
        empty: section.empty,
        illegible: section.illegible,
        distractors: pair(section.distractors),
        noise: pair(section.noise),
        ..TextScenesConfig::default()
    };
    let train = TextScenes::new(config, section.seed, 0, section.train)?;
    let val = TextScenes::new(config, section.seed, TextScenes::HELD_OUT, section.val)?;
    let description = format!("generated scenes with text, {} pixels", config.size);
    Ok(AnnotatedImages::new(train, val).opened(description, 0))
}

/// Photographs in one of the published layouts.
pub(super) fn folder(root: &Path, format: schema::TextFormat, on_error: OnError) -> Result<DataSets, InputError> {
    let format = match format {
        schema::TextFormat::Icdar2015 => TextFormat::Icdar2015,
        schema::TextFormat::TotalText => TextFormat::TotalText,
    };
    let train = TextFolder::open_root(root, TextPart::Train, format, on_error)?;
    let val = TextFolder::open_root(root, TextPart::Test, format, on_error)?;
    let skipped = train.skipped() + val.skipped();
    let samples = AnnotatedImages::new(train, val);
    let division = if samples.is_undivided() { ", not divided into training and held-out images" } else { "" };
    let description = format!("images with text in {}{division}", root.display());
    Ok(samples.opened(description, skipped))
}
