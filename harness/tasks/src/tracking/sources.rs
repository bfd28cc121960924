//! Sources of videos.

use std::{path::Path, sync::Arc};

use zoo_datasets::{
    Crop511, FrameFolders, OnError,
    tracking::{VideoDataset, VideoMixture, Videos},
};
use zoo_recipe::schema;

use super::Targets;
use crate::{DataSets, InputError};

/// Generated videos.
pub(super) fn videos(section: &schema::Videos) -> Result<DataSets, InputError> {
    let (train, val, sequences) = (section.train, section.val, section.sequences);
    let set = |first, len| Videos::new(section, first, len);
    let samples = Arc::new(Targets {
        train: Arc::new(set(0, train)?),
        pairs: train,
        val: Arc::new(set(Videos::HELD_OUT, val)?),
        // These sequences follow those from which pairs are taken.
        sequences: Arc::new(set(Videos::HELD_OUT + val as u64, sequences)?),
        drawn: true,
    });
    let description = format!("generated videos, {sequences} sequences of {} frames", section.frames);
    Ok(DataSets { samples, description, skipped: 0 })
}

/// SiamMask's crops, and sequences to evaluate on.
pub(super) fn crops(section: &schema::Crop511, on_error: OnError) -> Result<DataSets, InputError> {
    let mut skipped = 0;
    let mut parts: Vec<(Arc<dyn VideoDataset>, usize)> = Vec::new();
    for set in &section.sets {
        let crops =
            Crop511::open(&section.root.join(&set.folder), &section.root.join(&set.index), set.masks, on_error)?;
        skipped += crops.skipped();
        let tracks = set.tracks.unwrap_or(crops.len());
        let crops = crops.with_frame_range(set.frame_range);
        parts.push((Arc::new(crops), tracks));
    }
    let train = VideoMixture::new(parts)?;
    let held_out = FrameFolders::open_root(&section.root.join(&section.sequences), None, on_error)?;
    skipped += held_out.skipped();
    let sequences: Arc<dyn VideoDataset> = Arc::new(held_out);
    let description = format!(
        "{} tracks in {} sets of crops, {} sequences, in {}",
        train.len(),
        section.sets.len(),
        sequences.len(),
        section.root.display()
    );
    let (train, val) = (Arc::new(train), sequences.clone());
    let samples = Arc::new(Targets { train, pairs: section.pairs, val, sequences, drawn: false });
    Ok(DataSets { samples, description, skipped })
}

/// Folders of frames, used for training and for evaluation. `object` is the number of the target in their masks.
pub(super) fn frames(root: &Path, object: Option<u8>, on_error: OnError) -> Result<DataSets, InputError> {
    let folders = FrameFolders::open_root(root, object, on_error)?;
    let (skipped, n) = (folders.skipped(), folders.len());
    let videos: Arc<dyn VideoDataset> = Arc::new(folders);
    let (train, val) = (videos.clone(), videos.clone());
    let samples = Arc::new(Targets { train, pairs: n, val, sequences: videos, drawn: false });
    let description = format!("{n} {} of frames in {}", if n == 1 { "folder" } else { "folders" }, root.display());
    Ok(DataSets { samples, description, skipped })
}
