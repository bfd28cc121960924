//! The generated set: determinism, balance, and how hard it is.

use std::sync::Arc;

use zoo_datasets::hash::{fnv1a64, h};
use zoo_datasets::{
    Cached, Characters, DataError, Dataset, Image, OnError, Rng, Size, contact_sheet, linear_baseline,
    linear_baseline_samples,
};
use zoo_settings as settings;

/// Lengths are whole pixels of an image of 64.
fn settings() -> settings::Characters {
    settings::Characters { font: [38.0 / 64.0, 56.0 / 64.0], shift: 5.0 / 64.0, ..Default::default() }
}

fn digits(first: u64, len: usize) -> Characters {
    Characters::new(&settings(), first, len).unwrap()
}

/// Recorded when the set was made: a change of any pixel changes what goldens and targets mean.
#[test]
fn pixels_never_change() {
    let hash = |set: &Characters| {
        let images = (0..set.len()).map(|i| fnv1a64(set.image(i).unwrap().pixels()));
        images.fold(0, |all, one| h(&format!("{all:x}"), one))
    };
    let alphanumeric = settings::Characters { classes: 36, size: 33, seed: 7, ..settings() };
    let small = Characters::new(&alphanumeric, 0, 72).unwrap();
    let found = [digits(0, 40), digits(Characters::HELD_OUT, 40), small].map(|set| format!("{:016x}", hash(&set)));
    assert_eq!(found, ["fe2bb41d667c4fb6", "12d6e2abc1364c9f", "0cc17fa6e609cac8"]);
}

#[test]
fn a_sample_is_a_function_of_seed_and_number() {
    let (whole, part) = (digits(0, 100), digits(90, 10));
    for i in 0..10 {
        assert_eq!(whole.image(90 + i).unwrap(), part.image(i).unwrap());
        assert_eq!(whole.label(90 + i), part.label(i));
    }
    let other = Characters::new(&settings::Characters { seed: 1, ..settings() }, 0, 1).unwrap();
    assert_ne!(whole.image(0).unwrap(), other.image(0).unwrap());
}

#[test]
fn classes_are_balanced_and_complete() {
    for classes in [10, 20, 36] {
        let set = Characters::new(&settings::Characters { classes, ..settings() }, 0, 2 * classes).unwrap();
        assert_eq!(set.classes().len(), classes);
        let mut labels: Vec<u32> = (0..set.len()).map(|i| set.label(i)).collect();
        labels.sort_unstable();
        assert_eq!(labels, (0..2 * classes).map(|i| i as u32 / 2).collect::<Vec<_>>());
    }
    assert_eq!(digits(0, 1).classes()[7], "7");
}

#[test]
fn a_linear_classifier_stays_near_chance() {
    let (train, val) = (Cached::new(Arc::new(digits(0, 3000)), usize::MAX), digits(Characters::HELD_OUT, 1000));
    let accuracy = linear_baseline(&train, &val, Size::square(64), OnError::Fail, &mut |_, _| ()).unwrap();
    assert!((0.08..0.20).contains(&accuracy), "{accuracy}");
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let again =
        one_thread.install(|| linear_baseline(&train, &val, Size::square(64), OnError::Fail, &mut |_, _| ()).unwrap());
    assert_eq!(accuracy, again);
}

/// Images that a linear classifier tells apart, so that a baseline near chance is no accident of a broken one.
struct Shades(Vec<String>);

impl Dataset for Shades {
    fn len(&self) -> usize {
        300
    }

    fn classes(&self) -> &[String] {
        &self.0
    }

    fn label(&self, index: usize) -> u32 {
        index as u32 % 3
    }

    fn name(&self, index: usize) -> String {
        format!("shade {index}")
    }

    fn image_size(&self) -> Option<Size> {
        Some(Size::square(8))
    }

    fn source(&self, index: usize) -> Result<zoo_datasets::Source<'_>, DataError> {
        let mut rng = Rng::new(0, 0, index as u64);
        let mut image = Image::filled(Size::square(8), [100; 3]);
        for pixel in image.pixels_mut().chunks_exact_mut(3) {
            pixel[index % 3] = (100.0 + rng.uniform(-20.0, 60.0)) as u8;
        }
        Ok(zoo_datasets::Source::Decoded(image))
    }
}

#[test]
fn the_baseline_learns_what_is_linear() {
    let shades = Shades(["r", "g", "b"].map(str::to_owned).to_vec());
    assert!(linear_baseline(&shades, &shades, Size::square(8), OnError::Fail, &mut |_, _| ()).unwrap() > 0.99);
}

/// Multiplications are bounded, so that many classes or pixels do not take minutes.
#[test]
fn the_baseline_samples_what_would_take_too_long() {
    let shades = Shades(["r", "g", "b"].map(str::to_owned).to_vec());
    let used = |side| linear_baseline_samples(&shades, &shades, Size::square(side));
    assert_eq!((used(8), used(8192)), ([300; 2], [100; 2]));
    let [train, val] = used(2048);
    assert!(train == val && (200..300).contains(&train), "{train}");
    let many = Shades((0..10_000).map(|class| class.to_string()).collect());
    assert_eq!(linear_baseline_samples(&many, &many, Size::square(64)), [100; 2]);
}

#[test]
fn impossible_configurations_are_refused() {
    for bad in [
        settings::Characters { classes: 37, ..settings() },
        settings::Characters { size: 0, ..settings() },
        settings::Characters { size: 1 << 20, ..settings() },
        settings::Characters { font: [0.8, 0.6], ..settings() },
        settings::Characters { blur: [-1.0, 1.0], ..settings() },
        settings::Characters { rotation: f64::NAN, ..settings() },
        settings::Characters { noise: [0.0, f64::INFINITY], ..settings() },
    ] {
        assert!(matches!(Characters::new(&bad, 0, 1), Err(DataError::Config(_))), "{bad:?}");
    }
}

#[test]
fn a_contact_sheet_shows_images_side_by_side() {
    let set = digits(0, 5);
    let sheet = contact_sheet(&set, 2, 3).unwrap();
    assert_eq!(sheet.size(), Size::new(3 * 65 + 1, 2 * 65 + 1));
    let second = zoo_datasets::Rect::new(66, 1, 64, 64);
    assert_eq!(sheet.crop(second).unwrap(), set.image(1).unwrap());
    assert!(contact_sheet(&set, 0, 3).is_err());
}
