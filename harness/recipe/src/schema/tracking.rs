//! Videos of one target.

use std::path::PathBuf;

zoo_settings::settings! {
    /// Crops of 511x511 pixels around their targets, as prepared by the authors of SiamMask from COCO, ImageNet DET and
    /// VID, and YouTube-VOS.
    pub struct Crop511 {
        /// Folder that contains the sets.
        pub root: PathBuf,
        /// The sets that are mixed.
        pub sets: Vec<CropSet>,
        /// Pairs per epoch.
        #[schemars(range(min = 1, max = 100000000))]
        pub pairs: usize,
        /// Folder of evaluation sequences, relative to `root`: VOT (`groundtruth.txt` next to the frames) or DAVIS.
        pub sequences: PathBuf,
    }
}

zoo_settings::settings! {
    /// One set of crops.
    pub struct CropSet {
        /// Folder of the crops, relative to the root.
        pub folder: PathBuf,
        /// JSON index, relative to the root.
        pub index: PathBuf,
        /// Whether the set has masks.
        pub masks: bool,
        /// Tracks used per round through the mixture; by default all.
        #[schemars(range(min = 1, max = 100000000))]
        pub tracks?: usize,
        /// Largest number of frames between template and search image, if it differs from `preprocess.pairs`.
        pub frame_range?: usize,
    }
}

zoo_settings::settings! {
    /// Folders of frames: a folder of images, or DAVIS (`JPEGImages/480p/NAME` with `Annotations/480p/NAME`), or VOT
    /// and its kin (`groundtruth.txt` or `groundtruth_rect.txt` next to the frames, or to their folder `color` or
    /// `img`). Training and evaluation use the same videos, so a training on them is refused while the recipe has a
    /// target.
    pub struct FrameFolder {
        /// The folder; `--data` replaces it.
        pub root: PathBuf,
        /// The target, by its number in masks of several objects (DAVIS 2017: an entry of the palette, from 1). Without
        /// it, the masks of a video show one object.
        #[schemars(range(min = 1, max = 255))]
        pub object?: u8,
    }
}
