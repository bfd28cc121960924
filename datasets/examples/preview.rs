//! Draws generated samples with their annotations, and real images with text as used in training.
//!
//!     cargo run --release -p zoo-datasets --example preview -- FOLDER [ICDAR_2015]

use std::path::{Path, PathBuf};

use std::sync::Arc;

use zoo_datasets::drawing::{colours, draw_polygon, strip, tint, write_gif};
use zoo_datasets::image::write_png;
use zoo_datasets::text::{TextAugment, TextExample, TextScenes, TextTraining};
use zoo_datasets::tracking::{PairConfig, Pairs, Videos};
use zoo_datasets::{Annotated, DataError, Grid, Image, OnError, Part, Samples, Size, TextFolder, TextFormat};

fn main() -> Result<(), DataError> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "preview".into()));
    std::fs::create_dir_all(&folder).map_err(|source| DataError::Io { path: folder.clone(), source })?;
    let scenes = TextScenes::new(&zoo_settings::TextScenes::default(), 0, 24)?;
    let annotated = |index: usize| -> Image {
        let (mut image, regions) = scenes.render(index);
        for region in &regions {
            let colour = if region.ignore { colours::IGNORED } else { colours::TRUTH };
            draw_polygon(&mut image, &region.polygon, colour, 1);
        }
        image
    };
    write_png(&strip(&(0..24).map(annotated).collect::<Vec<_>>(), 6), &folder.join("text_annotated.png"))?;
    write_png(&strip(&(0..24).map(|i| scenes.render(i).0).collect::<Vec<_>>(), 6), &folder.join("text.png"))?;

    if let Some(root) = std::env::args().nth(2) {
        let set = TextFolder::open_root(Path::new(&root), Part::Train, TextFormat::Icdar2015, OnError::Skip)?;
        let count = set.len().min(8);
        let augment = TextAugment { size: Size::square(320), settings: Default::default() };
        let training = TextTraining::new(Arc::new(set), augment)?;
        let example = |index: usize| -> Result<Image, DataError> {
            let TextExample { mut image, targets } = training.sample(0, 0, index)?;
            tint(&mut image, &targets.threshold.map(|v| v > 0.45), colours::TRUTH, 0.5);
            tint(&mut image, &targets.shrink.map(|v| v > 0.0), colours::FOUND, 0.5);
            tint(&mut image, &targets.shrink_mask.map(|v| v == 0.0), colours::IGNORED, 0.5);
            Ok(image)
        };
        let images = (0..count).map(example).collect::<Result<Vec<_>, _>>()?;
        write_png(&strip(&images, 4), &folder.join("icdar.png"))?;
    }

    let videos = Videos::new(&zoo_settings::Videos::default(), 0, 8)?;
    let frame = |video: usize, frame: usize| -> Image {
        let mut frame = videos.render(video, frame);
        if let Some(mask) = &frame.mask {
            tint(&mut frame.image, mask, colours::TRUTH, 0.4);
        }
        if let Some(target) = frame.target {
            draw_polygon(&mut frame.image, &target.polygon(), colours::FOUND, 2);
        }
        frame.image
    };
    let frames: Vec<Image> =
        (0..5).flat_map(|video| (0..20).step_by(5).map(move |t| (video, t))).map(|(v, t)| frame(v, t)).collect();
    write_png(&strip(&frames, 4), &folder.join("videos.png"))?;
    write_gif(&(0..20).map(|t| frame(1, t)).collect::<Vec<_>>(), 8, &folder.join("video.gif"))?;

    let config = PairConfig { channels: zoo_settings::ChannelOrder::Rgb, ..Default::default() };
    let pairs = Pairs::new(Arc::new(videos), config, 8)?;
    let picture = |values: &[f32], side: usize| -> Image {
        let area = side * side;
        let pixels = (0..area).flat_map(|i| [0, 1, 2].map(|channel| values[channel * area + i] as u8)).collect();
        Image::new(Size::square(side), pixels).unwrap_or_else(|| Image::filled(Size::square(side), [0; 3]))
    };
    let mut shown = Vec::new();
    for index in 0..8 {
        let pair = pairs.sample(0, 0, index)?;
        let mut search = picture(&pair.search, 255);
        if let Some(mask) = Grid::new(Size::square(255), pair.mask) {
            tint(&mut search, &mask.map(|v| v > 0.0), colours::TRUTH, 0.4);
        }
        if let Some(target) = pair.target {
            draw_polygon(&mut search, &target.polygon(), colours::FOUND, 2);
        }
        shown.extend([picture(&pair.template, 127), search]);
    }
    write_png(&strip(&shown, 4), &folder.join("pairs.png"))
}
