//! Order, completeness, errors and resumption of loaders.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use zoo_datasets::{
    Batch, DataError, Dataset, Image, Loader, LoaderConfig, Mix, Normalize, OnError, Pipeline, Share, Size, Source,
    shuffled,
};
use zoo_settings::{HorizontalFlip, Levels, PadMode, RandomCrop, Step};

/// Flat images whose red value is their index, the other channels a gradient; some cannot be read.
struct Flats {
    len: usize,
    broken: Vec<usize>,
    classes: Vec<String>,
    read: AtomicUsize,
}

impl Flats {
    fn new(len: usize, broken: &[usize]) -> Arc<Self> {
        let classes = ["even", "odd"].map(str::to_owned).to_vec();
        Arc::new(Self { len, broken: broken.to_vec(), classes, read: AtomicUsize::new(0) })
    }
}

impl Dataset for Flats {
    fn len(&self) -> usize {
        self.len
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: usize) -> u32 {
        index as u32 % 2
    }

    fn name(&self, index: usize) -> String {
        format!("flat/{index}")
    }

    fn image_size(&self) -> Option<Size> {
        Some(Size::square(6))
    }

    fn source(&self, index: usize) -> Result<Source<'_>, DataError> {
        self.read.fetch_add(1, Ordering::Relaxed);
        if self.broken.contains(&index) {
            return Err(DataError::Unusable { place: self.name(index), reason: "broken".to_owned() });
        }
        let pixels = (0..36_u8).flat_map(|i| [index as u8, i, 2 * i]).collect();
        Ok(Source::Decoded(Image::new(Size::square(6), pixels).unwrap()))
    }
}

const RAW: Normalize = Normalize { mean: [0.0; 3], std: [1.0; 3], scale: Levels::Byte, ..Normalize::UNCHANGED };

fn plain() -> Pipeline {
    Pipeline::new(vec![], RAW).unwrap()
}

fn augmented() -> Pipeline {
    let crop = RandomCrop { size: 5, pad: 1, mode: PadMode::Zeros };
    let flip = HorizontalFlip { p: 0.5, alternate: false };
    Pipeline::new(vec![Step::RandomCrop(crop), Step::HorizontalFlip(flip)], RAW).unwrap()
}

fn batches(loader: &Loader, epoch: u64, first: usize) -> Vec<Batch> {
    loader.epoch(epoch, first).unwrap().collect::<Result<_, _>>().unwrap()
}

/// The index that the red value of each image tells.
fn indices(batches: &[Batch], sample_len: usize) -> Vec<usize> {
    batches.iter().flat_map(|batch| batch.images.chunks_exact(sample_len).map(|image| image[0] as usize)).collect()
}

#[test]
fn without_shuffling_samples_come_in_order() {
    let config = LoaderConfig { batch: 4, threads: 3, ..Default::default() };
    let loader = Loader::new(Flats::new(10, &[]), plain(), config).unwrap();
    let found = batches(&loader, 0, 0);
    assert_eq!(loader.batches_per_epoch(), 3);
    assert_eq!(found.iter().map(|batch| batch.n).collect::<Vec<_>>(), [4, 4, 2]);
    assert_eq!(indices(&found, 108), (0..10).collect::<Vec<_>>());
    assert_eq!(found[2].labels, [0, 1]);
    // NCHW: green of pixel 7 of the second image.
    assert_eq!(found[0].images[108 + 36 + 7], 7.0);
}

#[test]
fn batches_depend_on_neither_threads_nor_entry() {
    let loader = |threads, prefetch| {
        let config = LoaderConfig {
            batch: 7,
            shuffle: true,
            drop_last: true,
            seed: 11,
            threads,
            prefetch,
            ..Default::default()
        };
        Loader::new(Flats::new(60, &[]), augmented(), config).unwrap()
    };
    let reference = batches(&loader(1, 0), 3, 0);
    assert_eq!(reference.len(), 8);
    assert_eq!(batches(&loader(4, 3), 3, 0), reference);
    assert_eq!(batches(&loader(2, 1), 3, 5), reference[5..]);
    assert_eq!(batches(&loader(2, 1), 3, 8), []);
    assert_ne!(batches(&loader(2, 1), 4, 0), reference);
}

/// Image and class of each sample are mixed with those before it, in parts of a batch as in the whole.
#[test]
fn parts_of_a_batch_are_mixed_as_the_whole() {
    let loader = |share, mix: Mix| {
        let config = LoaderConfig { batch: 6, shuffle: true, drop_last: true, seed: 11, share, ..Default::default() };
        Loader::new(Flats::new(60, &[]), augmented(), config).unwrap().mixing(mix).unwrap()
    };
    for mix in [Mix { mixup: 0.5, cutmix: 0.0, probability: 1.0 }, Mix { mixup: 0.2, cutmix: 1.0, probability: 0.7 }] {
        let whole = batches(&loader(Share::WHOLE, mix), 1, 0);
        let parts = [0, 1, 2].map(|part| batches(&loader(Share { part, of: 3 }, mix), 1, 0));
        for (number, whole) in whole.iter().enumerate() {
            let of = |field: &dyn Fn(&Batch) -> Vec<f32>| parts.iter().flat_map(|part| field(&part[number])).collect();
            let images: Vec<f32> = of(&|part| part.images.clone());
            let shares: Vec<f32> = of(&|part| part.mixed.as_ref().unwrap().shares.clone());
            let second: Vec<f32> =
                of(&|part| part.mixed.as_ref().unwrap().labels.iter().map(|label| *label as f32).collect());
            let mixed = whole.mixed.as_ref().unwrap();
            assert_eq!((images, shares), (whole.images.clone(), mixed.shares.clone()));
            assert!(second.iter().zip(&mixed.labels).all(|(found, label)| *found == *label as f32));
            let mut before = whole.labels.clone();
            before.rotate_right(1);
            assert_eq!(mixed.labels, before);
        }
        assert_eq!(batches(&loader(Share::WHOLE, mix), 1, 4), whole[4..]);
        let shares: Vec<f32> = whole.iter().map(|batch| batch.mixed.as_ref().unwrap().shares[0]).collect();
        assert!(shares.iter().any(|share| *share != shares[0]), "{shares:?}");
    }
}

