//! Image classification.

mod evaluate;
mod sources;
mod tta;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;
use zoo_datasets::{DataError, Dataset, Image, Layout, Loader, LoaderConfig, Mix, Pipeline, Size, contact_sheet};
use zoo_recipe::{
    LABEL, LABEL_SHARE, MIXED_LABEL, Recipe,
    schema::{
        CenterCrop, Cifar10, ClassFolders, Filter, Idx, ImageFolder, ImageSize, Metric, Resize, ResizeTo, Source, Step,
    },
};

use crate::{
    DataSets, EvaluationError, Feed, HeldOut, Input, InputError, Inspection, Judged, LinearBaseline, SampleSets, Task,
    batch::{Element, first, offer},
    evaluation::first_input,
    inspection::Sums,
    preprocess::{Split, expect_any_size, image, pipeline},
    task::foreign,
};

/// Image classification.
pub(crate) struct Classification;

/// Images with a class.
pub struct LabelledImages {
    train: Arc<dyn Dataset>,
    val: Arc<dyn Dataset>,
    kept: [u64; 2],
}

impl LabelledImages {
    /// Images to train on and held-out ones, with the same classes.
    pub fn new(train: Arc<dyn Dataset>, val: Arc<dyn Dataset>) -> Self {
        Self { train, val, kept: [0; 2] }
    }

    fn part(&self, held_out: bool) -> &dyn Dataset {
        if held_out { self.val.as_ref() } else { self.train.as_ref() }
    }

    /// Images of each class in a part.
    fn counts(&self, held_out: bool) -> Vec<u64> {
        let set = self.part(held_out);
        let mut counts = vec![0; set.classes().len()];
        for index in 0..set.len() {
            if let Some(count) = counts.get_mut(set.label(index) as usize) {
                *count += 1;
            }
        }
        counts
    }
}

/// The file with the order of classes in a folder other than that of the recipe.
fn class_order(source: &Source) -> Option<PathBuf> {
    if let Source::ImageFolder(folder) = source { folder.classes_from.clone() } else { None }
}

impl Task for Classification {
    fn open(&self, recipe: &Recipe) -> Result<DataSets, InputError> {
        self.expect_fit(recipe)?;
        match &recipe.data.source {
            Source::ImageFolder(section) => sources::folder(section, recipe.data.on_error),
            Source::ClassFolders(section) => sources::class_folders(section, recipe.data.on_error),
            Source::Cifar10(section) => sources::cifar10(section),
            Source::Idx(section) => sources::idx(section),
            Source::Characters(section) => sources::characters(section),
            _ => Err(foreign(recipe, "classification")),
        }
    }

    fn open_folder(&self, recipe: &Recipe, root: &Path) -> Result<DataSets, InputError> {
        if let Source::ImageFolder(section) = self.source_in(root, &recipe.data.source)
            && section.classes_from.is_some()
        {
            return sources::folder(&section, recipe.data.on_error);
        }
        sources::detected(&Layout::of(root)?, recipe.data.on_error)
    }

    fn source_in(&self, root: &Path, before: &Source) -> Source {
        match Layout::of(root) {
            Ok(Layout::Divided { root, train, val }) => {
                Source::ImageFolder(ImageFolder { root, train, val, classes_from: class_order(before) })
            }
            Ok(Layout::Cifar10(root)) => Source::Cifar10(Cifar10 { root }),
            Ok(Layout::Idx(root)) => Source::Idx(Idx { root }),
            Ok(Layout::Classes(root)) => Source::ClassFolders(ClassFolders { root }),
            // Opening the folder gives the error.
            Err(_) => Source::ClassFolders(ClassFolders { root: root.to_owned() }),
        }
    }

    fn expect_fit(&self, recipe: &Recipe) -> Result<(), InputError> {
        match &recipe.data.source {
            Source::ImageFolder(_) | Source::ClassFolders(_) => expect_any_size(recipe),
            Source::Characters(section) if section.classes != recipe.model.classes => {
                let (data, model) = (section.classes, recipe.model.classes);
                let message =
                    format!("the data have {data} classes, the model has {model}: set `model.classes={data}`");
                Err(InputError::at(recipe, "data.source.characters.classes", message))
            }
            _ => Ok(()),
        }
    }

    fn preprocessing(&self, recipe: &Recipe, image: [usize; 3]) -> Result<Pipeline, InputError> {
        pipeline(recipe, Split::Eval, None, image)
    }
}

impl SampleSets for LabelledImages {
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

    fn absent_classes(&self, part: usize) -> Vec<&str> {
        let counts = self.counts(part == 1).into_iter();
        self.classes().iter().zip(counts).filter(|(_, count)| *count == 0).map(|(class, _)| class.as_str()).collect()
    }

    fn names(&self, tell: &mut dyn FnMut(String)) {
        self.classes().iter().for_each(|class| tell(class.clone()));
        for set in [&self.train, &self.val] {
            (0..set.len()).for_each(|index| tell(format!("{}:{}", set.name(index), set.label(index))));
        }
    }

