//! Folders of annotated text, sound and broken.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use zoo_datasets::image::write_png;
use zoo_datasets::text::{TextAugment, TextTargets};
use zoo_datasets::{Annotated, DataError, Image, OnError, Part, Rng, Size, TextFolder, TextFormat};

/// A folder with `images/NAME.png` and `gts/gt_NAME.txt`.
fn folder(files: &[(&str, Option<&str>)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for part in ["images", "gts"] {
        fs::create_dir(dir.path().join(part)).unwrap();
    }
    for (name, annotation) in files {
        let image = Image::filled(Size::new(60, 40), [90; 3]);
        write_png(&image, &dir.path().join(format!("images/{name}.png"))).unwrap();
        if let Some(lines) = annotation {
            fs::write(dir.path().join(format!("gts/gt_{name}.txt")), lines).unwrap();
        }
    }
    dir
}

fn open(root: &Path, on_error: OnError) -> Result<TextFolder, DataError> {
    TextFolder::open_root(root, Part::Train, TextFormat::Icdar2015, on_error)
}

const SOUND: &str = "\u{feff}5,5,45,5,45,25,5,25,word\r\n";

#[test]
fn an_image_without_text_is_sound() {
    let dir = folder(&[("a", Some(SOUND)), ("b", Some("")), ("c", Some("\u{feff}\r\n"))]);
    let set = open(dir.path(), OnError::Fail).unwrap();
    assert_eq!((set.len(), set.skipped()), (3, 0));
    let texts: Vec<usize> = (0..3).map(|i| set.load(i).unwrap().1.len()).collect();
    assert_eq!(texts, [1, 0, 0]);
    // It goes through augmentation and targets like any other.
    let (image, regions) = set.load(1).unwrap();
    let augment = TextAugment { size: Size::square(32), settings: Default::default() };
    let sample = augment.apply(&image, &regions, &mut Rng::new(0, 0, 0));
    let targets = TextTargets::new(sample.image.size(), &sample.regions, &Default::default());
    assert!(targets.shrink.values().iter().all(|&v| v == 0.0));
}

#[test]
fn defects_are_named_with_file_and_line_or_counted() {
    let wrong_line = format!("{SOUND}1,2,3\r\n");
    let crossed = format!("{SOUND}\r\n5,5,45,25,45,5,5,25,crossed\r\n");
    let cases = [
        ("a", Some(wrong_line.as_str()), "gts/gt_a.txt:2: 3 fields", (2, 1)),
        ("a", Some(crossed.as_str()), "gts/gt_a.txt:3: the polygon crosses itself", (2, 1)),
        ("a", None, "images/a.png: no annotation", (1, 1)),
    ];
    for (name, annotation, message, (images, skipped)) in cases {
        let dir = folder(&[(name, annotation), ("sound", Some(SOUND))]);
        let error = open(dir.path(), OnError::Fail).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        let set = open(dir.path(), OnError::Skip).unwrap();
        assert_eq!((set.len(), set.skipped()), (images, skipped), "{message}");
    }
}

/// As in the original, whose `MakeICDARData` sets the tag of polygons without an area.
#[test]
fn the_area_of_a_line_that_is_left_out_is_ignored() {
    let dir =
        folder(&[("a", Some("5,5,45,25,45,5,5,25,crossed\r\n5,30,25,30,25,38,5,38\r\n50,5,50,5,50,9,50,9,none\r\n"))]);
    let set = open(dir.path(), OnError::Skip).unwrap();
    let (image, regions) = set.load(0).unwrap();
    assert_eq!((set.skipped(), regions.len()), (3, 3));
    assert!(regions.iter().all(|region| region.ignore));
    let targets = TextTargets::new(image.size(), &regions, &Default::default());
    assert_eq!(targets.ignored, [true; 3]);
    let learnt = |x: isize, y: isize| targets.shrink_mask.get(x, y) == Some(1.0);
    // Both triangles, but not what is above them; the text without transcription; the line without area.
    assert!(!learnt(8, 15) && !learnt(42, 15) && learnt(25, 7) && !learnt(15, 34) && !learnt(50, 7));
    assert!(targets.shrink.values().iter().all(|&value| value == 0.0));
    let augment = TextAugment { size: Size::square(32), settings: Default::default() };
    (0..9).for_each(|seed| _ = augment.apply(&image, &regions, &mut Rng::new(seed, 0, 0)));
}

#[test]
fn text_outside_the_image_is_kept_and_ignored_by_the_targets() {
    let dir = folder(&[("a", Some("500,500,560,500,560,540,500,540,far\n-20,5,20,5,20,25,-20,25,half\n"))]);
    let set = open(dir.path(), OnError::Fail).unwrap();
    let (image, regions) = set.load(0).unwrap();
    let targets = TextTargets::new(image.size(), &regions, &Default::default());
    assert_eq!(targets.ignored, [true, false]);
}

#[test]
fn missing_folders_and_images_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let empty = folder(&[]);
    for (root, reason) in
        [(dir.path(), "no known layout"), (&dir.path().join("none"), "not found"), (empty.path(), "no usable image")]
    {
        let error = open(root, OnError::Skip).unwrap_err();
        assert!(matches!(&error, DataError::Absent { reason: given, .. } if given.contains(reason)), "{error}");
    }
    let broken = folder(&[("a", Some(SOUND))]);
    fs::write(broken.path().join("images/a.png"), "no image").unwrap();
    let error = open(broken.path(), OnError::Fail).unwrap().load(0).unwrap_err();
    assert!(matches!(&error, DataError::Decode { name, .. } if name.ends_with("a.png")), "{error}");
}
