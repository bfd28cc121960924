//! The scores of trivial answers that ignore the image: the same boxes everywhere.

use zoo_datasets::{
    DataError, LoaderConfig, SampleLoader, Samples, Size,
    detection::{BoundingBox, Object, Role},
};

use crate::{
    Baseline, EvaluationError,
    annotated::Images,
    metrics::{AveragePrecision, ImageBoxes, ScoredBox},
};

/// The size and the objects of each image.
struct Described(Images<Vec<Object>>);

impl Samples for Described {
    type Sample = (Size, Vec<Object>);

    fn len(&self) -> usize {
        self.0.len()
    }

    fn sample(&self, _seed: u64, _epoch: u64, index: usize) -> Result<Self::Sample, DataError> {
        self.0.load(index).map(|(image, objects)| (image.size(), objects))
    }
}

/// A box of every class in every image, as certain as the class is frequent: the mean of the true boxes of the class,
/// and the whole image. `progress` hears how many images are done, and of how many.
///
/// # Errors
/// Samples that cannot be read.
pub(super) fn answers(
    set: Images<Vec<Object>>,
    config: LoaderConfig,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Baseline>, EvaluationError> {
    let (classes, of) = (set.classes().len(), set.len());
    let mut images = Vec::new();
    for batch in SampleLoader::new(Described(set), config)?.epoch(0, 0)? {
        images.extend(batch?);
        progress(images.len(), of);
    }
    let means = mean_boxes(classes, &images);
    let whole = BoundingBox { x: 0.0, y: 0.0, width: 1.0, height: 1.0 };
    let score = |answer: &str, bounds: &dyn Fn(&ScoredBox) -> BoundingBox| {
        let mut meter = AveragePrecision::new(classes);
        for (size, truth) in &images {
            let (width, height) = (size.width as f64, size.height as f64);
            let in_image = |mean: &ScoredBox| {
                let share = bounds(mean);
                let (x, y) = (share.x * width, share.y * height);
                let bounds = BoundingBox { x, y, width: share.width * width, height: share.height * height };
                ScoredBox { bounds, ..*mean }
            };
            let found: Vec<ScoredBox> = means.iter().map(in_image).collect();
            meter.add(&ImageBoxes { truth, found: &found });
        }
        meter.scores().first().map(|score| Baseline { answer: answer.to_owned(), score: *score })
    };
    let answers =
        [score("the mean box of each class", &|mean| mean.bounds), score("the whole image as a box", &|_| whole)];
    Ok(answers.into_iter().flatten().collect())
}

/// The mean box of each class as a share of the image, with the share of the objects that are of this class.
fn mean_boxes(classes: usize, images: &[(Size, Vec<Object>)]) -> Vec<ScoredBox> {
    let mut sums = vec![([0.0; 4], 0.0); classes];
    for (size, objects) in images {
        for object in objects.iter().filter(|object| object.role == Role::Single) {
            let BoundingBox { x, y, width, height } = object.bounds;
            let (across, down) = (size.width as f64, size.height as f64);
            let (sum, count) = &mut sums[object.class];
            sum.iter_mut().zip([x / across, y / down, width / across, height / down]).for_each(|(sum, v)| *sum += v);
            *count += 1.0;
        }
    }
    let all: f64 = sums.iter().map(|(_, count)| count).sum();
    let seen = sums.into_iter().enumerate().filter(|(_, (_, count))| *count > 0.0);
    seen.map(|(class, (sum, count))| {
        let [x, y, width, height] = sum.map(|sum| sum / count);
        ScoredBox { class, bounds: BoundingBox { x, y, width, height }, score: count / all }
    })
    .collect()
}
