//! The trait of tasks, and the list of all tasks.

use std::{path::Path, sync::Arc};

use zoo_datasets::{DataError, Image, LoaderConfig, Pipeline, Share, drawing::strip, hash::fnv1a64};
use zoo_recipe::{
    Recipe,
    schema::{SampleKind, Source},
};

use crate::{
    Baseline, EvaluationError, Feed, Generator, HeldOut, Input, InputError, Inspection, LinearBaseline, Network,
    classification::Classification, detection::Detection, language_modelling::LanguageModelling,
    segmentation::Segmentation, text_detection::TextDetection, tracking::Tracking,
};

/// A task: everything that depends on one kind of sample, in one folder each.
pub trait Task: Sync {
    /// Opens the data that the recipe names.
    ///
    /// # Errors
    /// Data that are missing, unreadable, or of another task.
    fn open(&self, recipe: &Recipe) -> Result<DataSets, InputError>;

    /// Opens the data in a folder, or in a single file, in place of the recipe's.
    ///
    /// # Errors
    /// Data that are missing or unreadable.
    fn open_folder(&self, recipe: &Recipe, root: &Path) -> Result<DataSets, InputError>;

    /// The recipe's data settings for a folder or file.
    fn source_in(&self, root: &Path, before: &Source) -> Source;

    /// Checks that samples fit the network, as far as this is known before the data are opened: their size after the
    /// steps of the recipe, and their number of classes.
    ///
    /// # Errors
    /// Samples that do not.
    fn expect_fit(&self, _recipe: &Recipe) -> Result<(), InputError> {
        Ok(())
    }

    /// The evaluation preprocessing of an image, for a network with the input `image` (`[channels, height, width]`);
    /// preprocessing goldens are compared with it.
    ///
    /// # Errors
    /// Steps that contradict each other, or do not fit the input of the network.
    fn preprocessing(&self, recipe: &Recipe, image: [usize; 3]) -> Result<Pipeline, InputError>;
}

/// The one list of tasks.
pub fn task(kind: SampleKind) -> &'static dyn Task {
    match kind {
        SampleKind::Image => &Classification,
        SampleKind::Text => &TextDetection,
        SampleKind::LabelMap => &Segmentation,
        SampleKind::Boxes => &Detection,
        SampleKind::Video => &Tracking,
        SampleKind::Language => &LanguageModelling,
    }
}

/// Opened training and held-out samples.
pub trait SampleSets: Send + Sync {
    /// Samples per epoch.
    fn train_len(&self) -> usize;

    /// Held-out samples.
    fn val_len(&self) -> usize;

    /// The word for samples, in the plural.
    fn noun(&self) -> &'static str;

    /// Names of the classes; none if samples have none.
    fn classes(&self) -> &[String] {
        &[]
    }

    /// The classes of which a part of [`SampleSets::parts`] has no sample, if each sample has one class.
    fn absent_classes(&self, _part: usize) -> Vec<&str> {
        Vec::new()
    }

    /// Passes the identifying properties of these data to `tell`, in order: see [`DataSets::fingerprint`].
    fn names(&self, tell: &mut dyn FnMut(String));

    /// Bytes of generated samples that are cached, for the training set and the held-out set.
    fn kept_bytes(&self) -> [u64; 2] {
        [0; 2]
    }

    /// Changes the preprocessing of the recipe if it does not produce the input size of the network; returns a
    /// description of the change.
    fn fit(&self, _recipe: &mut Recipe) -> Vec<String> {
        Vec::new()
    }

    /// Stores settings in the recipe that depend on the data and must not change with other data.
    fn settle(&self, _recipe: &mut Recipe) {}

    /// Batches for a step with these `inputs`, the first of which is the network's first.
    ///
    /// # Errors
    /// Preprocessing that does not fit the inputs of the step, an input that such data do not provide, too few samples,
    /// or a target that would be judged on the training samples.
    fn feed(&self, recipe: &Recipe, inputs: &[Input], config: LoaderConfig) -> Result<Feed, InputError>;

    /// The training samples in order, prepared as for evaluation.
    ///
    /// # Errors
    /// As [`SampleSets::feed`]; samples that are no images of one class.
    fn unvaried(&self, recipe: &Recipe, _inputs: &[Input], _config: LoaderConfig) -> Result<Feed, InputError> {
        let message = format!("{} have no patches to whiten: only images with one class do", self.noun());
        Err(InputError::at(recipe, "train.whiten", message))
    }

