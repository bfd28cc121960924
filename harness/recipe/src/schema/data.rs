//! Data sources.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    BoxedShapes, Boxes, Characters, Crop511, FrameFolder, LabelMaps, Metric, OnError, Sentences, Shapes, TextFile,
    TextFolder, TextScenes, Videos,
};

zoo_settings::settings! {
    /// The source of the samples.
    pub struct Data {
        /// The data set.
        pub source: Source,
        /// Where the data set can be downloaded, for users who do not have it.
        pub download?: String,
        /// What happens if a sample is broken or unreadable.
        pub on_error: OnError = OnError::default(),
    }
}

/// A data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Source {
    /// One folder per class below one folder per split (ImageNet's layout).
    ImageFolder(ImageFolder),
    /// One folder per class, without a split: a tenth of the images is held out.
    ClassFolders(ClassFolders),
    /// CIFAR-10 in its binary version: `data_batch_1.bin` .. `data_batch_5.bin`, `test_batch.bin`.
    Cifar10(Cifar10),
    /// Grey images with classes in IDX files: MNIST, Fashion-MNIST, KMNIST.
    Idx(Idx),
    /// Generated images of characters; needs no files.
    Characters(Characters),
    /// Generated scenes with words; needs no files.
    TextScenes(TextScenes),
    /// Photographs with annotated text (ICDAR 2015, Total-Text).
    TextFolder(TextFolder),
    /// Photographs with a class per pixel (PASCAL VOC).
    LabelMaps(LabelMaps),
    /// Generated scenes of shapes with a class per pixel; needs no files.
    Shapes(Shapes),
    /// Photographs with boxes (COCO, PASCAL VOC).
    Boxes(Boxes),
    /// Generated scenes of shapes with boxes; needs no files.
    BoxedShapes(BoxedShapes),
    /// Generated videos of a moving target; needs no files.
    Videos(Videos),
    /// Crops of videos around their targets (the layout of SiamMask).
    Crop511(Crop511),
    /// Folders of frames with masks or outlines (DAVIS, VOT).
    FrameFolder(FrameFolder),
    /// A text file, or a folder of text files, for language modelling.
    TextFile(TextFile),
    /// Generated sentences; needs no files.
    Sentences(Sentences),
}

/// What a sample is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleKind {
    /// An image with a class.
    Image,
    /// An image with the outlines of its text.
    Text,
    /// An image with a class per pixel.
    LabelMap,
    /// An image with the boxes of its objects.
    Boxes,
    /// A video with the place of its target.
    Video,
    /// A window of text.
    Language,
}

impl SampleKind {
    /// What samples are, in the plural.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Image => "images with a class",
            Self::Text => "images with text",
            Self::LabelMap => "images with label maps",
            Self::Boxes => "images with boxes",
            Self::Video => "videos",
            Self::Language => "windows of text",
        }
    }

    /// The metrics for such samples, in display order; the first one is the default.
    pub fn metrics(self) -> &'static [Metric] {
        match self {
            Self::Image => &[Metric::Top1, Metric::Top5, Metric::CrossEntropy],
            Self::Text => &[Metric::Hmean, Metric::Precision, Metric::Recall],
            Self::LabelMap => &[Metric::MeanIou, Metric::PixelAccuracy, Metric::CrossEntropy],
            Self::Boxes => &[
                Metric::Map,
                Metric::Map50,
                Metric::Map75,
                Metric::MapSmall,
                Metric::MapMedium,
                Metric::MapLarge,
                Metric::Mar100,
            ],
            Self::Video => &[Metric::MaskIou, Metric::Tracked, Metric::Overlap, Metric::Eao],
            Self::Language => &[Metric::CrossEntropy, Metric::Perplexity, Metric::BitsPerCharacter],
        }
    }
}

impl Source {
    /// What its samples are.
    pub fn kind(&self) -> SampleKind {
        match self {
            Self::ImageFolder(_) | Self::ClassFolders(_) | Self::Cifar10(_) | Self::Idx(_) | Self::Characters(_) => {
                SampleKind::Image
            }
            Self::TextScenes(_) | Self::TextFolder(_) => SampleKind::Text,
            Self::LabelMaps(_) | Self::Shapes(_) => SampleKind::LabelMap,
            Self::Boxes(_) | Self::BoxedShapes(_) => SampleKind::Boxes,
            Self::Videos(_) | Self::Crop511(_) | Self::FrameFolder(_) => SampleKind::Video,
            Self::TextFile(_) | Self::Sentences(_) => SampleKind::Language,
        }
    }

    /// Where its files are; `None` if it is drawn.
    pub fn location_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            Self::ImageFolder(ImageFolder { root, .. })
            | Self::ClassFolders(ClassFolders { root })
            | Self::Cifar10(Cifar10 { root })
            | Self::Idx(Idx { root })
            | Self::TextFolder(TextFolder { root, .. })
            | Self::LabelMaps(LabelMaps { root, .. })
            | Self::Boxes(Boxes { root, .. })
            | Self::Crop511(Crop511 { root, .. })
            | Self::FrameFolder(FrameFolder { root, .. })
            | Self::TextFile(TextFile { path: root, .. }) => Some(root),
            Self::Characters(_)
            | Self::TextScenes(_)
            | Self::Shapes(_)
            | Self::BoxedShapes(_)
            | Self::Videos(_)
            | Self::Sentences(_) => None,
        }
    }

    /// Whether it is drawn, not read.
    pub fn generated(&self) -> bool {
        self.clone().location_mut().is_none()
    }
}

zoo_settings::settings! {
    /// One folder per class below one folder per split.
    pub struct ImageFolder {
        /// Folder that contains the splits; `--data` replaces it.
        pub root: PathBuf,
        /// Folder of the training split below `root`.
        pub train: PathBuf = "train".into(),
        /// Folder of the validation split below `root`.
        pub val: PathBuf = "val".into(),
        /// File below `root` with one class folder per line, in the order of class indices; by default the folders are
        /// sorted. All splits have the same classes.
        pub classes_from?: PathBuf,
    }
}

zoo_settings::settings! {
    /// One folder per class, without a split. Held-out images are chosen by the hash of their paths relative to `root`.
    pub struct ClassFolders {
        /// Folder that contains the class folders; `--data` replaces it.
        pub root: PathBuf,
    }
}

zoo_settings::settings! {
    /// CIFAR-10 in its binary version.
    pub struct Cifar10 {
        /// Folder that contains the files; `--data` replaces it.
        pub root: PathBuf,
    }
}

zoo_settings::settings! {
    /// Grey images with classes in IDX files: `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, and the same with
    /// `t10k`, which is held out; unpacked. Classes are the numbers from 0 to the largest label.
    pub struct Idx {
        /// Folder that contains the files; `--data` replaces it.
        pub root: PathBuf,
    }
}
