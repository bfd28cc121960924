//! Images with text and the targets of DB, ready for training.

use std::sync::Arc;

use super::{TextAugment, TextRegion, TextTargets};
use crate::{Annotated, DataError, Image, Rng, Samples};

/// An augmented image and its training targets.
#[derive(Debug, Clone, PartialEq)]
pub struct TextExample {
    /// The image, RGB.
    pub image: Image,
    /// Targets of its size.
    pub targets: TextTargets,
}

/// Training examples from a data set: example `index` is a pure function of seed, epoch and index.
#[derive(Clone)]
pub struct TextTraining {
    dataset: Arc<dyn Annotated<Vec<TextRegion>>>,
    augment: TextAugment,
}

impl TextTraining {
    /// Examples from `dataset`.
    ///
    /// # Errors
    /// If the data set is empty, or a setting makes no sense.
    pub fn new(dataset: Arc<dyn Annotated<Vec<TextRegion>>>, augment: TextAugment) -> Result<Self, DataError> {
        augment.check()?;
        let settings = &augment.settings;
        let [low, high] = settings.threshold;
        let sane = (0.0..1.0).contains(&settings.shrink_ratio) && low <= high && settings.min_size >= 0.0;
        if dataset.is_empty() || !sane {
            return Err(DataError::Config(format!("text of {} images with {settings:?}", dataset.len())));
        }
        Ok(Self { dataset, augment })
    }
}

impl Samples for TextTraining {
    type Sample = TextExample;

    fn len(&self) -> usize {
        self.dataset.len()
    }

    fn sample(&self, seed: u64, epoch: u64, index: usize) -> Result<TextExample, DataError> {
        let (image, regions) = self.dataset.load(index)?;
        let sample = self.augment.apply(&image, &regions, &mut Rng::new(seed, epoch, index as u64));
        let targets = TextTargets::new(sample.image.size(), &sample.regions, &self.augment.settings);
        Ok(TextExample { image: sample.image, targets })
    }
}
