//! Draws what the generators make, with its annotation.
//!
//!     cargo run --release -p zoo-datasets --example preview -- FOLDER

use std::path::PathBuf;

use zoo_datasets::drawing::{colours, draw_polygon, strip};
use zoo_datasets::image::write_png;
use zoo_datasets::text::{TextScenes, TextScenesConfig};
use zoo_datasets::{DataError, Image};

fn main() -> Result<(), DataError> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "preview".into()));
    std::fs::create_dir_all(&folder).map_err(|source| DataError::Io { path: folder.clone(), source })?;
    let scenes = TextScenes::new(TextScenesConfig::default(), 0, 0, 24)?;
    let annotated = |index: usize| -> Image {
        let (mut image, regions) = scenes.render(index);
        for region in &regions {
            let colour = if region.ignore { colours::IGNORED } else { colours::TRUTH };
            draw_polygon(&mut image, &region.polygon, colour, 1);
        }
        image
    };
    write_png(&strip(&(0..24).map(annotated).collect::<Vec<_>>(), 6), &folder.join("text_annotated.png"))?;
    write_png(&strip(&(0..24).map(|i| scenes.render(i).0).collect::<Vec<_>>(), 6), &folder.join("text.png"))
}
