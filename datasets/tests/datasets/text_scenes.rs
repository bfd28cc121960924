//! Generated scenes with text: determinism, contents, and that detection undoes the making of targets.

use std::sync::Arc;

use zoo_datasets::hash::{fnv1a64, h};
use zoo_datasets::text::{Counts, TextAugment, TextRegion, TextScenes, TextTargets, TextTraining, compare, detect};
use zoo_datasets::{Annotated, DataError, LoaderConfig, SampleLoader, Size};
use zoo_settings as settings;

fn scenes(len: usize) -> TextScenes {
    TextScenes::new(&settings::TextScenes::default(), 0, len).unwrap()
}

/// Recorded when the set was made: a change of any pixel changes what targets mean.
#[test]
fn pixels_never_change() {
    let set = scenes(12);
    let hash = (0..12).map(|i| set.render(i)).fold(0, |all, (image, regions)| {
        let texts: String = regions.iter().map(|region| format!("{region:?}")).collect();
        h(&format!("{all:x}"), fnv1a64(image.pixels()) ^ fnv1a64(texts.as_bytes()))
    });
    assert_eq!(format!("{hash:016x}"), "6258b1e88f686e2f");
}

#[test]
fn a_scene_is_a_function_of_seed_and_number() {
    let (whole, part) = (scenes(20), TextScenes::new(&settings::TextScenes::default(), 15, 5).unwrap());
    assert_eq!(whole.load(18).unwrap(), part.load(3).unwrap());
    let other = TextScenes::new(&settings::TextScenes { seed: 1, ..Default::default() }, 15, 5).unwrap();
    assert_ne!(part.load(0).unwrap(), other.load(0).unwrap());
}

#[test]
fn scenes_hold_words_some_bent_some_illegible_and_some_hold_none() {
    let set = scenes(300);
    let (mut words, mut bent, mut ignored, mut empty) = (0, 0, 0, 0);
    for index in 0..set.len() {
        let (image, regions) = set.load(index).unwrap();
        assert_eq!(image.size(), Size::square(192));
        empty += usize::from(regions.is_empty());
        for region in &regions {
            let bounds = region.polygon.bounds();
            assert!(bounds.low.x >= 0.0 && bounds.low.y >= 0.0 && bounds.high.x < 192.0 && bounds.high.y < 192.0);
            assert!(region.polygon.is_simple() && region.text.len() >= 3);
            words += usize::from(!region.ignore);
            ignored += usize::from(region.ignore);
            bent += usize::from(region.polygon.points().len() > 4);
        }
    }
    assert!((500..1000).contains(&words), "{words}");
    assert!((10..60).contains(&ignored) && (40..180).contains(&bent) && (1..20).contains(&empty));
}

/// A network that gave exactly its targets would score 1, or nearly so.
#[test]
fn true_maps_give_the_words_back() {
    let set = scenes(100);
    for (shape, least) in [(settings::TextShape::Box, 0.98), (settings::TextShape::Polygon, 0.98)] {
        let config = settings::TextDetection { min_side: 2.0, shape, ..Default::default() };
        let counts: Counts = (0..set.len())
            .map(|index| {
                let (image, regions) = set.load(index).unwrap();
                let targets = TextTargets::new(image.size(), &regions, &Default::default());
                let found = detect(&targets.shrink, image.size(), &config);
                let polygons: Vec<_> = found.into_iter().map(|found| found.polygon).collect();
                compare(&regions, &polygons)
            })
            .sum();
        let score = counts.score();
        println!("{shape:?}: {score:?} of {counts:?}");
        assert!(score.hmean >= least, "{shape:?}: {score:?}");
    }
}

#[test]
fn batches_do_not_depend_on_threads() {
    let of_threads = |threads: usize| {
        let augment = TextAugment {
            size: Size::square(96),
            settings: settings::TextPreparation { scale: [0.7, 1.4], ..Default::default() },
        };
        let training = TextTraining::new(Arc::new(scenes(8)), augment).unwrap();
        let config = LoaderConfig { batch: 3, shuffle: true, threads, ..Default::default() };
        let loader = SampleLoader::new(training, config).unwrap();
        loader.epoch(1, 0).unwrap().collect::<Result<Vec<_>, _>>().unwrap()
    };
    let batches = of_threads(1);
    assert_eq!(batches.iter().map(Vec::len).sum::<usize>(), 8);
    assert!(batches == of_threads(3));
    assert!(batches.iter().flatten().any(|example| example.targets.shrink.values().contains(&1.0)));
}

#[test]
fn impossible_settings_are_refused() {
    let good = settings::TextScenes::default;
    for bad in [
        settings::TextScenes { size: settings::ImageSize::Square(8), ..good() },
        settings::TextScenes { words: [3, 1], ..good() },
        settings::TextScenes { font: [20.0, 10.0], ..good() },
        settings::TextScenes { bent: 1.2, ..good() },
        settings::TextScenes { noise: [0.0, f64::NAN], ..good() },
    ] {
        assert!(matches!(TextScenes::new(&bad, 0, 1), Err(DataError::Config(_))), "{bad:?}");
    }
    let none: Arc<dyn Annotated<Vec<TextRegion>>> = Arc::new(scenes(0));
    let augment = |settings| TextAugment { size: Size::square(640), settings };
    assert!(TextTraining::new(none, augment(settings::TextPreparation::default())).is_err());
    let wrong = augment(settings::TextPreparation { rotation: [5.0, -5.0], ..Default::default() });
    assert!(TextTraining::new(Arc::new(scenes(1)), wrong).is_err());
}
