//! Tracking with SiamMask.

mod evaluate;
mod pairs;
mod sources;
mod supervised;
mod trivial;

use std::{path::Path, sync::Arc};

use zoo_datasets::{
    DataError, Image, LoaderConfig, Pipeline, SampleLoader, drawing::draw_target, tracking::VideoDataset,
};
use zoo_recipe::{
    Recipe,
    schema::{self, Source},
};

use crate::{
    Asked, Baseline, DataSets, EvaluationError, Feed, HeldOut, Input, InputError, Inspection, Judged, SampleSets, Task,
    batch::{Element, offer},
    inspection::Sums,
    preprocess::{Split, unresized},
    task::{foreign, in_rows},
};
use evaluate::{HeldOutTargets, Setting};

/// Tracking of a target in videos.
pub(crate) struct Tracking;

/// Videos with the position of their target.
struct Targets {
    train: Arc<dyn VideoDataset>,
    /// Pairs of frames per epoch.
    pairs: usize,
    /// Held-out videos; one pair of frames of each is evaluated.
    val: Arc<dyn VideoDataset>,
    /// Held-out videos that are tracked from the first frame to the last.
    sequences: Arc<dyn VideoDataset>,
    /// Whether the videos are generated rather than read.
    drawn: bool,
}

impl Targets {
    fn sets(&self) -> [(&'static str, &Arc<dyn VideoDataset>); 3] {
        [("train", &self.train), ("val", &self.val), ("sequences", &self.sequences)]
    }

    /// Refuses to train for a target that would be judged on the videos of the training.
    fn expect_no_own_judge(&self, recipe: &Recipe) -> Result<(), InputError> {
        let Self { train, val, sequences, .. } = self;
        let is_trained_on = |set: &Arc<dyn VideoDataset>| {
            set.len() == train.len() && (0..set.len()).all(|index| set.name(index) == train.name(index))
        };
        if recipe.target.is_none() || !(is_trained_on(val) || is_trained_on(sequences)) {
            return Ok(());
        }
        let message = "training and evaluation use the same videos, so reaching this target would mean nothing: \
                       remove it with `--set target=~`, and evaluate on other videos (`zoo eval --data`)";
        Err(InputError::at(recipe, "target", message))
    }
}

/// The number of the target in the masks of a folder other than that of the recipe.
fn object_of(source: &Source) -> Option<u8> {
    if let Source::FrameFolder(folder) = source { folder.object } else { None }
}

impl Task for Tracking {
    fn open(&self, recipe: &Recipe) -> Result<DataSets, InputError> {
        match &recipe.data.source {
            Source::Videos(section) => sources::videos(section),
            Source::Crop511(section) => sources::crops(section, recipe.data.on_error),
            Source::FrameFolder(section) => sources::frames(&section.root, section.object, recipe.data.on_error),
            _ => Err(foreign(recipe, "tracking")),
        }
    }

    fn open_folder(&self, recipe: &Recipe, root: &Path) -> Result<DataSets, InputError> {
        sources::frames(root, object_of(&recipe.data.source), recipe.data.on_error)
    }

    fn source_in(&self, root: &Path, before: &Source) -> Source {
        Source::FrameFolder(schema::FrameFolder { root: root.to_owned(), object: object_of(before) })
    }

    fn preprocessing(&self, recipe: &Recipe, _image: [usize; 3]) -> Result<Pipeline, InputError> {
        unresized(recipe, Split::Eval)
    }
}

impl SampleSets for Targets {
    fn train_len(&self) -> usize {
        self.pairs
    }

    fn val_len(&self) -> usize {
        self.val.len()
    }

    fn noun(&self) -> &'static str {
        "pairs"
    }

    fn names(&self, tell: &mut dyn FnMut(String)) {
        self.sets().into_iter().for_each(|(_, set)| (0..set.len()).for_each(|index| tell(set.name(index))));
    }

    fn feed(&self, recipe: &Recipe, inputs: &[Input], config: LoaderConfig) -> Result<Feed, InputError> {
        self.expect_no_own_judge(recipe)?;
        offer(recipe, inputs, &pairs::FIELDS.map(|name| (name, Element::Real)))?;
        let (training, normalize) = pairs::training(recipe, inputs, self.train.clone(), self.pairs)?;
        let join = move |samples| pairs::batch(samples, &normalize);
        Ok(Feed::of_samples(SampleLoader::new(training, config)?, join))
    }

    fn held_out(&self, judged: Judged<'_>) -> Result<Box<dyn HeldOut>, EvaluationError> {
        let Judged { recipe, network, config } = judged;
        let setting = Setting::new(recipe, network, self.sequences.clone())?;
        let pairs = pairs::held_out_pairs(recipe, self.val.clone(), setting.grid())?;
        Ok(Box::new(HeldOutTargets { loader: SampleLoader::new(pairs, config)?, setting }))
    }

    fn trivial_answers(&self, asked: Asked<'_, '_>) -> Result<Vec<Baseline>, EvaluationError> {
        let Asked { recipe, network, config, progress } = asked;
        let setting = Setting::new(recipe, network()?.as_ref(), self.sequences.clone())?;
        let pairs = pairs::held_out_pairs(recipe, self.val.clone(), setting.grid())?;
        trivial::answers(&setting, SampleLoader::new(pairs, config)?, progress)
    }

    fn parts(&self) -> Vec<(&'static str, usize)> {
        self.sets().map(|(name, set)| (name, set.len())).into()
    }

    /// One frame of each generated video suffices: it is drawn, not read.
    fn inspect(&self, part: usize, done: &(dyn Fn() + Sync)) -> Inspection {
        let (name, set) = self.sets()[part];
        let read = |index: usize| {
            let frames = if self.drawn { 1 } else { set.frames(index) };
            let one = |frame| {
                Sums::of(set.frame(index, frame).map(|frame| {
                    let counts = [1, usize::from(frame.target.is_some()), usize::from(frame.mask.is_some())];
                    (frame.image, counts)
                }))
            };
            (0..frames).map(one).fold(Sums::default(), Sums::join)
        };
        let counted = [("frames", Some("frames")), ("targets", None), ("masks", Some("with mask"))];
        Sums::over(set.len(), read, done).inspection(name, set.len(), counted)
    }

    /// The middle frame of each video.
    fn sheet(&self, held_out: bool, rows: usize, columns: usize) -> Result<(Image, usize), DataError> {
        let set = if held_out { &self.val } else { &self.train };
        let drawn = |index: usize| set.frame(index, set.frames(index) / 2).map(|frame| draw_target(&frame));
        in_rows((rows, columns), set.len(), drawn)
    }
}