    fn kept_bytes(&self) -> [u64; 2] {
        self.kept
    }

    fn fit(&self, recipe: &mut Recipe) -> Vec<String> {
        let Some(shape) = recipe.resolve().ok().and_then(|model| model.inputs.values().next()?.image()) else {
            return Vec::new();
        };
        let [_, height, width] = shape;
        let mut changed = Vec::new();
        for (split, from) in [(Split::Train, self.train.image_size()), (Split::Eval, self.val.image_size())] {
            if pipeline(recipe, split, from, shape).is_ok() {
                continue;
            }
            let (name, steps) = match split {
                Split::Train => ("train", &mut recipe.preprocess.train),
                Split::Eval => ("eval", &mut recipe.preprocess.eval),
            };
            let (size, filter) = (ImageSize::Rectangle([height, width]), Filter::Bilinear);
            let added = if height == width {
                vec![Step::Resize(Resize { shorter: height, filter }), Step::CenterCrop(CenterCrop { size })]
            } else {
                vec![Step::ResizeTo(ResizeTo { size, filter })]
            };
            changed.push(format!(
                "preprocess.{name}: images of other sizes are resized to {height}x{width}, the input size of the \
                 network"
            ));
            steps.splice(0..0, added);
        }
        changed
    }

    fn feed(&self, recipe: &Recipe, inputs: &[Input], config: LoaderConfig) -> Result<Feed, InputError> {
        let first = first(recipe, inputs)?;
        let offered = [
            (&*first.name, Element::Real),
            (LABEL, Element::Index),
            (MIXED_LABEL, Element::Index),
            (LABEL_SHARE, Element::Real),
        ];
        let mix = recipe.preprocess.mix.as_ref();
        offer(recipe, inputs, &offered[..if mix.is_some() { 4 } else { 2 }])?;
        if let Some(label) = inputs.iter().find(|input| input.name == LABEL && !input.shape.is_empty()) {
            let message = format!("predictions of shape {:?} for an image, but an image has one class", label.shape);
            return Err(InputError::at(recipe, "loss", message));
        }
        let pipeline = pipeline(recipe, Split::Train, self.train.image_size(), image(first))?;
        let loader = Loader::new(self.train.clone(), pipeline, config)?;
        let loader = match mix {
            Some(mix) => loader.mixing(Mix { mixup: mix.mixup, cutmix: mix.cutmix, probability: mix.p })?,
            None => loader,
        };
        Ok(Feed::of_images(loader, first.name.clone()))
    }

    fn unvaried(&self, recipe: &Recipe, inputs: &[Input], config: LoaderConfig) -> Result<Feed, InputError> {
        let first = first(recipe, inputs)?;
        let pipeline = pipeline(recipe, Split::Eval, self.train.image_size(), image(first))?;
        Ok(Feed::of_images(Loader::new(self.train.clone(), pipeline, config)?, first.name.clone()))
    }

    fn held_out(&self, judged: Judged<'_>) -> Result<Box<dyn HeldOut>, EvaluationError> {
        let Judged { recipe, network, config } = judged;
        let image = image(&first_input(network)?);
        let pipeline = pipeline(recipe, Split::Eval, self.val.image_size(), image)?;
        let loader = Loader::new(self.val.clone(), pipeline, config)?;
        // Every answer is among the first five of at most five classes.
        let top5 = self.val.classes().len() > 5 || recipe.metric() == Metric::Top5;
        Ok(Box::new(evaluate::HeldOutImages { loader, tta: recipe.preprocess.tta, top5 }))
    }

    fn linear_baseline(&self, recipe: &Recipe) -> Option<LinearBaseline> {
        let [_, height, width] = recipe.model.inputs.values().next()?.image()?;
        let size = Size::new(width, height);
        let (train, val) = (self.train.clone(), self.val.clone());
        Some(LinearBaseline { train, val, size, on_error: recipe.data.on_error })
    }

    fn inspect(&self, part: usize, done: &(dyn Fn() + Sync)) -> Inspection {
        let (set, (name, samples)) = (self.part(part == 1), self.parts()[part]);
        let sums = Sums::over(samples, |index| Sums::of(set.image(index).map(|image| (image, []))), done);
        let counts = self.counts(part == 1);
        let classes = counts.len() as u64;
        let columns = vec![
            ("classes", Some((classes, classes))),
            ("per class", counts.iter().copied().min().zip(counts.iter().copied().max())),
        ];
        let named = set
            .classes()
            .iter()
            .zip(counts)
            .map(|(class, count)| Value::from(vec![Value::from(class.as_str()), count.into()]));
        let facts = [("classes", named.collect::<Value>())].into();
        Inspection { name, samples, facts, columns, pixels: Some(sums.pixels()), broken: sums.broken }
    }

    fn sheet(&self, held_out: bool, rows: usize, columns: usize) -> Result<(Image, usize), DataError> {
        let set = self.part(held_out);
        Ok((contact_sheet(set, rows, columns)?, set.len().min(rows.saturating_mul(columns))))
    }
}
