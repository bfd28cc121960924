//! Text detection with DB.

mod evaluate;
mod samples;
mod sources;

use std::{path::Path, sync::Arc};

use zoo_datasets::{DataError, Image, LoaderConfig, Pipeline, SampleLoader, drawing::draw_text, text::TextDataset};
use zoo_recipe::{
    Recipe,
    schema::{self, Source, TextFormat},
};

use crate::{
    DataSets, EvaluationError, Feed, HeldOut, Input, InputError, Inspection, Network, SampleSets, Task,
    batch::{Element, first, offer},
    evaluation::first_input,
    inspection::Sums,
    preprocess::{Split, image, unresized},
    task::{foreign, in_rows, on_error},
};

/// Text in images.
pub(crate) struct TextDetection;

/// Images with the outlines of their text.
struct AnnotatedImages {
    train: Arc<dyn TextDataset>,
    val: Arc<dyn TextDataset>,
}

/// The format of annotation files in a folder other than that of the recipe.
fn format_of(source: &Source) -> TextFormat {
    if let Source::TextFolder(folder) = source { folder.format } else { TextFormat::default() }
}

impl Task for TextDetection {
    fn open(&self, recipe: &Recipe) -> Result<DataSets, InputError> {
        match &recipe.data.source {
            Source::TextScenes(section) => sources::scenes(section),
            Source::TextFolder(section) => sources::folder(&section.root, section.format, on_error(recipe)),
            _ => Err(foreign(recipe, "text detection")),
        }
    }

    fn open_folder(&self, recipe: &Recipe, root: &Path) -> Result<DataSets, InputError> {
        sources::folder(root, format_of(&recipe.data.source), on_error(recipe))
    }

    fn source_in(&self, root: &Path, before: &Source) -> Source {
        Source::TextFolder(schema::TextFolder { root: root.to_owned(), format: format_of(before) })
    }

    fn preprocessing(&self, recipe: &Recipe, _image: [usize; 3]) -> Result<Pipeline, InputError> {
        unresized(recipe, Split::Eval)
    }
}

impl SampleSets for AnnotatedImages {
    fn train_len(&self) -> usize {
        self.train.len()
    }

    fn val_len(&self) -> usize {
        self.val.len()
    }

    fn noun(&self) -> &'static str {
        "images"
    }

    fn is_undivided(&self) -> bool {
        let Self { train, val } = self;
        train.len() == val.len() && (0..train.len()).all(|index| train.name(index) == val.name(index))
    }

    fn names(&self, tell: &mut dyn FnMut(String)) {
        [&self.train, &self.val].into_iter().for_each(|set| (0..set.len()).for_each(|index| tell(set.name(index))));
    }

    fn feed(&self, recipe: &Recipe, inputs: &[Input], config: LoaderConfig) -> Result<Feed, InputError> {
        let first = first(recipe, inputs)?;
        let names = std::iter::once(first.name.as_str()).chain(samples::TARGETS);
        offer(recipe, inputs, &names.map(|name| (name, Element::Real)).collect::<Vec<_>>())?;
        let (training, normalize) = samples::training(recipe, self.train.clone(), image(first))?;
        let name = first.name.clone();
        let join = move |examples| samples::batch(examples, &name, &normalize);
        Ok(Feed::of_samples(SampleLoader::new(training, config)?, join))
    }

    fn held_out(
        &self,
        recipe: &Recipe,
        network: &dyn Network,
        config: LoaderConfig,
    ) -> Result<Box<dyn HeldOut>, EvaluationError> {
        let images = samples::text_images(recipe, self.val.clone(), image(&first_input(network)?))?;
        let (probability, detect) = samples::detection(recipe);
        Ok(Box::new(evaluate::HeldOutText { loader: SampleLoader::new(images, config)?, probability, detect }))
    }

    fn parts(&self) -> Vec<(&'static str, usize)> {
        vec![("train", self.train.len()), ("val", self.val.len())]
    }

    fn inspect(&self, part: usize, done: &(dyn Fn() + Sync)) -> Inspection {
        let (set, (name, samples)) = (if part == 1 { &self.val } else { &self.train }, self.parts()[part]);
        let read = |index| {
            Sums::of(set.load(index).map(|(image, regions)| {
                let ignored = regions.iter().filter(|region| region.ignore).count();
                (image, [regions.len(), ignored, usize::from(regions.is_empty())])
            }))
        };
        let sums = Sums::over(samples, read, done);
        let [texts, ignored, without_text] = sums.counts;
        let one = |count: usize| Some((count as u64, count as u64));
        Inspection {
            name,
            samples,
            facts: [("texts", texts.into()), ("ignored", ignored.into()), ("without_text", without_text.into())].into(),
            columns: vec![("texts", one(texts)), ("ignored", one(ignored))],
            pixels: Some(sums.pixels()),
            broken: sums.broken,
        }
    }

    fn sheet(&self, held_out: bool, rows: usize, columns: usize) -> Result<(Image, usize), DataError> {
        let set = if held_out { &self.val } else { &self.train };
        let drawn = |index| set.load(index).map(|(image, regions)| draw_text(&image, &regions, &[]));
        in_rows((rows, columns), set.len(), drawn)
    }
}
