//! Real photographs and frames through readers, transforms and loader. They are no part of the repository: `.ci/run`
//! runs these tests where it finds them.

use std::path::PathBuf;
use std::sync::Arc;

use zoo_datasets::text::{TextAugment, TextTargets};
use zoo_datasets::tracking::{PairConfig, Pairs, VideoDataset};
use zoo_datasets::{
    Annotated, Batch, FrameFolders, Loader, LoaderConfig, Normalize, OnError, Part, Pipeline, Rng, Samples, Size,
    TextFolder, TextFormat, open_root,
};

/// A folder of `../shared/data`.
fn shared(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(name)
}

#[test]
#[ignore = "needs ../shared/data"]
fn photographs_of_many_sizes_become_batches() {
    let folder = shared("imagenet-sample");
    let root = open_root(&folder, OnError::Fail).unwrap();
    assert_eq!(root.train.classes().len(), 40);
    assert_eq!(root.train.len() + root.val.len(), 40);
    let pipelines = [
        Pipeline::evaluation(256, 224, Normalize::IMAGENET).unwrap(),
        Pipeline::training(224, Normalize::IMAGENET).unwrap(),
    ];
    for pipeline in pipelines {
        let of_threads = |threads| {
            let config = LoaderConfig { batch: 16, shuffle: true, seed: 3, threads, ..Default::default() };
            let loader = Loader::new(Arc::clone(&root.train), pipeline.clone(), config).unwrap();
            assert_eq!(loader.image_shape(), [3, 224, 224]);
            loader.epoch(1, 0).unwrap().collect::<Result<Vec<Batch>, _>>().unwrap()
        };
        let batches = of_threads(1);
        assert_eq!(batches.iter().map(|batch| batch.n).sum::<usize>(), root.train.len());
        // The darkest and the brightest values that the normalisation gives.
        assert!(batches.iter().flat_map(|batch| &batch.images).all(|v| (-2.2..2.7).contains(v)));
        assert!(of_threads(3) == batches);
    }
}

#[test]
#[ignore = "needs ../shared/data"]
fn folders_of_train_and_val_are_found() {
    let folder = shared("cifar10");
    let root = open_root(&folder, OnError::Fail).unwrap();
    assert_eq!((root.train.len(), root.val.len(), root.skipped), (5000, 1000, 0));
    assert_eq!(root.val.classes()[3], "cat");
    for index in (0..root.val.len()).step_by(83) {
        assert_eq!(root.val.image(index).unwrap().width(), 32);
        assert_eq!(root.val.label(index) as usize, index / 100);
    }
}

#[test]
#[ignore = "needs ../shared/data"]
fn real_photographs_of_icdar_2015() {
    let root = shared("icdar-sample");
    let set = TextFolder::open_root(&root, Part::Train, TextFormat::Icdar2015, OnError::Fail).unwrap();
    assert_eq!((set.len(), set.skipped()), (10, 0));
    let augment = TextAugment { size: Size::square(320), settings: Default::default() };
    let (mut texts, mut learnt) = (0, 0);
    for index in 0..set.len() {
        let (image, regions) = set.load(index).unwrap();
        assert_eq!(image.size(), Size::new(1280, 720));
        texts += regions.iter().filter(|region| !region.ignore).count();
        let sample = augment.apply(&image, &regions, &mut Rng::new(0, 0, index as u64));
        let targets = TextTargets::new(sample.image.size(), &sample.regions, &Default::default());
        learnt += targets.ignored.iter().filter(|ignored| !**ignored).count();
    }
    println!("{texts} texts, {learnt} learnt after augmentation");
    assert!(texts > 10 && learnt > 0);
}

#[test]
#[ignore = "needs ../shared/data"]
fn real_frames_of_davis() {
    let set = FrameFolders::open(&shared("tennis"), None, OnError::Fail).unwrap();
    assert_eq!((set.len(), set.frames(0), set.skipped()), (1, 70, 0));
    let frame = set.frame(0, 69).unwrap();
    assert_eq!((frame.image.size(), frame.target, frame.mask), (Size::new(854, 480), None, None));
    // Without masks nothing can be trained, and the pair says so.
    let pairs = Pairs::new(Arc::new(set), PairConfig::default(), 1).unwrap();
    assert!(pairs.sample(0, 0, 0).unwrap_err().to_string().contains(": no target in the first frame"));
}
