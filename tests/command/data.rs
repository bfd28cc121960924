//! `data make` and `data inspect`.

use crate::workbench::{command, said};
use std::fs;
use std::path::Path;

const TINY: &[&str] = &["tiny", "--recipes", "tests/fixtures/recipes"];

/// Copies of a real picture as `DIR/SPLIT/CLASS/N.png`.
pub fn pictures(dir: &Path) {
    let picture = crate::workbench::root().join("golden/preprocess/images/m2_shapes_97x61.png");
    for (split, class, n) in [("train", "a", 20), ("train", "b", 20), ("val", "a", 4), ("val", "b", 4)] {
        let folder = dir.join(split).join(class);
        fs::create_dir_all(&folder).unwrap();
        for i in 0..n {
            fs::copy(&picture, folder.join(format!("{i}.png"))).unwrap();
        }
    }
}

#[test]
fn a_contact_sheet_is_a_png() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sheet.png");
    let made =
        said(command().args(["data", "make"]).args(TINY).args(["--rows", "2", "--columns", "3", "-o"]).arg(&file));
    assert!(made.expect(0).out.contains("6 images"));
    assert!(fs::read(&file).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn a_data_set_is_counted_and_measured() {
    let json = said(command().args(["data", "inspect", "--format", "json"]).args(TINY)).expect(0).json();
    let train = &json["splits"][0];
    assert_eq!((&train["name"], &train["samples"]), (&"train".into(), &96.into()));
    assert_eq!(train["width"], serde_json::json!([16, 16]));
    let counts = train["classes"].as_array().unwrap().iter().map(|class| class[1].as_u64().unwrap());
    assert_eq!(counts.sum::<u64>(), 96);
    assert!(train["mean"].as_array().unwrap().iter().all(|mean| (0.2..0.8).contains(&mean.as_f64().unwrap())));
}

#[test]
fn broken_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    pictures(dir.path());
    let inspect = || said(command().args(["data", "inspect"]).args(TINY).arg("--data").arg(dir.path()));
    let whole = inspect().expect(0);
    assert!(whole.out.contains("97x61"), "{}", whole.out);
    let broken = dir.path().join("train/b/7.png");
    fs::write(&broken, b"\x89PNG\r\n\x1a\nnot really").unwrap();
    let found = inspect().expect(3);
    assert!(found.out.contains("train/b/7.png"), "{}", found.out);
}

#[test]
fn data_that_are_not_there_are_missing() {
    let absent = said(command().args(["data", "inspect", "resnet50"])).expect(3);
    assert!(absent.err.contains("data/imagenet/train: not found"), "{}", absent.err);
    assert!(absent.err.contains("Download: https://image-net.org/download.php"), "{}", absent.err);
    assert!(absent.err.contains("Use --data PATH"), "{}", absent.err);
    // Where the user named the place: what was expected there, and where to get it.
    let dir = tempfile::tempdir().unwrap();
    let named = |recipe: &str, folder: &std::path::Path| {
        said(command().args(["data", "inspect", recipe, "--data"]).arg(folder)).expect(3).err
    };
    let none = named("gpt_shakespeare", &dir.path().join("none"));
    let expected = "none: not found. Expected a text file, or a folder with text files (*.txt). Download: https://";
    assert!(none.contains(expected), "{none}");
    for (recipe, layout, download) in [
        ("resnet8_tiny", "train/CLASS/* with val/CLASS/*", "https://www.cs.toronto.edu/"),
        ("db_resnet", "train_images with train_gts", "https://github.com/cs-chan/Total-Text-Dataset"),
        ("siammask", "VIDEO/groundtruth.txt", "https://github.com/foolwood/SiamMask"),
    ] {
        let empty = named(recipe, dir.path());
        for part in ["no known layout. Expected", layout, "Found nothing. Download: ", download] {
            assert!(empty.contains(part), "{empty}");
        }
        assert!(!empty.contains("Use --data"), "{empty}");
    }
}
