//! Folders of images with label maps.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use zoo_datasets::image::write_png;
use zoo_datasets::segmentation::VOID;
use zoo_datasets::{Annotated, DataError, Image, LabelFolder, OnError, Part, Size};

/// A label map of 3 x 2 pixels as a PNG file with a palette.
fn labels(path: &Path, (width, height): (u32, u32), values: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut encoder = png::Encoder::new(fs::File::create(path).unwrap(), width, height);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(vec![9; 768]);
    encoder.write_header().unwrap().write_image_data(values).unwrap();
}

fn image(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    write_png(&Image::filled(Size::new(3, 2), [7; 3]), path).unwrap();
}

/// Two images to train on and one held out.
fn divided() -> TempDir {
    let dir = TempDir::new().unwrap();
    for (part, name) in [("train", "b"), ("train", "a"), ("val", "c")] {
        image(&dir.path().join(format!("{part}/images/{name}.png")));
        labels(&dir.path().join(format!("{part}/labels/{name}.png")), (3, 2), &[0, 1, 2, 3, VOID, 0]);
    }
    dir
}

fn open(root: &Path, part: Part, on_error: OnError) -> Result<LabelFolder, DataError> {
    LabelFolder::open_root(root, part, 4, on_error)
}

#[test]
fn parts_are_read_in_order() {
    let dir = divided();
    let train = open(dir.path(), Part::Train, OnError::Fail).unwrap();
    assert_eq!((train.len(), train.skipped()), (2, 0));
    assert!(train.name(0).ends_with("a.png") && train.name(1).ends_with("b.png"));
    let (image, map) = train.load(1).unwrap();
    assert_eq!((image.size(), map.values()), (Size::new(3, 2), &[0, 1, 2, 3, VOID, 0][..]));
    assert_eq!(train.classes(), ["0", "1", "2", "3"]);
    fs::write(dir.path().join("classes.txt"), "\u{feff}sky\r\nroad\r\n\r\ncar\r\ntree\r\n").unwrap();
    let val = open(dir.path(), Part::Val, OnError::Fail).unwrap();
    assert_eq!((val.len(), val.classes()[2].as_str()), (1, "car"));
}

#[test]
fn pascal_voc_is_read_by_its_lists() {
    let dir = TempDir::new().unwrap();
    for (name, extension) in [("2007_000032", "jpg"), ("2007_000039", "JPG")] {
        fs::create_dir_all(dir.path().join("JPEGImages")).unwrap();
        // The content decides what a file is.
        image(&dir.path().join("a.png"));
        fs::rename(dir.path().join("a.png"), dir.path().join(format!("JPEGImages/{name}.{extension}"))).unwrap();
        let extension = if extension == "jpg" { "png" } else { "PNG" };
        labels(&dir.path().join(format!("SegmentationClass/{name}.{extension}")), (3, 2), &[1; 6]);
    }
    let lists = dir.path().join("ImageSets/Segmentation");
    fs::create_dir_all(&lists).unwrap();
    fs::write(lists.join("train.txt"), "2007_000032\n").unwrap();
    fs::write(lists.join("val.txt"), "2007_000039\n2007_000040\n").unwrap();
    let train = open(dir.path(), Part::Train, OnError::Fail).unwrap();
    assert_eq!((train.len(), train.classes().len(), train.classes()[20].as_str()), (1, 21, "tvmonitor"));
    assert_eq!(train.load(0).unwrap().1.values(), [1; 6]);
    let missing = open(dir.path(), Part::Val, OnError::Fail).unwrap_err().to_string();
    assert!(missing.contains("2007_000040.jpg"), "{missing}");
    assert_eq!(open(dir.path(), Part::Val, OnError::Skip).unwrap().skipped(), 1);
}

/// Whatever number of classes the caller expects.
#[test]
fn the_data_limit_their_labels() {
    let dir = divided();
    fs::write(dir.path().join("classes.txt"), "sky\nroad\ncar\n").unwrap();
    let load = |root: &Path, classes| {
        LabelFolder::open_root(root, Part::Train, classes, OnError::Fail).and_then(|set| set.load(0))
    };
    // The label 3 in column 0 of row 1.
    let error = load(dir.path(), 21).unwrap_err().to_string();
    assert!(error.contains("label 3 at column 0, row 1 is not below 3, the number of classes"), "{error}");
    fs::write(dir.path().join("classes.txt"), "sky\nroad\ncar\ntree\n").unwrap();
    assert!(load(dir.path(), 2).is_ok());

    let voc = TempDir::new().unwrap();
    image(&voc.path().join("JPEGImages/a.png"));
    fs::rename(voc.path().join("JPEGImages/a.png"), voc.path().join("JPEGImages/a.jpg")).unwrap();
    fs::create_dir_all(voc.path().join("ImageSets/Segmentation")).unwrap();
    fs::write(voc.path().join("ImageSets/Segmentation/train.txt"), "a\n").unwrap();
    for (label, fits) in [(15, true), (20, true), (21, false)] {
        labels(&voc.path().join("SegmentationClass/a.png"), (3, 2), &[label; 6]);
        for classes in [5, 30] {
            assert_eq!(load(voc.path(), classes).is_ok(), fits, "{label}");
        }
    }
}

