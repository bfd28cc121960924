//! Text detection with DB.

mod evaluate;
mod samples;
mod sources;

use std::path::Path;

use zoo_datasets::{Annotated, Image, LoaderConfig, Pipeline, SampleLoader, drawing::draw_text, text::TextRegion};
use zoo_recipe::{
    Recipe,
    schema::{self, Source, TextFormat},
};

use crate::{
    DataSets, EvaluationError, Feed, HeldOut, Input, InputError, Inspection, Judged, Task,
    annotated::{Annotation, Images},
    batch::{Element, first, offer},
    evaluation::first_input,
    inspection::Sums,
    preprocess::{Split, image, unresized},
    task::foreign,
};

/// Text in images.
pub(crate) struct TextDetection;

/// The format of annotation files in a folder other than that of the recipe.
fn format_of(source: &Source) -> TextFormat {
    if let Source::TextFolder(folder) = source { folder.format } else { TextFormat::default() }
}

impl Task for TextDetection {
    fn open(&self, recipe: &Recipe) -> Result<DataSets, InputError> {
        match &recipe.data.source {
            Source::TextScenes(section) => sources::scenes(section),
            Source::TextFolder(section) => sources::folder(&section.root, section.format, recipe.data.on_error),
            _ => Err(foreign(recipe, "text detection")),
        }
    }

    fn open_folder(&self, recipe: &Recipe, root: &Path) -> Result<DataSets, InputError> {
        sources::folder(root, format_of(&recipe.data.source), recipe.data.on_error)
    }

    fn source_in(&self, root: &Path, before: &Source) -> Source {
        Source::TextFolder(schema::TextFolder { root: root.to_owned(), format: format_of(before) })
    }

    fn preprocessing(&self, recipe: &Recipe, _image: [usize; 3]) -> Result<Pipeline, InputError> {
        unresized(recipe, Split::Eval)
    }
}

impl Annotation for Vec<TextRegion> {
    fn feed(train: Images<Self>, recipe: &Recipe, inputs: &[Input], config: LoaderConfig) -> Result<Feed, InputError> {
        let first = first(recipe, inputs)?;
        let names = std::iter::once(first.name.as_str()).chain(samples::TARGETS);
        offer(recipe, inputs, &names.map(|name| (name, Element::Real)).collect::<Vec<_>>())?;
        let (training, normalize) = samples::training(recipe, train, image(first))?;
        let name = first.name.clone();
        let join = move |examples| samples::batch(examples, &name, &normalize);
        Ok(Feed::of_samples(SampleLoader::new(training, config)?, join))
    }

    fn held_out(val: Images<Self>, judged: Judged<'_>) -> Result<Box<dyn HeldOut>, EvaluationError> {
        let Judged { recipe, network, config } = judged;
        let images = samples::text_images(recipe, val, image(&first_input(network)?))?;
        let settings = recipe.postprocess.text.clone().unwrap_or_default();
        Ok(Box::new(evaluate::HeldOutText { loader: SampleLoader::new(images, config)?, settings }))
    }

    fn inspect(set: &dyn Annotated<Self>, name: &'static str, done: &(dyn Fn() + Sync)) -> Inspection {
        let counts = |regions: &Self| {
            let ignored = regions.iter().filter(|region| region.ignore).count();
            [regions.len(), ignored, usize::from(regions.is_empty())]
        };
        let counted = [("texts", Some("texts")), ("ignored", Some("ignored")), ("without_text", None)];
        Sums::over_images(set, counts, done).inspection(name, set.len(), counted)
    }

    fn drawn(&self, image: &Image) -> Image {
        draw_text(image, self, &[])
    }
}
