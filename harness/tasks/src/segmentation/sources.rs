//! Sources of images with label maps.

use zoo_datasets::{LabelFolder, OnError, Part, Size, segmentation::Shapes};
use zoo_recipe::{Recipe, schema};

use crate::{DataSets, InputError, annotated::AnnotatedImages};

/// Generated scenes.
pub(super) fn shapes(recipe: &Recipe, section: &schema::Shapes) -> Result<DataSets, InputError> {
    let train = Shapes::new(section, 0, section.train)?;
    let val = Shapes::new(section, Shapes::HELD_OUT, section.val)?;
    let description = format!("generated shapes, {} pixels", Size::from(section.size));
    AnnotatedImages::new(train, val).generated(recipe, description)
}

/// Photographs in one of the layouts.
pub(super) fn folder(recipe: &Recipe, section: &schema::LabelMaps, on_error: OnError) -> Result<DataSets, InputError> {
    let schema::LabelMaps { root, values } = section;
    let classes = values.as_ref().map_or(recipe.model.classes, Vec::len);
    let open = |part| {
        let folder = LabelFolder::open_root(root, part, classes, on_error)?;
        values.as_ref().map_or(Ok(folder.clone()), |values| folder.with_values(values))
    };
    let (train, val) = (open(Part::Train)?, open(Part::Val)?);
    let skipped = train.skipped() + val.skipped();
    Ok(AnnotatedImages::new(train, val).opened(format!("images with label maps in {}", root.display()), skipped))
}
