//! The data of a recipe.

use std::{path::Path, sync::Arc};

use zoo_datasets::{Dataset, OnError, hash::fnv1a64, open_root, text::TextDataset, tracking::VideoDataset};
use zoo_recipe::{
    Recipe,
    schema::{self, SampleKind, Source},
};

use crate::{InputError, images, images::KEPT_IMAGES, text, tracking};

/// Training and held-out data of a recipe.
#[derive(Clone)]
pub struct DataSets {
    /// The samples.
    pub samples: Samples,
    /// What they are, in a line.
    pub description: String,
    /// Entries left out because they could not be read (`on_error: skip`).
    pub skipped: usize,
}

/// Samples to train on and held-out ones, by kind.
#[derive(Clone)]
pub enum Samples {
    /// Images with a class.
    Images {
        /// Training part.
        train: Arc<dyn Dataset>,
        /// Held-out part, with the same classes.
        val: Arc<dyn Dataset>,
    },
    /// Images with the outlines of their text.
    Text {
        /// Training part.
        train: Arc<dyn TextDataset>,
        /// Held-out part.
        val: Arc<dyn TextDataset>,
    },
    /// Videos with the place of their target.
    Videos {
        /// Training part.
        train: Arc<dyn VideoDataset>,
        /// Pairs of frames per epoch.
        pairs: usize,
        /// Held-out videos of which pairs of frames are judged, one of each.
        val: Arc<dyn VideoDataset>,
        /// Held-out videos that are tracked from the first frame to the last.
        sequences: Arc<dyn VideoDataset>,
    },
}

impl DataSets {
    /// Bytes of generated images that are kept once they are drawn, training and held-out ones.
    pub fn kept_bytes(&self, recipe: &Recipe) -> [u64; 2] {
        match (&self.samples, &recipe.data.source) {
            (Samples::Images { train, val }, schema::Source::Characters(section)) => {
                let side = section.size;
                [train.len(), val.len()].map(|n| (n * 3 * side * side).min(KEPT_IMAGES) as u64)
            }
            _ => [0; 2],
        }
    }

    /// Samples per epoch.
    pub fn train_len(&self) -> usize {
        match &self.samples {
            Samples::Images { train, .. } => train.len(),
            Samples::Text { train, .. } => train.len(),
            Samples::Videos { pairs, .. } => *pairs,
        }
    }

    /// Samples held out.
    pub fn val_len(&self) -> usize {
        match &self.samples {
            Samples::Images { val, .. } => val.len(),
            Samples::Text { val, .. } => val.len(),
            Samples::Videos { val, .. } => val.len(),
        }
    }

    /// What the samples are.
    pub fn kind(&self) -> SampleKind {
        match &self.samples {
            Samples::Images { .. } => SampleKind::Image,
            Samples::Text { .. } => SampleKind::Text,
            Samples::Videos { .. } => SampleKind::Video,
        }
    }

    /// Names of the classes, if samples have one.
    pub fn classes(&self) -> &[String] {
        match &self.samples {
            Samples::Images { train, .. } => train.classes(),
            Samples::Text { .. } | Samples::Videos { .. } => &[],
        }
    }

    /// What the samples are called, in the plural.
    pub fn noun(&self) -> &'static str {
        match self.kind() {
            SampleKind::Image | SampleKind::Text => "images",
            SampleKind::Video => "pairs",
        }
    }

    /// Tells these data from others, wherever they lie: FNV-1a over the names of images and videos in order, and, if samples
    /// have one, over the names of the classes and each sample's label.
    pub fn fingerprint(&self) -> u64 {
        let mut bytes = Vec::new();
        // Generated samples are named by their seed, files by their last part.
        let mut name = |name: String| {
            bytes.extend(name.rsplit(['/', '\\']).next().unwrap_or_default().as_bytes());
            bytes.push(0);
        };
        match &self.samples {
            Samples::Images { train, val } => {
                train.classes().iter().for_each(|class| name(class.clone()));
                for set in [train, val] {
                    (0..set.len()).for_each(|index| name(format!("{}:{}", set.name(index), set.label(index))));
                }
            }
            Samples::Text { train, val } => {
                [train, val].into_iter().for_each(|set| (0..set.len()).for_each(|index| name(set.name(index))));
            }
            Samples::Videos { train, val, sequences, .. } => {
                [train, val, sequences]
                    .into_iter()
                    .for_each(|set| (0..set.len()).for_each(|index| name(set.name(index))));
            }
        }
        fnv1a64(&bytes)
    }
}

/// Opens the data of a recipe, or those in `root` instead.
///
/// # Errors
/// Data that are missing, unreadable, or divided into other classes than the model has.
pub fn open(recipe: &Recipe, root: Option<&Path>) -> Result<DataSets, InputError> {
    let on_error = on_error(recipe);
    if let Some(root) = root {
        return match recipe.data.source.kind() {
            SampleKind::Image => {
                let found = open_root(root, on_error)?;
                let description = format!("{} ({:?})", root.display(), found.layout);
                let samples = Samples::Images { train: found.train, val: found.val };
                Ok(DataSets { samples, description, skipped: found.skipped })
            }
            SampleKind::Text => text::folder(root, text::format_of(&recipe.data.source), on_error),
            SampleKind::Video => tracking::frames(root, on_error),
        };
    }
    match &recipe.data.source {
        Source::ImageFolder(folder) => images::folder(folder, on_error),
        Source::Cifar10(section) => images::cifar10(section),
        Source::Characters(section) => images::characters(recipe, section),
        Source::TextScenes(section) => text::scenes(section),
        Source::TextFolder(section) => text::folder(&section.root, section.format, on_error),
        Source::Videos(section) => tracking::videos(section),
        Source::Crop511(section) => tracking::crops(section, on_error),
        Source::FrameFolder(section) => tracking::frames(&section.root, on_error),
    }
}

/// What happens to a sample that cannot be read.
pub(crate) fn on_error(recipe: &Recipe) -> OnError {
    match recipe.data.on_error {
        schema::OnError::Fail => OnError::Fail,
        schema::OnError::Skip => OnError::Skip,
    }
}
