//! Training and evaluation samples from images with boxes.

use std::sync::Arc;

use zoo_datasets::{
    DataError, Image, Normalize, Rng, Samples, Size,
    detection::{AnchorTargets, Corners, Fit, Fitted, Object, Pyramid, Role, check_limits, mirror},
};
use zoo_recipe::{LABEL, Recipe, schema};

use crate::{
    Batch, InputError,
    annotated::Images,
    preprocess::{Split, normalisation_of},
};

/// Input of the step: the offsets of anchors to their objects.
pub(super) const BOX: &str = "box";

/// How images become inputs of a network.
#[derive(Clone)]
pub(super) struct Preparation {
    normalize: Normalize,
    network: Size,
    /// Lengths of the shorter side.
    shorter: Vec<usize>,
    settings: schema::BoxPreparation,
    pub pyramid: Arc<Pyramid>,
}

impl Preparation {
    /// For a network with the input `image` (`[channels, height, width]`) that predicts something for `anchors`
    /// anchors.
    ///
    /// # Errors
    /// Steps other than a normalisation, settings that make no sense, and another number of anchors.
    pub fn new(recipe: &Recipe, split: Split, image: [usize; 3], anchors: usize) -> Result<Self, InputError> {
        let [channels, height, width] = image;
        let normalize = normalisation_of(recipe, split, channels)?;
        let settings = recipe.preprocess.boxes.clone().unwrap_or_default();
        let refuse = |path: &str, error: DataError| InputError::at(recipe, path, error.to_string());
        let (network, shapes) = (Size { width, height }, &settings.anchors);
        let pyramid = Pyramid::new(shapes, network).map_err(|e| refuse("preprocess.boxes.anchors", e))?;
        if pyramid.anchors().len() != anchors {
            let positions: Vec<String> = shapes
                .strides
                .iter()
                .map(|stride| format!("{}x{}", height.div_ceil(*stride), width.div_ceil(*stride)))
                .collect();
            let message = format!(
                "the network predicts {anchors} boxes, but there are {} anchors: {} shapes at {} positions",
                pyramid.anchors().len(),
                shapes.per_octave * shapes.ratios.len(),
                positions.join(" + ")
            );
            return Err(InputError::at(recipe, "preprocess.boxes.anchors", message));
        }
        check_limits(&settings).map_err(|e| refuse("preprocess.boxes.negative_iou", e))?;
        let shorter = settings.shorter.clone().unwrap_or_else(|| vec![height.max(width)]);
        for &shorter in &shorter {
            Fit { network, shorter }.check().map_err(|e| refuse("preprocess.boxes.shorter", e))?;
        }
        if shorter.is_empty() {
            return Err(InputError::at(recipe, "preprocess.boxes.shorter", "a length is needed"));
        }
        Ok(Self { normalize, network, shorter, settings, pyramid: Arc::new(pyramid) })
    }

    fn fit(&self, image: &Image, shorter: usize) -> Fitted {
        Fit { network: self.network, shorter }.apply(image, &self.normalize)
    }
}

/// A training sample.
pub(super) struct Example {
    pixels: Vec<f32>,
    targets: AnchorTargets,
}

/// Training samples.
pub(super) struct Training {
    pub set: Images<Vec<Object>>,
    pub prepare: Preparation,
}

impl Samples for Training {
    type Sample = Example;

    fn len(&self) -> usize {
        self.set.len()
    }

    fn sample(&self, seed: u64, epoch: u64, index: usize) -> Result<Example, DataError> {
        let prepare = &self.prepare;
        let (mut image, mut objects) = self.set.load(index)?;
        let mut rng = Rng::new(seed, epoch, index as u64);
        if rng.chance(prepare.settings.flip) {
            mirror(&mut image, objects.iter_mut().map(|object| &mut object.bounds));
        }
        let shorter = prepare.shorter[rng.below(prepare.shorter.len())];
        let fitted = prepare.fit(&image, shorter);
        let learned = objects.iter().filter(|object| object.role == Role::Single);
        let learned: Vec<(usize, Corners)> = learned
            .filter_map(|object| Some((object.class, fitted.corners(object.bounds.inside(image.size())?))))
            .collect();
        let targets = AnchorTargets::new(&prepare.pyramid, &learned, &prepare.settings);
        Ok(Example { pixels: fitted.pixels, targets })
    }
}

/// Samples as inputs of a step whose first is called `image`.
pub(super) fn batch(samples: Vec<Example>, image: &str) -> Batch {
    Batch::join(samples, [image, LABEL, BOX], |Example { pixels, targets }| [pixels, targets.labels, targets.offsets])
}

/// A held-out image.
pub(super) struct HeldOutImage {
    pub name: String,
    pub image: Image,
    pub objects: Vec<Object>,
    pub fitted: Fitted,
}

/// Held-out images as a network takes them.
pub(super) struct Evaluated {
    pub set: Images<Vec<Object>>,
    pub prepare: Preparation,
}

impl Samples for Evaluated {
    type Sample = HeldOutImage;

    fn len(&self) -> usize {
        self.set.len()
    }

    fn sample(&self, _seed: u64, _epoch: u64, index: usize) -> Result<HeldOutImage, DataError> {
        let (image, objects) = self.set.load(index)?;
        let shorter = self.prepare.shorter.iter().max().copied().unwrap_or(1);
        let fitted = self.prepare.fit(&image, shorter);
        Ok(HeldOutImage { name: self.set.name(index), image, objects, fitted })
    }
}
