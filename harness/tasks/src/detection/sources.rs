//! Sources of images with boxes.

use std::path::Path;

use zoo_datasets::{Annotated, BoxFolder, DataError, OnError, Part, Size, detection::BoxScenes};
use zoo_recipe::{Recipe, schema};

use crate::{DataSets, InputError, annotated::AnnotatedImages};

/// Generated scenes.
pub(super) fn shapes(recipe: &Recipe, section: &schema::BoxedShapes) -> Result<DataSets, InputError> {
    let train = BoxScenes::new(section, 0, section.train)?;
    let val = BoxScenes::new(section, BoxScenes::HELD_OUT, section.val)?;
    let description = format!("generated shapes with boxes, {} pixels", Size::from(section.size));
    AnnotatedImages::new(train, val).generated(recipe, description)
}

/// Photographs in one of the layouts.
pub(super) fn folder(root: &Path, on_error: OnError) -> Result<DataSets, InputError> {
    let open = |part| BoxFolder::open_root(root, part, on_error);
    let (train, val) = (open(Part::Train)?, open(Part::Val)?);
    if train.classes() != val.classes() {
        let differing = train.classes().iter().zip(val.classes()).find(|(train, val)| train != val);
        let differing = differing.map_or_else(
            || format!("{} and {} classes", train.classes().len(), val.classes().len()),
            |(train, val)| format!("`{train}` and `{val}`"),
        );
        let message = format!("{}: training and held-out images have other classes: {differing}", root.display());
        return Err(DataError::Config(message).into());
    }
    let skipped = train.skipped() + val.skipped();
    Ok(AnnotatedImages::new(train, val).opened(format!("images with boxes in {}", root.display()), skipped))
}
