//! Training and evaluation samples of DB from annotated images.

use zoo_datasets::{
    DataError, Image, Normalize, Rng, Size,
    text::{TextAugment, TextExample, TextRegion, TextTraining, evaluation_size},
    transforms::{Filter, resize},
};
use zoo_recipe::{Recipe, schema};

use crate::{
    Batch, InputError,
    annotated::Images,
    preprocess::{Split, normalized, only_normalisation},
};

/// Inputs of the step in addition to the image: the training targets.
pub(super) const TARGETS: [&str; 4] = ["gt", "mask", "thresh_map", "thresh_mask"];

fn preparation(recipe: &Recipe) -> schema::TextPreparation {
    recipe.preprocess.text.clone().unwrap_or_default()
}

/// Training samples for a network with the input `image` (`[channels, height, width]`).
pub(super) fn training(
    recipe: &Recipe,
    train: Images<Vec<TextRegion>>,
    image: [usize; 3],
) -> Result<(TextTraining, Normalize), InputError> {
    let normalize = only_normalisation(recipe, Split::Train)?;
    let [_, height, width] = image;
    let augment = TextAugment { size: Size { width, height }, settings: preparation(recipe) };
    Ok((TextTraining::new(train, augment)?, normalize))
}

/// Examples as inputs of a step whose first input is called `image`.
pub(super) fn batch(examples: Vec<TextExample>, image: &str, normalize: &Normalize) -> Batch {
    let [gt, mask, thresh_map, thresh_mask] = TARGETS;
    Batch::join(examples, [image, gt, mask, thresh_map, thresh_mask], |TextExample { image, targets }| {
        let shrink_mask = targets.shrink_mask.into_values();
        let (threshold, threshold_mask) = (targets.threshold.into_values(), targets.threshold_mask.into_values());
        [normalized(&image, normalize), targets.shrink.into_values(), shrink_mask, threshold, threshold_mask]
    })
}

/// A held-out image.
#[derive(Clone, Debug)]
pub(super) struct TextImage {
    /// Its name.
    pub name: String,
    /// The image.
    pub image: Image,
    /// Its text, in pixel coordinates of the image.
    pub regions: Vec<TextRegion>,
    /// The network's input, normalised, CHW.
    pub pixels: Vec<f32>,
    /// Size of the network's input.
    pub size: Size,
    /// The part of the network's input, from its upper left corner, that shows the image.
    pub shown: Size,
}

/// Held-out images, prepared for a network.
pub(super) struct TextImages {
    set: Images<Vec<TextRegion>>,
    normalize: Normalize,
    network: Size,
    height: Option<usize>,
}

/// The held-out images of a recipe for a network with the input `image` (`[channels, height, width]`).
///
/// # Errors
/// Steps other than a normalisation.
pub(super) fn text_images(
    recipe: &Recipe,
    set: Images<Vec<TextRegion>>,
    image: [usize; 3],
) -> Result<TextImages, InputError> {
    let [_, height, width] = image;
    Ok(TextImages {
        set,
        normalize: only_normalisation(recipe, Split::Eval)?,
        network: Size { width, height },
        height: preparation(recipe).eval_height,
    })
}

impl zoo_datasets::Samples for TextImages {
    type Sample = TextImage;

    fn len(&self) -> usize {
        self.set.len()
    }

    fn sample(&self, _seed: u64, _epoch: u64, index: usize) -> Result<TextImage, DataError> {
        let (image, regions) = self.set.load(index)?;
        let (seen, shown) = match self.height {
            Some(height) => {
                let size = evaluation_size(&self.set.name(index), image.size(), height)?;
                (resize(&image, size, Filter::Bilinear), size)
            }
            None => {
                let fitted = TextAugment::none(self.network).apply(&image, &[], &mut Rng::new(0, 0, 0)).image;
                (fitted, fit(image.size(), self.network))
            }
        };
        let pixels = normalized(&seen, &self.normalize);
        Ok(TextImage { name: self.set.name(index), image, regions, pixels, size: seen.size(), shown })
    }
}

/// The part of `network` that shows an image scaled into it, as [`TextAugment`] scales it.
fn fit(image: Size, network: Size) -> Size {
    let scale = (network.width as f64 / image.width as f64).min(network.height as f64 / image.height as f64);
    let side = |length: usize, limit: usize| ((length as f64 * scale) as usize).clamp(1, limit);
    Size::new(side(image.width, network.width), side(image.height, network.height))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use zoo_datasets::{Annotated, Samples};

    /// A single image, one pixel high.
    struct Line(usize);

    impl Annotated<Vec<TextRegion>> for Line {
        fn len(&self) -> usize {
            1
        }

        fn name(&self, _index: usize) -> String {
            "line.png".into()
        }

        fn load(&self, _index: usize) -> Result<(Image, Vec<TextRegion>), DataError> {
            Ok((Image::filled(Size::new(self.0, 1), [9; 3]), Vec::new()))
        }
    }

    #[test]
    fn lines_of_pixels_are_not_enlarged_without_limit() {
        let sample = |width| {
            let (set, normalize) = (Arc::new(Line(width)), Normalize::UNCHANGED);
            let images = TextImages { set, normalize, network: Size::new(32, 32), height: Some(64) };
            images.sample(0, 0, 0).map(|image| (image.size, image.pixels.len()))
        };
        assert_eq!(sample(3).unwrap(), (Size::new(192, 64), 3 * 192 * 64));
        let error = sample(2000).unwrap_err().to_string();
        assert!(error.starts_with("line.png: an image of 2000x1 pixels would be evaluated at 128000x64"), "{error}");
    }
}
