//! Training and evaluation samples of SiamMask from videos.

use std::sync::Arc;

use zoo_datasets::{
    DataError, Normalize,
    tracking::{Pair, PairConfig, Pairs, TrackerConfig, VideoDataset},
};
use zoo_recipe::{Recipe, schema};

use crate::{
    Batch, Input, InputError,
    preprocess::{Split, only_normalisation},
};

/// Names of the network's inputs.
pub(super) const TEMPLATE: &str = "template";
pub(super) const SEARCH: &str = "search";
/// Name of the input for the anchors' classes, `[A, G, G]`.
const CLASSES: &str = "label_cls";

/// The inputs that videos provide for a step.
pub(super) const FIELDS: [&str; 7] =
    [TEMPLATE, SEARCH, CLASSES, "label_loc", "label_loc_weight", "label_mask", "label_mask_weight"];

fn preparation(recipe: &Recipe) -> schema::PairPreparation {
    recipe.preprocess.pairs.clone().unwrap_or_default()
}

/// Side of the model's input `name`.
fn side(recipe: &Recipe, name: &str) -> Result<usize, InputError> {
    match recipe.model.inputs.get(name).and_then(|input| input.image()) {
        Some([3, height, width]) if height == width => Ok(width),
        Some(_) => Err(InputError::at(
            recipe,
            &format!("model.inputs.{name}"),
            format!("`{name}` must be a square with three channels"),
        )),
        None => Err(InputError::at(recipe, "model.inputs", format!("videos need an input `{name}`"))),
    }
}

/// The pair settings for a network with `grid` x `grid` places.
fn pair_config(recipe: &Recipe, split: Split, grid: usize) -> Result<(PairConfig, Normalize), InputError> {
    let normalize = only_normalisation(recipe, split)?;
    let varied = preparation(recipe);
    let settings = match split {
        Split::Train => varied,
        // Held-out pairs always contain the target, away from the centre as in training, in its original colours.
        Split::Eval => schema::PairPreparation {
            template: schema::CropVariation::default(),
            search: schema::CropVariation { blur: 0.0, colour: false, ..varied.search },
            grey: 0.0,
            negative: 0.0,
            flip: 0.0,
            permute: 0.0,
            ..varied
        },
    };
    let (template, search) = (side(recipe, TEMPLATE)?, side(recipe, SEARCH)?);
    Ok((PairConfig { template, search, grid, channels: normalize.channels, settings }, normalize))
}

/// The training data of a step with these inputs.
pub(super) fn training(
    recipe: &Recipe,
    inputs: &[Input],
    train: Arc<dyn VideoDataset>,
    pairs: usize,
) -> Result<(Pairs, Normalize), InputError> {
    let classes = inputs.iter().find(|input| input.name == CLASSES).and_then(|input| input.shape.last());
    let grid = classes.ok_or_else(|| InputError::at(recipe, "loss", format!("no loss term uses `{CLASSES}`")))?;
    let (config, normalize) = pair_config(recipe, Split::Train, *grid)?;
    let pairs = Pairs::new(train, config, pairs)?;
    let expected = inputs.iter().find(|input| input.name == CLASSES).map_or(0, |input| input.shape.iter().product());
    if pairs.anchors().len() != expected {
        let message = format!("{} anchors, but the network has outputs for {expected}", pairs.anchors().len());
        return Err(InputError::at(recipe, "preprocess.pairs.anchors", message));
    }
    Ok((pairs, normalize))
}

/// Pairs as inputs of a step.
pub(super) fn batch(pairs: Vec<Pair>, normalize: &Normalize) -> Batch {
    Batch::join(pairs, FIELDS, |mut pair| {
        normalize.apply_to_planes(&mut pair.template);
        normalize.apply_to_planes(&mut pair.search);
        let labels = pair.labels;
        [pair.template, pair.search, labels.class, labels.delta, labels.delta_weight, pair.mask, pair.mask_weight]
    })
}

/// Held-out pairs, prepared for a network: the same for every seed of the training.
pub(super) struct HeldOutPairs {
    pairs: Pairs,
    normalize: Normalize,
}

/// The held-out pairs of a recipe, one of each video, for a network with `grid` x `grid` places.
///
/// # Errors
/// Steps other than a normalisation, or a network without the inputs that videos need.
pub(super) fn held_out_pairs(
    recipe: &Recipe,
    videos: Arc<dyn VideoDataset>,
    grid: usize,
) -> Result<HeldOutPairs, InputError> {
    let (config, normalize) = pair_config(recipe, Split::Eval, grid)?;
    let len = videos.len();
    Ok(HeldOutPairs { pairs: Pairs::new(videos, config, len)?, normalize })
}

impl zoo_datasets::Samples for HeldOutPairs {
    type Sample = Pair;

    fn len(&self) -> usize {
        zoo_datasets::Samples::len(&self.pairs)
    }

    fn sample(&self, seed: u64, epoch: u64, index: usize) -> Result<Pair, DataError> {
        let mut pair = self.pairs.sample(seed, epoch, index)?;
        self.normalize.apply_to_planes(&mut pair.template);
        self.normalize.apply_to_planes(&mut pair.search);
        Ok(pair)
    }
}

/// How a target is tracked with a network of `grid` x `grid` places and masks of `mask` x `mask`, and how images are
/// normalised.
///
/// # Errors
/// As [`held_out_pairs`].
pub(super) fn tracker(recipe: &Recipe, grid: usize, mask: usize) -> Result<(TrackerConfig, Normalize), InputError> {
    let settings = recipe.postprocess.track.clone().unwrap_or_default();
    let (template, search, anchors) = (side(recipe, TEMPLATE)?, side(recipe, SEARCH)?, preparation(recipe).anchors);
    let inner = search.saturating_sub(template) / anchors.stride + 1;
    let config = TrackerConfig { template, search, margin: grid.saturating_sub(inner), mask, anchors, settings };
    Ok((config, only_normalisation(recipe, Split::Eval)?))
}
