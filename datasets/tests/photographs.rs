//! Real photographs through readers, transforms and loader, where they are at hand.

use std::path::PathBuf;
use std::sync::Arc;

use zoo_datasets::{Batch, Dataset, Layout, Loader, LoaderConfig, Normalize, OnError, Pipeline, open_root};

/// A folder of `../shared/data`; `None`, and a word about it, where it is absent.
fn shared(name: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(name);
    if !folder.is_dir() {
        println!("skipped: {} is absent", folder.display());
    }
    folder.is_dir().then_some(folder)
}

#[test]
fn photographs_of_many_sizes_become_batches() {
    let Some(folder) = shared("imagenet-sample") else { return };
    let root = open_root(&folder, OnError::Fail).unwrap();
    assert_eq!((root.layout, root.train.classes().len()), (Layout::Classes, 40));
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
fn folders_of_train_and_val_are_found() {
    let Some(folder) = shared("cifar10") else { return };
    let root = open_root(&folder, OnError::Fail).unwrap();
    assert_eq!((root.layout, root.train.len(), root.val.len(), root.skipped), (Layout::TrainVal, 5000, 1000, 0));
    assert_eq!(root.val.classes()[3], "cat");
    for index in (0..root.val.len()).step_by(83) {
        assert_eq!(root.val.image(index).unwrap().width(), 32);
        assert_eq!(root.val.label(index) as usize, index / 100);
    }
}
