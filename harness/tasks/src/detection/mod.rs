//! Object detection with anchors: a class and a box for each object of an image.

mod evaluate;
mod samples;
mod sources;
mod trivial;

use std::{path::Path, sync::Arc};

use zoo_datasets::{
    DataError, Image, LoaderConfig, Pipeline, SampleLoader,
    detection::{BoxDataset, Role},
    drawing::draw_boxes,
};
use zoo_recipe::{
    LABEL, Recipe,
    schema::{self, Source},
};

use crate::{
    Baseline, DataSets, EvaluationError, Feed, HeldOut, Input, InputError, Inspection, MakeNetwork, Network,
    SampleSets, Task,
    batch::{Element, first, offer},
    evaluation::{first_input, output_shape},
    inspection::Sums,
    preprocess::{Split, image, unresized},
    task::{foreign, in_rows, on_error},
};
use samples::{BOX, Evaluated, Preparation, Training};

/// Object detection.
pub(crate) struct Detection;

/// Images with boxes.
struct BoxedImages {
    train: Arc<dyn BoxDataset>,
    val: Arc<dyn BoxDataset>,
}

impl Task for Detection {
    fn open(&self, recipe: &Recipe) -> Result<DataSets, InputError> {
        match &recipe.data.source {
            Source::BoxedShapes(section) => sources::shapes(recipe, section),
            Source::Boxes(section) => sources::folder(&section.root, on_error(recipe)),
            _ => Err(foreign(recipe, "object detection")),
        }
    }

    fn open_folder(&self, recipe: &Recipe, root: &Path) -> Result<DataSets, InputError> {
        sources::folder(root, on_error(recipe))
    }

    fn source_in(&self, root: &Path, _before: &Source) -> Source {
        Source::Boxes(schema::Boxes { root: root.to_owned() })
    }

    fn preprocessing(&self, recipe: &Recipe, _image: [usize; 3]) -> Result<Pipeline, InputError> {
        unresized(recipe, Split::Eval)
    }
}

impl BoxedImages {
    fn part(&self, held_out: bool) -> &Arc<dyn BoxDataset> {
        if held_out { &self.val } else { &self.train }
    }
}

impl SampleSets for BoxedImages {
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
        let first = first(recipe, inputs)?;
        let offered = [first.name.as_str(), LABEL, BOX].map(|name| (name, Element::Real));
        offer(recipe, inputs, &offered)?;
        let shape = |name: &str| inputs.iter().find(|input| input.name == name).map(|input| input.shape.as_slice());
        let (label, offsets) = (shape(LABEL), shape(BOX));
        let anchors = match (label, offsets) {
            (Some(&[n]), Some(&[m, 4])) if n == m => n,
            (Some(&[n]), None) => n,
            (None, Some(&[n, 4])) => n,
            _ => {
                let message = format!(
                    "`{LABEL}` is {label:?} and `{BOX}` is {offsets:?}, but a class and four offsets are known for \
                     each anchor: [T] and [T, 4]"
                );
                return Err(InputError::at(recipe, "loss", message));
            }
        };
        let prepare = Preparation::new(recipe, Split::Train, image(first), anchors)?;
        let name = first.name.clone();
        let loader = SampleLoader::new(Training { set: self.train.clone(), prepare }, config)?;
        Ok(Feed::of_samples(loader, move |examples| samples::batch(examples, &name)))
    }

    fn held_out(
        &self,
        recipe: &Recipe,
        network: &dyn Network,
        config: LoaderConfig,
    ) -> Result<Box<dyn HeldOut>, EvaluationError> {
        let input = first_input(network)?;
        let (outputs, detect) = samples::detection(recipe);
        let classes = self.classes().len();
        let shapes = [output_shape(network, &outputs[0])?, output_shape(network, &outputs[1])?];
        let anchors = match [shapes[0].as_slice(), shapes[1].as_slice()] {
            [&[n, k], &[m, 4]] if n == m && k == classes => n,
            [logits, boxes] => {
                let message = format!(
                    "`{}` is {logits:?} and `{}` is {boxes:?}, but {classes} classes need [T, {classes}] and [T, 4]",
                    outputs[0], outputs[1]
                );
                return Err(EvaluationError::Mismatch(message));
            }
        };
        let prepare = Preparation::new(recipe, Split::Eval, image(&input), anchors)?;
        let loader = SampleLoader::new(Evaluated { set: self.val.clone(), prepare }, config)?;
        Ok(Box::new(evaluate::HeldOutBoxes { loader, input: input.name, outputs, classes, detect }))
    }

    fn trivial_answers(
        &self,
        _recipe: &Recipe,
        _network: &mut MakeNetwork<'_>,
        config: LoaderConfig,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<Baseline>, EvaluationError> {
        trivial::answers(self.val.clone(), config, progress)
    }

    fn is_undivided(&self) -> bool {
        let Self { train, val } = self;
        train.len() == val.len() && (0..train.len()).all(|index| train.name(index) == val.name(index))
    }

    fn parts(&self) -> Vec<(&'static str, usize)> {
        vec![("train", self.train.len()), ("val", self.val.len())]
    }

    fn inspect(&self, part: usize, done: &(dyn Fn() + Sync)) -> Inspection {
        let (set, (name, samples)) = (self.part(part == 1), self.parts()[part]);
        let read = |index| {
            Sums::of(set.load(index).map(|(image, objects)| {
                let of = |role| objects.iter().filter(|object| object.role == role).count();
                (image, [of(Role::Single), of(Role::Crowd), of(Role::Difficult), usize::from(objects.is_empty())])
            }))
        };
        let sums = Sums::over(samples, read, done);
        let [objects, crowds, difficult, empty] = sums.counts;
        let one = |count: usize| Some((count as u64, count as u64));
        Inspection {
            name,
            samples,
            facts: [
                ("objects", objects.into()),
                ("crowds", crowds.into()),
                ("difficult", difficult.into()),
                ("without_objects", empty.into()),
            ]
            .into(),
            columns: vec![("objects", one(objects)), ("crowds", one(crowds)), ("difficult", one(difficult))],
            pixels: Some(sums.pixels()),
            broken: sums.broken,
        }
    }

    fn sheet(&self, held_out: bool, rows: usize, columns: usize) -> Result<(Image, usize), DataError> {
        let set = self.part(held_out);
        let drawn = |index| set.load(index).map(|(image, objects)| draw_boxes(&image, &objects, &[]));
        in_rows((rows, columns), set.len(), drawn)
    }
}
