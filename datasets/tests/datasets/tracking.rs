//! Videos, pairs and the tracker together: determinism and balance.

use std::convert::Infallible;
use std::sync::Arc;

use rayon::prelude::*;
use zoo_datasets::hash::{fnv1a64, h};
use zoo_datasets::tracking::{
    Outcome, PairConfig, Pairs, TargetBox, Tracker, TrackerConfig, VideoDataset, Videos, accuracy, mask_iou,
    run_supervised,
};
use zoo_datasets::{DataError, Image, LoaderConfig, OnError, SampleLoader, Samples};
use zoo_settings as settings;

fn videos(len: usize) -> Videos {
    Videos::new(&settings::Videos::default(), 0, len).unwrap()
}

/// Recorded when the set was made: a change of any pixel changes what targets mean.
#[test]
fn pixels_never_change() {
    let set = videos(3);
    let frames = (0..3).flat_map(|video| [0, 7, 19].map(|frame| set.render(video, frame)));
    let hash = frames.fold(0, |all, frame| {
        let mask = frame.mask.unwrap().values().iter().map(|&v| u8::from(v)).collect::<Vec<u8>>();
        h(&format!("{all:x}"), fnv1a64(frame.image.pixels()) ^ fnv1a64(&mask))
    });
    assert_eq!(format!("{hash:016x}"), "9f92bfa9e6a7d5ed");
}

#[test]
fn a_frame_is_a_function_of_seed_video_and_number() {
    let (whole, part) = (videos(10), Videos::new(&settings::Videos::default(), 8, 2).unwrap());
    assert_eq!(whole.frame(9, 4).unwrap(), part.frame(1, 4).unwrap());
    assert_ne!(whole.frame(9, 4).unwrap(), whole.frame(9, 5).unwrap());
    let other = Videos::new(&settings::Videos { seed: 1, ..Default::default() }, 8, 2).unwrap();
    assert_ne!(part.frame(0, 0).unwrap(), other.frame(0, 0).unwrap());
}

#[test]
fn targets_move_change_and_stay_in_sight() {
    let set = videos(40);
    let (mut moved, mut changed, mut hidden) = (0, 0, 0);
    for video in 0..set.len() {
        let frames: Vec<_> = (0..20).map(|t| set.render(video, t)).collect();
        let targets: Vec<TargetBox> = frames.iter().filter_map(|frame| frame.target).collect();
        assert!(targets.len() >= 18, "{}: seen in {} frames", set.name(video), targets.len());
        let (first, last) = (targets[0], targets[targets.len() - 1]);
        moved += usize::from(first.iou(&last) < 0.3);
        changed += usize::from((first.width * first.height / (last.width * last.height) - 1.0).abs() > 0.1);
        let areas = frames.iter().map(|frame| frame.mask.as_ref().unwrap().count());
        hidden += usize::from(areas.clone().min().unwrap() * 3 < areas.max().unwrap() * 2);
    }
    assert!(moved > 8 && changed > 12 && hidden > 3, "{moved} {changed} {hidden}");
}

#[test]
fn pairs_have_their_shapes_and_do_not_depend_on_threads() {
    let pairs = Pairs::new(Arc::new(videos(12)), PairConfig::default(), 48).unwrap();
    let of_threads = |threads: usize| -> Vec<_> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| (0..48).into_par_iter().map(|i| pairs.sample(5, 1, i).unwrap()).collect())
    };
    let all = of_threads(1);
    assert!(all == of_threads(3));
    assert_ne!(all[0], pairs.sample(5, 2, 0).unwrap());
    let mut negative = 0;
    for pair in &all {
        assert_eq!((pair.template.len(), pair.search.len()), (3 * 127 * 127, 3 * 255 * 255));
        assert_eq!((pair.labels.class.len(), pair.labels.delta.len()), (3125, 4 * 3125));
        assert_eq!((pair.mask.len(), pair.mask_weight.len()), (255 * 255, 625));
        let positives = pair.labels.class.iter().filter(|&&c| c == 1.0).count();
        match pair.target {
            Some(target) => {
                assert!((1..=16).contains(&positives), "{positives} {target:?}");
                let inside = |x: f64| (0.0..255.0).contains(&x);
                assert!(inside(target.centre.x) && inside(target.centre.y));
                assert!(pair.mask.contains(&1.0));
            }
            None => {
                negative += 1;
                assert!(positives == 0 && !pair.mask.contains(&1.0) && pair.mask_weight.iter().all(|&w| w == 0.0));
            }
        }
    }
    assert!((4..=16).contains(&negative), "{negative}");
}

#[test]
fn batches_of_pairs_come_in_an_order_of_their_own() {
    let of_threads = |threads: usize| {
        let pairs = Pairs::new(Arc::new(videos(6)), PairConfig::default(), 10).unwrap();
        let config = LoaderConfig { batch: 4, shuffle: true, threads, seed: 9, ..Default::default() };
        let loader = SampleLoader::new(pairs, config).unwrap();
        assert_eq!(loader.batches_per_epoch(), 3);
        loader.epoch(2, 1).unwrap().collect::<Result<Vec<_>, _>>().unwrap()
    };
    let batches = of_threads(1);
    assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [4, 2]);
    assert!(batches == of_threads(3));
}

/// Every third sample is unusable.
struct Holes;

impl Samples for Holes {
    type Sample = usize;

    fn len(&self) -> usize {
        9
    }

    fn sample(&self, _seed: u64, _epoch: u64, index: usize) -> Result<usize, DataError> {
        if index.is_multiple_of(3) { Err(DataError::Config(format!("hole {index}"))) } else { Ok(index) }
    }
}

