//! The data of a training, and what the recipe takes over from them.

use crate::Failure;
use crate::memory::{MemoryArgs, beyond_now};
use crate::numbers::percent;
use crate::progress::Progress;
use std::path::{Path, PathBuf};
use tracing::info;
use zoo_datasets::Size;
use zoo_graph::Bytes;
use zoo_input::{DataSets, Samples, Split};
use zoo_recipe::schema::{
    CenterCrop, Cifar10, Filter, FrameFolder, ImageFolder, ImageSize, Resize, ResizeTo, SampleKind, Source, Step,
    TextFolder, TextFormat,
};
use zoo_recipe::{ConfigPath, Recipe};
use zoo_train::{Job, metrics::Baseline};

use super::screen::shown;

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
    let classes = if sets.kind() == SampleKind::Image { sets.classes().len() } else { recipe.model.classes };
    let generated = recipe.data.source.generated();
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
    if let Some(source) = source_in(root, &recipe.data.source) {
        recipe.data.source = source;
    }
    if let Samples::Images { train, val } = &sets.samples {
        resize(recipe, [(Split::Train, train.image_size()), (Split::Eval, val.image_size())]);
    }
    Ok(sets)
}

/// What a recipe has to say to get at the data in `root`; `None` for class folders that are split by hash.
fn source_in(root: &Path, before: &Source) -> Option<Source> {
    match before.kind() {
        SampleKind::Image => {}
        SampleKind::Text => {
            let format = if let Source::TextFolder(folder) = before { folder.format } else { TextFormat::default() };
            return Some(Source::TextFolder(TextFolder { root: root.to_owned(), format }));
        }
        SampleKind::Video => return Some(Source::FrameFolder(FrameFolder { root: root.to_owned() })),
    }
    if root.join("train").is_dir() {
        let (train, val) = (PathBuf::from("train"), PathBuf::from("val"));
        return Some(Source::ImageFolder(ImageFolder { root: root.to_owned(), train, val, classes_from: None }));
    }
    let binary = ["", "cifar-10-batches-bin"].map(|inner| root.join(inner));
    let root = binary.into_iter().find(|folder| folder.join("test_batch.bin").is_file())?;
    Some(Source::Cifar10(Cifar10 { root }))
}

/// Lets the recipe resize what it would not bring to the network's size otherwise.
fn resize(recipe: &mut Recipe, sizes: [(Split, Option<Size>); 2]) {
    let Some(shape) = recipe.resolve().ok().and_then(|model| model.inputs.values().next().copied()) else { return };
    let [_, height, width] = shape;
    for (split, from) in sizes {
        if zoo_input::pipeline(recipe, split, from, shape).is_ok() {
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
pub(super) fn linear_baseline(
    recipe: &Recipe,
    sets: &DataSets,
    memory: MemoryArgs,
    progress: &Progress,
) -> Result<Option<f64>, Failure> {
    let Samples::Images { train, val } = &sets.samples else { return Ok(None) };
    if train.len() + val.len() > BASELINE_SAMPLES {
        return Ok(None);
    }
    let Some([_, height, width]) = recipe.model.inputs.values().next() else { return Ok(None) };
    let size = Size::new(width.0, height.0);
    let needed = beyond_now(Bytes(zoo_datasets::linear_baseline_bytes(train.as_ref(), val.as_ref(), size)));
    if let Some(limit) = memory.limit().filter(|limit| needed > limit.bytes) {
        info!("no linear baseline: it would take {needed}, {} is {}", limit.by, limit.bytes);
        return Ok(None);
    }
    let mut watch = progress.counted("the linear baseline");
    Ok(Some(zoo_datasets::linear_baseline(train.as_ref(), val.as_ref(), size, &mut watch)?))
}

/// What other trivial answers reach on the same data, unless they are many.
pub(in crate::cmd) fn trivial_answers(job: Job<'_>, progress: &Progress) -> Result<Vec<Baseline>, Failure> {
    if job.data.val_len() > BASELINE_SAMPLES {
        return Ok(Vec::new());
    }
    Ok(zoo_train::trivial_answers(job, &mut progress.counted("trivial answers"))?)
}

/// Says what is trained on, and what is to be reached.
pub(super) fn announce(recipe: &Recipe, sets: &DataSets, baseline: Option<f64>, others: &[Baseline]) {
    let classes = match sets.kind() {
        SampleKind::Image => format!(", {} classes", sets.classes().len()),
        SampleKind::Text | SampleKind::Video => String::new(),
    };
    info!("data: {} ({} + {} {}{classes})", sets.description, sets.train_len(), sets.val_len(), sets.noun());
    if sets.skipped > 0 {
        info!("{} entries that cannot be used are left out", sets.skipped);
    }
    let target = recipe.target.as_ref().map(|target| {
        let goal = |metric, value| format!("{} {}", zoo_train::metrics::name(metric), percent(value));
        let first = goal(target.metric, target.value);
        let also = target.also.iter().map(|also| goal(also.metric, also.value));
        format!("target: {}", std::iter::once(first).chain(also).collect::<Vec<_>>().join(" and "))
    });
    for Baseline { answer, score } in others {
        info!("{answer} reaches {}", shown(score));
    }
    let linear = baseline.map(|baseline| format!("a linear classifier reaches {}", percent(baseline)));
    let parts: Vec<String> = target.into_iter().chain(linear).collect();
    if !parts.is_empty() {
        info!("{}", parts.join("; "));
    }
}