    /// The held-out samples, prepared for a network.
    ///
    /// # Errors
    /// Samples or preprocessing that do not fit the network.
    fn held_out(&self, judged: Judged<'_>) -> Result<Box<dyn HeldOut>, EvaluationError>;

    /// A linear classifier on the same samples, for comparison.
    fn linear_baseline(&self, _recipe: &Recipe) -> Option<LinearBaseline> {
        None
    }

    /// The scores of trivial answers that ignore the sample.
    ///
    /// # Errors
    /// Samples that cannot be read, or a network that they do not fit.
    fn trivial_answers(&self, _asked: Asked<'_, '_>) -> Result<Vec<Baseline>, EvaluationError> {
        Ok(Vec::new())
    }

    /// Whether nothing can be trained because the training samples are also the held-out samples. Folders of frames are
    /// not divided either, but can be trained on without a target ([`SampleSets::feed`]).
    fn is_undivided(&self) -> bool {
        false
    }

    /// The parts that [`SampleSets::inspect`] can read, with the number of their samples.
    fn parts(&self) -> Vec<(&'static str, usize)> {
        vec![("train", self.train_len()), ("val", self.val_len())]
    }

    /// Reads all samples of part number `part`; `done` is called for each.
    fn inspect(&self, part: usize, done: &(dyn Fn() + Sync)) -> Inspection;

    /// Draws the first samples, at most `rows` by `columns`, with their annotations; also returns their number.
    ///
    /// # Errors
    /// Samples that cannot be read or drawn, or an empty sheet.
    fn sheet(&self, _held_out: bool, _rows: usize, _columns: usize) -> Result<(Image, usize), DataError> {
        Err(DataError::Config(format!("{} cannot be drawn; use `zoo data inspect`", self.noun())))
    }

    /// Why an evaluation cannot draw its predictions; `None` if it can.
    fn undrawn(&self) -> Option<&'static str> {
        None
    }

    /// The text generator of a network; `None` if the network does not predict the next token.
    fn generator(&self) -> Option<Generator<'_>> {
        None
    }
}

/// A network that is judged by the held-out samples of a recipe.
#[derive(Clone, Copy)]
pub struct Judged<'a> {
    /// The recipe.
    pub recipe: &'a Recipe,
    /// The network.
    pub network: &'a dyn Network,
    /// How samples are loaded.
    pub config: LoaderConfig,
}

/// What trivial answers to the held-out samples of a recipe are computed with.
pub struct Asked<'a, 'n> {
    /// The recipe.
    pub recipe: &'a Recipe,
    /// Creates a network, whose shapes some answers need.
    pub network: &'a mut MakeNetwork<'n>,
    /// How samples are loaded.
    pub config: LoaderConfig,
    /// Is called with the number of samples done and their total.
    pub progress: &'a mut dyn FnMut(usize, usize),
}

/// Creates a network without weights.
pub type MakeNetwork<'a> = dyn FnMut() -> Result<Box<dyn Network + 'a>, EvaluationError> + 'a;

/// Training and held-out data of a recipe.
#[derive(Clone)]
pub struct DataSets {
    /// The samples.
    pub samples: Arc<dyn SampleSets>,
    /// A description in one line.
    pub description: String,
    /// Unreadable entries that were skipped (`on_error: skip`).
    pub skipped: usize,
}

impl DataSets {
    /// Identifies these data, independent of their path: FNV-1a over the names of samples in order, and, if samples
    /// have classes, over the names of the classes and the label of each sample.
    pub fn fingerprint(&self) -> u64 {
        let mut bytes = Vec::new();
        self.samples.names(&mut |name| {
            // Generated samples are named after their seed, files after the last part of their path.
            bytes.extend(name.rsplit(['/', '\\']).next().unwrap_or_default().as_bytes());
            bytes.push(0);
        });
        fnv1a64(&bytes)
    }

    /// Full batches for a step with these `inputs`: `share` of each batch, shuffled and varied by the recipe's seed.
    ///
    /// # Errors
    /// As [`SampleSets::feed`].
    pub fn feed(&self, recipe: &Recipe, inputs: &[Input], threads: usize, share: Share) -> Result<Feed, InputError> {
        let config = LoaderConfig {
            batch: recipe.train.batch,
            shuffle: true,
            drop_last: true,
            seed: recipe.train.seed,
            share,
            ..loader_config(recipe, threads)
        };
        self.samples.feed(recipe, inputs, config)
    }
}

/// Opens the data of a recipe, or those in `root` instead.
///
/// # Errors
/// Data that are missing, unreadable, or whose number of classes differs from the model's.
pub fn open(recipe: &Recipe, root: Option<&Path>) -> Result<DataSets, InputError> {
    let task = task(recipe.data.source.kind());
    let opened = root.map_or_else(|| task.open(recipe), |root| task.open_folder(recipe, root));
    opened.map_err(|error| match error {
        InputError::Data(error) => InputError::Data(error.advised(root.is_some(), recipe.data.download.clone())),
        error => error,
    })
}

/// The common configuration of all loaders of a recipe; the caller sets batch, order and seed.
pub fn loader_config(recipe: &Recipe, threads: usize) -> LoaderConfig {
    LoaderConfig { threads, on_error: recipe.data.on_error, ..LoaderConfig::default() }
}

/// The refusal of a source that belongs to another task.
pub(crate) fn foreign(recipe: &Recipe, task: &str) -> InputError {
    InputError::at(recipe, "data.source", format!("these data are not for {task}"))
}

/// A sheet of the first of `samples` pictures in rows and columns, and the number drawn.
pub(crate) fn in_rows(
    (rows, columns): (usize, usize),
    samples: usize,
    drawn: impl Fn(usize) -> Result<Image, DataError>,
) -> Result<(Image, usize), DataError> {
    const MOST: usize = 10_000;
    let cells = rows.saturating_mul(columns);
    let images = samples.min(cells);
    if !(1..=MOST).contains(&cells) || images == 0 {
        return Err(DataError::Config(format!("a sheet of {rows} x {columns} out of {images} images")));
    }
    let drawn = (0..images).map(drawn).collect::<Result<Vec<Image>, _>>()?;
    Ok((strip(&drawn, columns), images))
}
