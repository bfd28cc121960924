//! Training and held-out images with annotations: what the tasks on single images share.

use std::sync::Arc;

use zoo_datasets::{Annotated, DataError, Image, LoaderConfig};
use zoo_recipe::Recipe;

use crate::{
    Asked, Baseline, DataSets, EvaluationError, Feed, HeldOut, Input, InputError, Inspection, Judged, SampleSets,
    task::in_rows,
};

/// Images with annotations of one kind.
pub(crate) type Images<A> = Arc<dyn Annotated<A>>;

/// A kind of annotation: what distinguishes the tasks on single images. Functions are given the training or the
/// held-out images.
pub(crate) trait Annotation: Sized + 'static {
    /// As [`SampleSets::feed`].
    fn feed(train: Images<Self>, recipe: &Recipe, inputs: &[Input], config: LoaderConfig) -> Result<Feed, InputError>;

    /// As [`SampleSets::held_out`].
    fn held_out(val: Images<Self>, judged: Judged<'_>) -> Result<Box<dyn HeldOut>, EvaluationError>;

    /// As [`SampleSets::trivial_answers`].
    fn trivial_answers(_val: Images<Self>, _asked: Asked<'_, '_>) -> Result<Vec<Baseline>, EvaluationError> {
        Ok(Vec::new())
    }

    /// The contents of the part `name`; `done` is called for each image.
    fn inspect(set: &dyn Annotated<Self>, name: &'static str, done: &(dyn Fn() + Sync)) -> Inspection;

    /// An image with its annotation.
    fn drawn(&self, image: &Image) -> Image;
}

/// Training and held-out images.
pub(crate) struct AnnotatedImages<A> {
    train: Images<A>,
    val: Images<A>,
}

impl<A: Annotation> AnnotatedImages<A> {
    /// Images to train on and held-out ones.
    pub fn new(train: impl Annotated<A> + 'static, val: impl Annotated<A> + 'static) -> Self {
        Self { train: Arc::new(train), val: Arc::new(val) }
    }

    /// Generated scenes, which have to have as many classes as the model.
    ///
    /// # Errors
    /// They have another number.
    pub fn generated(self, recipe: &Recipe, description: String) -> Result<DataSets, InputError> {
        let (classes, own) = (recipe.model.classes, self.classes().len());
        if classes != own {
            let message = format!("the shapes have {own} classes including background, but the model has {classes}");
            return Err(InputError::at(recipe, "model.classes", message));
        }
        Ok(self.opened(description, 0))
    }

    /// As opened data.
    pub fn opened(self, description: String, skipped: usize) -> DataSets {
        DataSets { samples: Arc::new(self), description, skipped }
    }

    fn part(&self, held_out: bool) -> &dyn Annotated<A> {
        if held_out { self.val.as_ref() } else { self.train.as_ref() }
    }
}

impl<A: Annotation> SampleSets for AnnotatedImages<A> {
    fn train_len(&self) -> usize {
        self.train.len()
    }

    fn val_len(&self) -> usize {
        self.val.len()
    }

    fn noun(&self) -> &'static str {
        "images"
    }

    fn classes(&self) -> &[String] {
        self.train.classes()
    }

    fn names(&self, tell: &mut dyn FnMut(String)) {
        self.classes().iter().for_each(|class| tell(class.clone()));
        [&self.train, &self.val].into_iter().for_each(|set| (0..set.len()).for_each(|index| tell(set.name(index))));
    }

    fn feed(&self, recipe: &Recipe, inputs: &[Input], config: LoaderConfig) -> Result<Feed, InputError> {
        A::feed(self.train.clone(), recipe, inputs, config)
    }

    fn held_out(&self, judged: Judged<'_>) -> Result<Box<dyn HeldOut>, EvaluationError> {
        A::held_out(self.val.clone(), judged)
    }

    fn trivial_answers(&self, asked: Asked<'_, '_>) -> Result<Vec<Baseline>, EvaluationError> {
        A::trivial_answers(self.val.clone(), asked)
    }

    fn is_undivided(&self) -> bool {
        let Self { train, val } = self;
        train.len() == val.len() && (0..train.len()).all(|index| train.name(index) == val.name(index))
    }

    fn inspect(&self, part: usize, done: &(dyn Fn() + Sync)) -> Inspection {
        A::inspect(self.part(part == 1), self.parts()[part].0, done)
    }

    fn sheet(&self, held_out: bool, rows: usize, columns: usize) -> Result<(Image, usize), DataError> {
        let set = self.part(held_out);
        in_rows((rows, columns), set.len(), |index| set.load(index).map(|(image, annotation)| annotation.drawn(&image)))
    }
}
