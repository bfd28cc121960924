//! Images with annotated text.

use std::path::PathBuf;

use zoo_settings::TextFormat;

zoo_settings::settings! {
    /// Photographs with annotated text, in one of the published layouts: `train_images` with `train_gts`,
    /// `ch4_training_images` with `ch4_training_localization_transcription_gt`, `Images/Train` with
    /// `Groundtruth/Polygon/Train`, `images` with `gts`, and their test parts.
    pub struct TextFolder {
        /// Folder with one of these layouts; `--data` replaces it.
        pub root: PathBuf,
        /// Format of annotation files.
        pub format: TextFormat = TextFormat::default(),
    }
}
