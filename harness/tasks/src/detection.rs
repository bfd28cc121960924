//! Object detection with anchors: a class and a box for each object of an image.

mod evaluate;
mod samples;
mod sources;
mod trivial;

use std::path::Path;

use zoo_datasets::{
    Annotated, Image, LoaderConfig, Pipeline, SampleLoader,
    detection::{Object, Role},
    drawing::draw_boxes,
};
use zoo_recipe::{
    LABEL, Recipe,
    schema::{self, Source},
};

use crate::{
    Asked, Baseline, DataSets, EvaluationError, Feed, HeldOut, Input, InputError, Inspection, Judged, Task,
    annotated::{Annotation, Images},
    batch::{Element, first, offer},
    evaluation::{first_input, output_shape},
    inspection::Sums,
    preprocess::{Split, image, unresized},
    task::foreign,
};
use samples::{BOX, Evaluated, Preparation, Training};

/// Object detection.
pub(crate) struct Detection;

impl Task for Detection {
    fn open(&self, recipe: &Recipe) -> Result<DataSets, InputError> {
        match &recipe.data.source {
            Source::BoxedShapes(section) => sources::shapes(recipe, section),
            Source::Boxes(section) => sources::folder(&section.root, recipe.data.on_error),
            _ => Err(foreign(recipe, "object detection")),
        }
    }

    fn open_folder(&self, recipe: &Recipe, root: &Path) -> Result<DataSets, InputError> {
        sources::folder(root, recipe.data.on_error)
    }

    fn source_in(&self, root: &Path, _before: &Source) -> Source {
        Source::Boxes(schema::Boxes { root: root.to_owned() })
    }

    fn preprocessing(&self, recipe: &Recipe, _image: [usize; 3]) -> Result<Pipeline, InputError> {
        unresized(recipe, Split::Eval)
    }
}

impl Annotation for Vec<Object> {
    fn feed(train: Images<Self>, recipe: &Recipe, inputs: &[Input], config: LoaderConfig) -> Result<Feed, InputError> {
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
        let loader = SampleLoader::new(Training { set: train, prepare }, config)?;
        Ok(Feed::of_samples(loader, move |examples| samples::batch(examples, &name)))
    }

    fn held_out(val: Images<Self>, judged: Judged<'_>) -> Result<Box<dyn HeldOut>, EvaluationError> {
        let Judged { recipe, network, config } = judged;
        let input = first_input(network)?;
        let settings = recipe.postprocess.boxes.clone().unwrap_or_default();
        let outputs = [&settings.class, &settings.boxes];
        let classes = val.classes().len();
        let shapes = [output_shape(network, outputs[0])?, output_shape(network, outputs[1])?];
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
        let loader = SampleLoader::new(Evaluated { set: val, prepare }, config)?;
        Ok(Box::new(evaluate::HeldOutBoxes { loader, input: input.name, classes, settings }))
    }

    fn trivial_answers(val: Images<Self>, asked: Asked<'_, '_>) -> Result<Vec<Baseline>, EvaluationError> {
        trivial::answers(val, asked.config, asked.progress)
    }

    fn inspect(set: &dyn Annotated<Self>, name: &'static str, done: &(dyn Fn() + Sync)) -> Inspection {
        let counts = |objects: &Self| {
            let of = |role| objects.iter().filter(|object| object.role == role).count();
            [of(Role::Single), of(Role::Crowd), of(Role::Difficult), usize::from(objects.is_empty())]
        };
        let counted = [
            ("objects", Some("objects")),
            ("crowds", Some("crowds")),
            ("difficult", Some("difficult")),
            ("without_objects", None),
        ];
        Sums::over_images(set, counts, done).inspection(name, set.len(), counted)
    }

    fn drawn(&self, image: &Image) -> Image {
        draw_boxes(image, self, &[])
    }
}