#[test]
fn what_cannot_be_used_is_named() {
    let dir = divided();
    let path = dir.path().join("train/labels/a.png");
    let error = |path: &Path| {
        let found = open(path, Part::Train, OnError::Fail).and_then(|set| set.load(0).map(|_| ()));
        found.unwrap_err().to_string()
    };
    labels(&path, (2, 3), &[0; 6]);
    assert!(error(dir.path()).ends_with("a.png: a mask of 2x3 pixels for an image of 3x2"), "{}", error(dir.path()));
    labels(&path, (3, 2), &[0, 1, 2, 3, 4, 0]);
    assert!(
        error(dir.path())
            .ends_with("a.png: label 4 at column 1, row 1 is not below 4, the number of classes, nor 255 (no class)"),
        "{}",
        error(dir.path())
    );
    image(&path);
    assert!(error(dir.path()).contains("a.png: Rgb of 8 bits are colours, not classes"), "{}", error(dir.path()));
    fs::write(&path, b"").unwrap();
    assert!(error(dir.path()).contains("a.png: not a PNG file"), "{}", error(dir.path()));
    fs::remove_file(&path).unwrap();
    assert!(error(dir.path()).contains("images/a.png"), "{}", error(dir.path()));
    assert_eq!(open(dir.path(), Part::Train, OnError::Skip).unwrap().skipped(), 1);
    fs::remove_dir_all(dir.path().join("train/labels")).unwrap();
    assert!(error(dir.path()).contains("no known layout. Expected train/images"), "{}", error(dir.path()));
    assert!(
        error(&dir.path().join("nowhere")).contains("nowhere: not found. Expected train/images"),
        "{}",
        error(&dir.path().join("nowhere"))
    );
}

#[test]
fn parts_have_many_names() {
    for (train, val) in [
        ("Training/images Training/masks", "Validation/images Validation/masks"),
        ("images/training annotations/training", "images/validation annotations/validation"),
        ("set/train/img set/train/gt", "set/test/img set/test/gt"),
    ] {
        let dir = TempDir::new().unwrap();
        for (part, number) in [(train, 1), (val, 2)] {
            let (images, maps) = part.split_once(' ').unwrap();
            image(&dir.path().join(format!("{images}/scan.{number}.PNG")));
            labels(&dir.path().join(format!("{maps}/scan.{number}.png")), (3, 2), &[number; 6]);
            labels(&dir.path().join(format!("{maps}/scan.png")), (3, 2), &[0; 6]);
            fs::write(dir.path().join(format!("{images}/._scan.{number}.PNG")), "x").unwrap();
        }
        fs::write(dir.path().join(".DS_Store"), "x").unwrap();
        for (part, label) in [(Part::Train, 1), (Part::Val, 2)] {
            let set = open(dir.path(), part, OnError::Fail).unwrap();
            assert_eq!((set.len(), set.load(0).unwrap().1.values()), (1, &[label; 6][..]), "{train}");
        }
    }
}

#[test]
fn masks_of_other_values_are_classes_by_a_list() {
    let dir = divided();
    let path = dir.path().join("train/labels/a.png");
    let open = |classes, values: &[u8]| {
        let folder = LabelFolder::open_root(dir.path(), Part::Train, classes, OnError::Fail)?;
        folder.with_values(values)
    };
    labels(&path, (3, 2), &[0, 255, 255, 0, 0, 255]);
    assert_eq!(open(2, &[0, 255]).unwrap().load(0).unwrap().1.values(), [0, 1, 1, 0, 0, 1]);
    labels(&path, (3, 2), &[1, 2, 255, 2, 1, 1]);
    assert_eq!(open(2, &[1, 2]).unwrap().load(0).unwrap().1.values(), [0, 1, VOID, 1, 0, 0]);
    labels(&path, (3, 2), &[1, 2, 255, 0, 1, 1]);
    let message = open(2, &[1, 2]).unwrap().load(0).unwrap_err().to_string();
    assert!(
        message
            .ends_with("label 0 at column 0, row 1 is not among the values [1, 2] of the classes, nor 255 (no class)")
    );
    assert!(open(2, &[7, 7]).unwrap_err().to_string().contains("list 7 twice"));
    assert!(open(3, &[0, 1]).unwrap_err().to_string().contains("2 values of label maps for 3 classes"));
}
