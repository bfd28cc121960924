//! `average_precision FOLDER...`: average precision of the detections in `FOLDER/detections.json` on the held-out part
//! of each folder in COCO's layout, a line of JSON per folder. `golden/export/boxes.py` compares them with pycocotools.

use std::collections::HashMap;
use std::error::Error;
use std::path::Path;

use zoo_datasets::detection::BoundingBox;
use zoo_datasets::{Annotated, BoxFolder, OnError, Part};
use zoo_tasks::metrics::{AveragePrecision, ImageBoxes, ScoredBox};

/// Category, box and score of each detection in an image.
type Detections = HashMap<String, Vec<(usize, [f64; 4], f64)>>;

fn main() -> Result<(), Box<dyn Error>> {
    for folder in std::env::args().skip(1) {
        let folder = Path::new(&folder);
        let detections: Detections = serde_json::from_slice(&std::fs::read(folder.join("detections.json"))?)?;
        let set = BoxFolder::open_root(folder, Part::Val, OnError::Fail)?;
        let mut meter = AveragePrecision::new(set.classes().len());
        for index in 0..set.len() {
            let (_, truth) = set.load(index)?;
            let name = set.name(index);
            let name = Path::new(&name).file_name().unwrap_or_default().to_string_lossy();
            let scored = |&(class, [x, y, width, height], score): &(usize, [f64; 4], f64)| ScoredBox {
                class,
                bounds: BoundingBox { x, y, width, height },
                score,
            };
            let found: Vec<ScoredBox> = detections.get(&*name).into_iter().flatten().map(scored).collect();
            meter.add(&ImageBoxes { truth: &truth, found: &found });
        }
        let scores: HashMap<&str, f64> =
            meter.scores().iter().map(|score| (score.metric.name(), score.value)).collect();
        println!("{}", serde_json::to_string(&scores)?);
    }
    Ok(())
}
