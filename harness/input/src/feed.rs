//! The training set, batch by batch.

use std::sync::Arc;

use zoo_datasets::{
    DataError, Loader, LoaderConfig, SampleLoader, Share,
    text::{TextExample, TextTraining},
    tracking::{Pair, Pairs},
    transforms::Normalize,
};
use zoo_recipe::Recipe;

use crate::{Batch, DataSets, Field, InputError, Numbers, Samples, Split, images::pipeline, sets, text, tracking};

/// An input of the step, as the graph declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct StepInput {
    /// Its name.
    pub name: String,
    /// Its shape without the batch.
    pub shape: Vec<usize>,
}

/// Full batches of a training set, shuffled and varied by the recipe's seed: the same for any number of threads.
pub struct Feed {
    source: Arc<Source>,
}

enum Source {
    Images { loader: Loader, image: String, label: &'static str },
    Text { loader: SampleLoader<TextTraining>, image: String, normalize: Normalize },
    Pairs { loader: SampleLoader<Pairs>, normalize: Normalize },
}

/// Name of the input that holds the classes.
const LABEL: &str = "label";

impl Feed {
    /// Feeds a step with these `inputs`, the first of which is the network's first: this `share` of each batch.
    ///
    /// # Errors
    /// Preprocessing that does not deliver what the network takes, an input that such data do not offer, or too few samples.
    pub fn new(
        recipe: &Recipe,
        sets: &DataSets,
        inputs: &[StepInput],
        threads: usize,
        share: Share,
    ) -> Result<Self, InputError> {
        let config = LoaderConfig {
            batch: recipe.train.batch,
            shuffle: true,
            drop_last: true,
            seed: recipe.train.seed,
            share,
            ..loader_config(recipe, threads)
        };
        let first = inputs.first().ok_or_else(|| InputError::at(recipe, "model", "the network has no input"))?;
        let image = || <[usize; 3]>::try_from(first.shape.as_slice()).unwrap_or_default();
        let name = first.name.clone();
        let source = match &sets.samples {
            Samples::Images { train, .. } => {
                offer(recipe, inputs, &[&name, LABEL], "images with a class")?;
                let pipeline = pipeline(recipe, Split::Train, train.image_size(), image())?;
                Source::Images { loader: Loader::new(train.clone(), pipeline, config)?, image: name, label: LABEL }
            }
            Samples::Text { train, .. } => {
                offer(recipe, inputs, &[&[name.as_str()], text::TARGETS.as_slice()].concat(), "images with text")?;
                let (training, normalize) = text::training(recipe, train.clone(), image())?;
                Source::Text { loader: SampleLoader::new(training, config)?, image: name, normalize }
            }
            Samples::Videos { train, pairs, .. } => {
                offer(recipe, inputs, &tracking::FIELDS, "videos")?;
                let (pairs, normalize) = tracking::training(recipe, inputs, train.clone(), *pairs)?;
                Source::Pairs { loader: SampleLoader::new(pairs, config)?, normalize }
            }
        };
        Ok(Self { source: Arc::new(source) })
    }

    /// Batches per epoch.
    pub fn batches_per_epoch(&self) -> usize {
        match self.source.as_ref() {
            Source::Images { loader, .. } => loader.batches_per_epoch(),
            Source::Text { loader, .. } => loader.batches_per_epoch(),
            Source::Pairs { loader, .. } => loader.batches_per_epoch(),
        }
    }

    /// The batches of `epoch` from number `first` on. Batches do not depend on where an epoch is entered, so an
    /// interrupted one goes on bit for bit.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn epoch(&self, epoch: u64, first: usize) -> Result<Batches, DataError> {
        let batches: Box<dyn Iterator<Item = Result<Batch, DataError>> + Send> = match self.source.as_ref() {
            Source::Images { loader, image, label } => {
                let (image, label) = (image.clone(), *label);
                let named = move |batch: zoo_datasets::Batch| Batch {
                    n: batch.n,
                    fields: vec![
                        Field { name: image.clone(), numbers: Numbers::Real(batch.images) },
                        Field { name: label.to_owned(), numbers: Numbers::Class(batch.labels) },
                    ],
                };
                Box::new(loader.epoch(epoch, first)?.map(move |batch| batch.map(&named)))
            }
            Source::Text { loader, image, normalize } => {
                let (image, normalize) = (image.clone(), *normalize);
                let named = move |examples: Vec<TextExample>| text::batch(examples, &image, &normalize);
                Box::new(loader.epoch(epoch, first)?.map(move |batch| batch.map(&named)))
            }
            Source::Pairs { loader, normalize } => {
                let normalize = *normalize;
                let named = move |pairs: Vec<Pair>| tracking::batch(pairs, &normalize);
                Box::new(loader.epoch(epoch, first)?.map(move |batch| batch.map(named)))
            }
        };
        Ok(Batches(batches))
    }
}

/// The batches of an epoch, prepared ahead. Dropping it stops the threads.
pub struct Batches(Box<dyn Iterator<Item = Result<Batch, DataError>> + Send>);

impl Iterator for Batches {
    type Item = Result<Batch, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

/// How any loader of a recipe's data works; batch, order and seed are to be set.
pub fn loader_config(recipe: &Recipe, threads: usize) -> LoaderConfig {
    LoaderConfig { threads, on_error: sets::on_error(recipe), ..LoaderConfig::default() }
}

/// Refuses inputs that the data do not offer.
fn offer(recipe: &Recipe, inputs: &[StepInput], offered: &[&str], data: &str) -> Result<(), InputError> {
    match inputs.iter().find(|input| !offered.contains(&input.name.as_str())) {
        None => Ok(()),
        Some(input) => {
            let list = offered.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let message = format!("the step takes `{}`, which {data} do not offer: they offer {list}", input.name);
            Err(InputError::at(recipe, "data.source", message))
        }
    }
}
