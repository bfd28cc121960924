//! Semantic segmentation: a class for each pixel of an image.

mod evaluate;
mod samples;
mod sources;
mod trivial;

use std::path::Path;

use zoo_datasets::{
    Annotated, Image, LoaderConfig, Pipeline, SampleLoader,
    drawing::draw_labels,
    segmentation::{LabelMap, VOID},
};
use zoo_recipe::{
    LABEL, Recipe,
    schema::{self, Source},
};

use crate::{
    Asked, Baseline, DataSets, EvaluationError, Feed, HeldOut, Input, InputError, Inspection, Judged, Task,
    annotated::{Annotation, Images},
    batch::{Element, first, offer},
    evaluation::first_input,
    inspection::Sums,
    preprocess::{Split, image, unresized},
    task::foreign,
};

/// Semantic segmentation.
pub(crate) struct Segmentation;

impl Task for Segmentation {
    fn open(&self, recipe: &Recipe) -> Result<DataSets, InputError> {
        match &recipe.data.source {
            Source::Shapes(section) => sources::shapes(recipe, section),
            Source::LabelMaps(section) => sources::folder(recipe, section, recipe.data.on_error),
            _ => Err(foreign(recipe, "segmentation")),
        }
    }

    fn open_folder(&self, recipe: &Recipe, root: &Path) -> Result<DataSets, InputError> {
        sources::folder(recipe, &label_maps(root, &recipe.data.source), recipe.data.on_error)
    }

    fn source_in(&self, root: &Path, before: &Source) -> Source {
        Source::LabelMaps(label_maps(root, before))
    }

    fn preprocessing(&self, recipe: &Recipe, _image: [usize; 3]) -> Result<Pipeline, InputError> {
        unresized(recipe, Split::Eval)
    }
}

/// Label maps in another folder than that of the recipe, with the same values.
fn label_maps(root: &Path, before: &Source) -> schema::LabelMaps {
    let values = if let Source::LabelMaps(section) = before { section.values.clone() } else { None };
    schema::LabelMaps { root: root.to_owned(), values }
}

/// Warns of label maps of which a single class remains, as of masks of 0 and 255, whose 255 is no class.
fn warn_of_one_class(part: &str, classes: &[String], pixels: impl Fn(usize) -> u64) {
    let void = pixels(usize::from(VOID)) > 0;
    let occur: Vec<usize> = (0..usize::from(VOID)).filter(|class| pixels(*class) > 0).collect();
    if let ([only], true) = (occur.as_slice(), classes.len() > 1) {
        let (name, of, beside) =
            (&classes[*only], classes.len(), if void { " and 255, which is no class" } else { "" });
        tracing::warn!(
            "{part}: the label maps hold only class {name} of {of}{beside}: nothing can be learned. Masks with other \
             values, such as 0 and 255, need a list of them: --set 'data.source={{label_maps: {{root: DIR, values: [0, \
             255]}}}}'"
        );
    }
}

impl Annotation for LabelMap {
    fn feed(train: Images<Self>, recipe: &Recipe, inputs: &[Input], config: LoaderConfig) -> Result<Feed, InputError> {
        let first = first(recipe, inputs)?;
        offer(recipe, inputs, &[(&first.name, Element::Real), (LABEL, Element::Index)])?;
        let entropy = recipe.loss.softmax_cross_entropy.iter().map(|term| ("softmax_cross_entropy", term.ignore));
        let dice = recipe.loss.softmax_dice.iter().map(|term| ("softmax_dice", term.ignore));
        if let Some((term, ignored)) = entropy.chain(dice).find(|(_, ignored)| *ignored != Some(u32::from(VOID))) {
            let message = match ignored {
                Some(other) => format!("{other} is ignored, but {VOID} is the label of pixels without class"),
                None => format!("pixels without class have the label {VOID}: add `ignore: {VOID}`"),
            };
            return Err(InputError::at(recipe, &format!("loss.{term}"), message));
        }
        let labels = inputs.iter().find(|input| input.name == LABEL).map(|input| input.shape.as_slice());
        let Some(labels) = samples::label_size(labels, image(first)) else {
            let message = "the network must give a prediction per pixel: [classes, height, width], not larger than \
                           the image";
            return Err(InputError::at(recipe, "loss", message));
        };
        let (training, prepare) = samples::training(recipe, train, image(first))?;
        let name = first.name.clone();
        let join = move |examples| samples::batch(examples, &name, &prepare, labels);
        Ok(Feed::of_samples(SampleLoader::new(training, config)?, join))
    }

    fn held_out(val: Images<Self>, judged: Judged<'_>) -> Result<Box<dyn HeldOut>, EvaluationError> {
        let Judged { recipe, network, config } = judged;
        let input = first_input(network)?;
        let classes = val.classes().to_vec();
        let (images, prepare) = samples::evaluation(recipe, val, image(&input))?;
        let loader = SampleLoader::new(images, config)?;
        Ok(Box::new(evaluate::HeldOutPixels { loader, input: input.name, prepare, classes }))
    }

    fn trivial_answers(val: Images<Self>, asked: Asked<'_, '_>) -> Result<Vec<Baseline>, EvaluationError> {
        let Asked { recipe, network, config, progress } = asked;
        let network = network()?;
        let (images, _) = samples::evaluation(recipe, val.clone(), image(&first_input(network.as_ref())?))?;
        trivial::answers(val.classes(), network.as_ref(), &SampleLoader::new(images, config)?, progress)
    }

    fn inspect(set: &dyn Annotated<Self>, name: &'static str, done: &(dyn Fn() + Sync)) -> Inspection {
        let of = |labels: &Self| {
            let mut counts = [0usize; 256];
            labels.values().iter().for_each(|label| counts[usize::from(*label)] += 1);
            counts
        };
        let sums = Sums::over_images(set, of, done);
        let (void, pixels) = (sums.counts[usize::from(VOID)], sums.counts.iter().sum::<usize>());
        let classes = sums.counts[..usize::from(VOID)].iter().filter(|count| **count > 0).count();
        let named: Vec<_> = set.classes().iter().zip(sums.counts).map(|(class, n)| (class.as_str(), n)).collect();
        warn_of_one_class(name, set.classes(), |value| sums.counts[value] as u64);
        let one = |count: usize| Some((count as u64, count as u64));
        Inspection {
            name,
            samples: set.len(),
            facts: [("pixels", pixels.into()), ("void", void.into()), ("classes", serde_json::json!(named))].into(),
            columns: vec![("classes", one(classes)), ("pixels", one(pixels)), ("void", one(void))],
            pixels: Some(sums.pixels()),
            broken: sums.broken,
        }
    }

    fn drawn(&self, image: &Image) -> Image {
        draw_labels(image, self)
    }
}