#[test]
fn mixes_that_cannot_be_drawn_are_refused() {
    for (mixup, cutmix, probability) in
        [(0.0, 0.0, 1.0), (-1.0, 1.0, 1.0), (1e-9, 0.0, 1.0), (0.0, 5.0, 1.0), (1.0, 0.0, 1.1)]
    {
        let loader = Loader::new(Flats::new(10, &[]), plain(), LoaderConfig::default()).unwrap();
        assert!(loader.mixing(Mix { mixup, cutmix, probability }).is_err(), "{mixup} {cutmix} {probability}");
    }
}

#[test]
fn an_epoch_is_a_permutation() {
    let config = LoaderConfig { batch: 8, shuffle: true, seed: 2, ..Default::default() };
    let loader = Loader::new(Flats::new(50, &[]), plain(), config).unwrap();
    let mut seen = Vec::new();
    for epoch in 0..2 {
        let found = indices(&batches(&loader, epoch, 0), 108);
        assert_eq!(found, shuffled(50, 2, epoch));
        let mut sorted = found.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>());
        seen.push(found);
    }
    assert_ne!(seen[0], seen[1]);
}

#[test]
fn the_first_unreadable_sample_ends_the_epoch() {
    let config = LoaderConfig { batch: 4, threads: 4, ..Default::default() };
    let loader = Loader::new(Flats::new(16, &[7, 5, 14]), plain(), config).unwrap();
    let mut epoch = loader.epoch(0, 0).unwrap();
    assert_eq!(epoch.next().unwrap().unwrap().n, 4);
    assert_eq!(epoch.next().unwrap().unwrap_err().to_string(), "flat/5: broken");
    assert!(epoch.next().is_none());
}

#[test]
fn skipped_samples_are_missing_where_batches_may_be_short() {
    let config = LoaderConfig { batch: 4, threads: 2, on_error: OnError::Skip, ..Default::default() };
    let loader = Loader::new(Flats::new(10, &[1, 4, 5, 6, 7]), plain(), config).unwrap();
    let found = batches(&loader, 0, 0);
    assert_eq!(found.iter().map(|batch| batch.n).collect::<Vec<_>>(), [3, 0, 2]);
    assert_eq!(indices(&found, 108), [0, 2, 3, 8, 9]);
    assert_eq!(found[0].labels, [0, 0, 1]);
    assert_eq!(loader.skipped(), 5);
}

#[test]
fn skipped_samples_are_replaced_where_batches_are_full() {
    let config = LoaderConfig { batch: 4, threads: 2, drop_last: true, on_error: OnError::Skip, ..Default::default() };
    let broken = [1, 4, 5];
    let loader = Loader::new(Flats::new(10, &broken), plain(), config).unwrap();
    let found = batches(&loader, 0, 0);
    assert!(found.iter().all(|batch| batch.n == 4 && batch.images.len() == 4 * 108));
    let indices = indices(&found, 108);
    assert!(indices.iter().all(|index| !broken.contains(index)));
    assert_eq!((indices[0], indices[2], indices[3]), (0, 2, 3));
    assert_eq!(loader.skipped(), broken.len());
    assert_eq!(batches(&loader, 0, 1), found[1..]);
}

#[test]
fn nothing_readable_is_an_error() {
    let config = LoaderConfig { batch: 2, drop_last: true, on_error: OnError::Skip, ..Default::default() };
    let loader = Loader::new(Flats::new(4, &[0, 1, 2, 3]), plain(), config).unwrap();
    let error = loader.epoch(0, 0).unwrap().next().unwrap().unwrap_err();
    assert!(matches!(error, DataError::NothingReadable { .. }), "{error}");
}

#[test]
fn a_dropped_epoch_stops_reading() {
    let dataset = Flats::new(200, &[]);
    let config = LoaderConfig { batch: 10, threads: 2, prefetch: 2, ..Default::default() };
    let loader = Loader::new(Arc::<Flats>::clone(&dataset), plain(), config).unwrap();
    let mut epoch = loader.epoch(0, 0).unwrap();
    assert!(epoch.next().is_some());
    drop(epoch);
    // One batch taken, two waiting, one in the making, and one that found no room.
    assert!(dataset.read.load(Ordering::Relaxed) <= 50);
}

#[test]
fn impossible_configurations_are_refused() {
    let refused = |len, pipeline, config| {
        let Err(error) = Loader::new(Flats::new(len, &[]), pipeline, config) else { panic!("{config:?} accepted") };
        assert!(matches!(error, DataError::Config(_)), "{error}");
    };
    let config = LoaderConfig { batch: 4, ..Default::default() };
    refused(4, plain(), LoaderConfig { batch: 0, ..config });
    refused(4, plain(), LoaderConfig { threads: 0, ..config });
    refused(4, plain(), LoaderConfig { batch: usize::MAX, ..config });
    refused(0, plain(), config);
    refused(3, plain(), LoaderConfig { drop_last: true, ..config });
    let open = Pipeline::new(vec![Step::RandomCoveringCrop(Default::default())], RAW).unwrap();
    refused(4, open, config);
}
