//! The data of a training, and what the recipe takes over from them.

use crate::Failure;
use crate::numbers::percent;
use crate::progress::Progress;
use std::path::{Path, PathBuf};
use tracing::info;
use zoo_datasets::{Size, linear_baseline};
use zoo_input::{DataSets, Split};
use zoo_recipe::schema::{CenterCrop, Cifar10, Filter, ImageFolder, ImageSize, Resize, ResizeTo, Source, Step};
use zoo_recipe::{ConfigPath, Recipe};

/// Opens the recipe's data, or those in `given`; then the recipe takes over their classes and, where its own preprocessing
/// does not bring them to the network's size, is made to resize them. Says what is changed.
///
/// A target is kept only if the data are where the recipe's own may lie: a folder of as many classes.
///
/// # Errors
/// Data that are missing or unreadable.
pub(in crate::cmd) fn open(
    recipe: &mut Recipe,
    overridden: &[ConfigPath],
    given: Option<&Path>,
) -> Result<DataSets, Failure> {
    let sets = zoo_input::open(recipe, given)?;
    let Some(root) = given else { return Ok(sets) };
    let classes = sets.train.classes().len();
    let generated = matches!(recipe.data.source, Source::Characters(_));
    let own_target = overridden.iter().any(|path| path.as_str().starts_with("target"));
    if (generated || classes != recipe.model.classes) && !own_target && recipe.target.take().is_some() {
        info!("no target: the recipe's is for other data (--set target.value=... sets one)");
    }
    if classes != recipe.model.classes {
        info!(
            "model.classes is {classes}, the number of classes in {}, instead of {}",
            root.display(),
            recipe.model.classes
        );
        recipe.model.classes = classes;
    }
    if let Some(source) = source_in(root) {
        recipe.data.source = source;
    }
    resize(recipe, &sets);
    Ok(sets)
}

/// What a recipe has to say to get at the data in `root`; `None` for class folders that are split by hash.
fn source_in(root: &Path) -> Option<Source> {
    if root.join("train").is_dir() {
        let (train, val) = (PathBuf::from("train"), PathBuf::from("val"));
        return Some(Source::ImageFolder(ImageFolder { root: root.to_owned(), train, val, classes_from: None }));
    }
    let binary = ["", "cifar-10-batches-bin"].map(|inner| root.join(inner));
    let root = binary.into_iter().find(|folder| folder.join("test_batch.bin").is_file())?;
    Some(Source::Cifar10(Cifar10 { root }))
}

/// Lets the recipe resize what it would not bring to the network's size otherwise.
fn resize(recipe: &mut Recipe, sets: &DataSets) {
    let Some(shape) = recipe.resolve().ok().and_then(|model| model.inputs.values().next().copied()) else { return };
    let [_, height, width] = shape;
    for (split, from) in [(Split::Train, &sets.train), (Split::Eval, &sets.val)] {
        if zoo_input::pipeline(recipe, split, from.image_size(), shape).is_ok() {
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
        info!("preprocess.{name}: images are first resized to the network's {height}x{width}");
        steps.splice(0..0, added);
    }
}

/// Samples up to which the linear baseline is measured: beyond, it takes longer than it tells.
const BASELINE_SAMPLES: usize = 20_000;

/// Top-1 accuracy of a linear classifier on the same data, unless they are many.
pub(super) fn baseline(recipe: &Recipe, sets: &DataSets, progress: &Progress) -> Result<Option<f64>, Failure> {
    if sets.train.len() + sets.val.len() > BASELINE_SAMPLES {
        return Ok(None);
    }
    let Some([_, height, width]) = recipe.model.inputs.values().next() else { return Ok(None) };
    let spinner = progress.spinner();
    spinner.message("measuring the linear baseline");
    let baseline = linear_baseline(sets.train.as_ref(), sets.val.as_ref(), Size::new(width.0, height.0))?;
    Ok(Some(baseline))
}

/// Says what is trained on, and what is to be reached.
pub(super) fn announce(recipe: &Recipe, sets: &DataSets, baseline: Option<f64>) {
    let classes = sets.train.classes().len();
    info!("data: {} ({} + {} images, {classes} classes)", sets.description, sets.train.len(), sets.val.len());
    if sets.skipped > 0 {
        info!("{} entries that are no readable images are left out", sets.skipped);
    }
    let target = recipe
        .target
        .as_ref()
        .map(|target| format!("target: {} {}", zoo_train::metrics::name(target.metric), percent(target.value)));
    let linear = baseline.map(|baseline| format!("a linear classifier reaches {}", percent(baseline)));
    let parts: Vec<String> = target.into_iter().chain(linear).collect();
    if !parts.is_empty() {
        info!("{}", parts.join("; "));
    }
}
