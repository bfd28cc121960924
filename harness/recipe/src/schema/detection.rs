//! Images with boxes.

use std::path::PathBuf;

zoo_settings::settings! {
    /// Photographs with the boxes of their objects, in COCO's layout (`annotations/instances_train*.json` and
    /// `instances_val*.json` with image folders of the same names) or PASCAL VOC's (`Annotations`, `JPEGImages`,
    /// `ImageSets/Main/train.txt` and `val.txt`). Classes of COCO are the numbers of its categories. Those of VOC are
    /// its twenty from 1, or the lines of the optional file `classes.txt`; class 0 is the background, as in
    /// torchvision. Crowds and difficult objects are not learned, and count neither as right nor as wrong.
    pub struct Boxes {
        /// Folder with one of these layouts; `--data` replaces it.
        pub root: PathBuf,
    }
}
