//! Images with a class per pixel.

use std::path::PathBuf;

use zoo_settings::settings;

settings! {
    /// Photographs with label maps: `train/images` with `train/labels` (PNG files of the same names) and their `val`
    /// parts, or `JPEGImages`, `SegmentationClass` and `ImageSets/Segmentation` of PASCAL VOC. Palette indices or grey
    /// levels are the classes, levels of 0 to 255 whatever the bits of the file; 255 means no class. The optional file
    /// `classes.txt` contains one class name per line.
    pub struct LabelMaps {
        /// Folder with one of these layouts; `--data` replaces it.
        pub root: PathBuf,
        /// The values of pixels in the order of classes, for example `[0, 255]` for black and white masks; by default
        /// each value is the number of its class. 255 is no class unless it is listed.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub values: Option<Vec<u8>>,
    }
}

settings! {
    /// From an image with a label map to a training sample (torchvision's `references/segmentation`). The inputs of the
    /// step are the image and `label`, a class per pixel, or 255 for no class. Training crops a random part of the
    /// resized image to the input size of the network; evaluation scales the whole image to it.
    pub struct LabelMapPreparation {
        /// Range of the length of the shorter side in training, in pixels; by default half to twice the input size of
        /// the network.
        pub shorter?: [usize; 2],
        /// Probability of a horizontal flip in training.
        #[schemars(range(min = 0, max = 1))]
        pub flip: f64 = 0.5,
    }
}
