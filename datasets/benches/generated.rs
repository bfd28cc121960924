//! Speed of the generated set and of its linear baseline; prints the baseline and writes a contact sheet.
//!
//!     cargo bench -p zoo-datasets --bench generated [-- SHEET.png]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use zoo_datasets::image::write_png;
use zoo_datasets::{
    Cached, Characters, DataError, Dataset, Loader, LoaderConfig, Normalize, OnError, Pipeline, Size, contact_sheet,
    linear_baseline,
};

fn main() -> Result<(), DataError> {
    let sheet = std::env::args().skip(1).find(|argument| argument.ends_with(".png"));
    for classes in [10, 36] {
        let settings = zoo_settings::Characters { classes, ..Default::default() };
        let train = Cached::new(Arc::new(Characters::new(&settings, 0, 8000)?), usize::MAX);
        let val = Cached::new(Arc::new(Characters::new(&settings, Characters::HELD_OUT, 1000)?), usize::MAX);
        if let Some(path) = &sheet {
            write_png(&contact_sheet(&train, 12, 18)?, &Path::new(path).with_extension(format!("{classes}.png")))?;
        }
        let start = Instant::now();
        let loader =
            Loader::new(Arc::new(train), Pipeline::new(vec![], Normalize::IMAGENET)?, LoaderConfig::default())?;
        let images: usize = loader.epoch(0, 0)?.map(|batch| batch.map(|batch| batch.n)).sum::<Result<_, _>>()?;
        let drawn = start.elapsed();
        let start = Instant::now();
        let accuracy =
            linear_baseline(loader.dataset().as_ref(), &val, Size::square(64), OnError::Fail, &mut |_, _| ())?;
        println!(
            "{classes} classes: {images} images drawn in {drawn:.2?}; linear baseline {accuracy:.3} (chance {:.3}) in {:.2?}",
            1.0 / val.classes().len() as f64,
            start.elapsed()
        );
    }
    Ok(())
}