#[test]
fn unusable_samples_stop_are_left_out_or_replaced() {
    let load = |on_error, drop_last| {
        let config = LoaderConfig { batch: 3, on_error, drop_last, ..Default::default() };
        let loader = SampleLoader::new(Holes, config).unwrap();
        let batches = loader.epoch(0, 0).unwrap().collect::<Result<Vec<_>, _>>();
        (batches, loader.skipped())
    };
    assert!(matches!(load(OnError::Fail, false).0, Err(DataError::Config(hole)) if hole == "hole 0"));
    let (batches, skipped) = load(OnError::Skip, false);
    assert_eq!((batches.unwrap(), skipped), (vec![vec![1, 2], vec![4, 5], vec![7, 8]], 3));
    let (batches, _) = load(OnError::Skip, true);
    assert!(batches.unwrap().iter().all(|batch| batch.len() == 3 && batch.iter().all(|i| i % 3 != 0)));
}

#[test]
fn channels_are_put_into_their_order() {
    let of = |channels, permute| {
        let settings = settings::PairPreparation { permute, grey: 0.0, negative: 0.0, ..Default::default() };
        let config = PairConfig { channels, settings, ..Default::default() };
        Pairs::new(Arc::new(videos(2)), config, 2).unwrap().sample(0, 0, 0).unwrap()
    };
    let (rgb, bgr) = (of(zoo_settings::ChannelOrder::Rgb, 0.0), of(zoo_settings::ChannelOrder::Bgr, 0.0));
    let area = 255 * 255;
    assert_eq!(rgb.search[..area], bgr.search[2 * area..]);
    assert_eq!(rgb.search[area..2 * area], bgr.search[area..2 * area]);
}

#[test]
fn impossible_settings_are_refused() {
    let sound = PairConfig::default();
    for config in [
        PairConfig { template: 0, ..sound.clone() },
        PairConfig { settings: settings::PairPreparation { negative: 1.5, ..Default::default() }, ..sound.clone() },
        PairConfig { grid: 0, ..sound.clone() },
    ] {
        assert!(matches!(Pairs::new(Arc::new(videos(2)), config, 2), Err(DataError::Config(_))));
    }
    assert!(matches!(Pairs::new(Arc::new(videos(0)), sound, 2), Err(DataError::Config(_))));
    let good = settings::Videos::default;
    for bad in [
        settings::Videos { frames: 0, ..good() },
        settings::Videos { size: 8, ..good() },
        settings::Videos { radius: [9.0, 3.0], ..good() },
        settings::Videos { waves: 0.9, ..good() },
        settings::Videos { speed: [0.0, f64::NAN], ..good() },
    ] {
        assert!(matches!(Videos::new(&bad, 0, 1), Err(DataError::Config(_))), "{bad:?}");
    }
}

/// A network that knows the truth: it is certain of the anchor that fits best, and of its box and mask.
fn oracle(config: &TrackerConfig, window_target: &TargetBox) -> (Vec<f32>, Vec<f32>) {
    use zoo_datasets::tracking::Anchors;
    let anchors = Anchors::new(&config.anchors, config.grid(), 127.0);
    let n = anchors.len();
    let best =
        (0..n).max_by(|&a, &b| anchors.anchor(a).iou(window_target).total_cmp(&anchors.anchor(b).iou(window_target)));
    let mut class = vec![0.0; 2 * n];
    let mut boxes = vec![0.0; 4 * n];
    let best = best.unwrap();
    class[..n].fill(9.0);
    class[n + best] = 18.0;
    let anchor = anchors.anchor(best);
    boxes[best] = ((window_target.centre.x - anchor.centre.x) / anchor.width) as f32;
    boxes[n + best] = ((window_target.centre.y - anchor.centre.y) / anchor.height) as f32;
    boxes[2 * n + best] = (window_target.width / anchor.width).ln() as f32;
    boxes[3 * n + best] = (window_target.height / anchor.height).ln() as f32;
    (class, boxes)
}

/// The tracker keeps every target when the network makes no mistake.
#[test]
fn a_perfect_network_keeps_its_target() {
    let set = videos(10);
    let config = TrackerConfig::default();
    let mut results = Vec::new();
    for video in 0..set.len() {
        let frames: Vec<_> = (0..20).map(|t| set.render(video, t)).collect();
        if frames.iter().any(|frame| frame.target.is_none()) {
            continue;
        }
        let truth: Vec<_> = frames.iter().map(|frame| frame.target.unwrap()).collect();
        let regions: Vec<_> = truth.iter().map(TargetBox::polygon).collect();
        let mut tracker: Option<Tracker> = None;
        let size = frames[0].image.size();
        let result = run_supervised(&regions, size, |number, start| {
            let image: &Image = &frames[number].image;
            if let Some(target) = start {
                tracker = Some(Tracker::new(config.clone(), image, target));
                return Ok::<_, Infallible>(target.polygon());
            }
            let tracker = tracker.as_mut().unwrap();
            let (_, window) = tracker.search(image);
            let seen = window.to_search(&truth[number], config.search);
            let (class, boxes) = oracle(&config, &seen);
            let choice = tracker.choose(&window, &class, &boxes);
            Ok(tracker.follow(&window, &choice, None, size).outline)
        });
        results.push(result.unwrap());
    }
    assert!(results.len() > 5);
    assert!(results.iter().all(|result| !result.outcomes.contains(&Outcome::Lost)));
    let overlap = accuracy(&results).unwrap();
    assert!(overlap > 0.75, "{overlap}");
}

#[test]
fn masks_of_the_same_frame_agree_with_themselves() {
    let mask = videos(1).render(0, 3).mask.unwrap();
    assert_eq!(mask_iou(&mask, &mask), 1.0);
}
