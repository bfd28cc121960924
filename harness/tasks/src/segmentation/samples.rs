//! Training and evaluation samples from images with label maps.

use zoo_datasets::{
    DataError, Image, Normalize, Rng, Samples, Size,
    segmentation::{LabelAugment, LabelMap, Labelled},
};
use zoo_recipe::{LABEL, Recipe};

use crate::{
    Batch, EvaluationError, Field, InputError,
    annotated::Images,
    preprocess::{Split, normalisation_of, normalized, pair},
};

/// How an image is converted to the network's input.
#[derive(Clone)]
pub(super) struct Preparation {
    normalize: Normalize,
}

impl Preparation {
    fn new(recipe: &Recipe, split: Split, [channels, ..]: [usize; 3]) -> Result<Self, InputError> {
        Ok(Self { normalize: normalisation_of(recipe, split, channels)? })
    }

    /// The image as the network's input, CHW.
    pub(super) fn numbers(&self, image: &Image) -> Vec<f32> {
        normalized(image, &self.normalize)
    }
}

/// Training samples for a network with the input `image` (`[channels, height, width]`).
pub(super) struct Training {
    set: Images<LabelMap>,
    augment: LabelAugment,
}

/// Training samples of a recipe.
///
/// # Errors
/// Steps other than a normalisation, or settings that make no sense.
pub(super) fn training(
    recipe: &Recipe,
    set: Images<LabelMap>,
    image: [usize; 3],
) -> Result<(Training, Preparation), InputError> {
    let prepare = Preparation::new(recipe, Split::Train, image)?;
    let [_, height, width] = image;
    let section = recipe.preprocess.label_maps.clone().unwrap_or_default();
    let side = height.min(width);
    let shorter = section.shorter.map_or((side.div_ceil(2), 2 * side), pair);
    let augment = LabelAugment { size: Size { width, height }, shorter, flip: section.flip };
    augment.check()?;
    Ok((Training { set, augment }, prepare))
}

impl Samples for Training {
    type Sample = Labelled;

    fn len(&self) -> usize {
        self.set.len()
    }

    fn sample(&self, seed: u64, epoch: u64, index: usize) -> Result<Labelled, DataError> {
        let (image, labels) = self.set.load(index)?;
        Ok(self.augment.apply(&image, &labels, &mut Rng::new(seed, epoch, index as u64)))
    }
}

/// A held-out image, scaled to the network's input.
pub(super) struct HeldOutImage {
    /// Its name.
    pub name: String,
    /// The input of the network.
    pub sample: Labelled,
}

/// Held-out images, prepared for a network.
pub(super) struct Evaluated {
    set: Images<LabelMap>,
    network: Size,
}

/// The held-out images of a recipe for a network with the input `image` (`[channels, height, width]`).
///
/// # Errors
/// Steps other than a normalisation.
pub(super) fn evaluation(
    recipe: &Recipe,
    set: Images<LabelMap>,
    image: [usize; 3],
) -> Result<(Evaluated, Preparation), InputError> {
    let prepare = Preparation::new(recipe, Split::Eval, image)?;
    let [_, height, width] = image;
    Ok((Evaluated { set, network: Size { width, height } }, prepare))
}

impl Samples for Evaluated {
    type Sample = HeldOutImage;

    fn len(&self) -> usize {
        self.set.len()
    }

    fn sample(&self, _seed: u64, _epoch: u64, index: usize) -> Result<HeldOutImage, DataError> {
        let (image, labels) = self.set.load(index)?;
        Ok(HeldOutImage { name: self.set.name(index), sample: Labelled::fitted(&image, &labels, self.network) })
    }
}

/// Size of the label map that a network with the input `image` predicts; `None` if it is larger than the image.
pub(super) fn label_size(labels: Option<&[usize]>, [_, height, width]: [usize; 3]) -> Option<Size> {
    match labels {
        None => Some(Size { width, height }),
        Some(&[h, w]) if h <= height && w <= width => Some(Size::new(w, h)),
        Some(_) => None,
    }
}

/// Size of the part of an image of `whole` pixels for which an output of `shape` (`[classes, height, width]`)
/// predicts classes.
///
/// # Errors
/// An output that is not a class for each pixel of a part of the image.
pub(super) fn predicted_size(shape: &[usize], whole: Size) -> Result<Size, EvaluationError> {
    let size = match shape {
        [_, pixels @ ..] => label_size(Some(pixels), [3, whole.height, whole.width]),
        [] => None,
    };
    size.ok_or_else(|| {
        let message = format!("the output is {shape:?} for images of {whole} pixels, not a class per pixel");
        EvaluationError::Mismatch(message)
    })
}

/// The centre of a label map: a network without padding predicts no classes for the border of the image.
pub(super) fn middle(labels: &LabelMap, size: Size) -> LabelMap {
    let offset = |whole: usize, part: usize| (whole - part) / 2;
    labels.part((offset(labels.width(), size.width), offset(labels.height(), size.height)), size)
}

/// Samples as inputs of a step whose first input is called `image`.
pub(super) fn batch(samples: Vec<Labelled>, image: &str, prepare: &Preparation, size: Size) -> Batch {
    let n = samples.len();
    let pixels = samples.iter().flat_map(|sample| prepare.numbers(&sample.image)).collect();
    let labels = samples.iter().flat_map(|sample| middle(&sample.labels, size).into_values()).map(u32::from);
    Batch { n, fields: vec![Field::real(image, pixels), Field::index(LABEL, labels.collect())] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_the_labels_is_predicted() {
        let labels = LabelMap::new(Size::new(4, 3), (0..12).collect()).unwrap();
        assert_eq!(middle(&labels, Size::new(2, 1)).values(), [5, 6]);
        assert_eq!(middle(&labels, labels.size()), labels);
        assert_eq!(label_size(Some(&[1, 2]), [3, 3, 4]), Some(Size::new(2, 1)));
        assert_eq!(label_size(Some(&[4, 4]), [3, 3, 4]), None);
        assert_eq!(label_size(Some(&[]), [3, 3, 4]), None);
    }
}
