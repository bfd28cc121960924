//! `data make`, `data sheet` and `data inspect`.

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
        said(command().args(["data", "sheet"]).args(TINY).args(["--rows", "2", "--columns", "3", "-o"]).arg(&file));
    assert!(made.expect(0).out.contains("6 images"));
    assert!(fs::read(&file).unwrap().starts_with(b"\x89PNG"));
}

/// The shape in the header of an array, and the number of its bytes.
fn array(path: &Path) -> (String, usize) {
    let bytes = fs::read(path).unwrap();
    let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]])) + 10;
    let header = String::from_utf8(bytes[10..length].to_vec()).unwrap();
    let shape = header.split_once("'shape': ").unwrap().1.split_once(", }").unwrap().0;
    (shape.to_owned(), bytes.len() - length)
}

#[test]
fn what_a_training_reads_is_written_as_arrays() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("made");
    let make = || said(command().args(["data", "make"]).args(TINY).args(["--steps", "3", "-o"]).arg(&folder));
    let made = make().expect(0);
    assert!(made.out.contains("3 steps of 16 samples, 40 held-out samples, of generated characters"), "{}", made.out);
    assert_eq!(array(&folder.join("train/image.npy")), ("(48, 3, 16, 16)".to_owned(), 4 * 48 * 3 * 16 * 16));
    assert_eq!(array(&folder.join("train/label.npy")), ("(48,)".to_owned(), 8 * 48));
    assert_eq!(array(&folder.join("held_out/image.npy")).0, "(40, 3, 16, 16)");
    assert_eq!(array(&folder.join("held_out/label.npy")).0, "(40,)");
    assert!(folder.join("weights.pth").is_file());
    let about: serde_json::Value = serde_json::from_slice(&fs::read(folder.join("data.json")).unwrap()).unwrap();
    assert_eq!((&about["steps"], &about["written"], &about["batch"]), (&12.into(), &3.into(), &16.into()));
    assert!(make().expect(2).err.contains("the folder is not empty"));
}

/// The file of an array of rows.
fn rows(path: &Path, width: usize, values: &[f32]) {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {width}), }}", values.len() / width);
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16 + 1).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.push(b'\n');
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    fs::write(path, bytes).unwrap();
}

/// Outputs that name the label of every held-out sample are all right; others are scored as they are.
#[test]
fn predictions_of_other_programs_are_scored() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("made");
    said(command().args(["data", "make"]).args(TINY).args(["--steps", "1", "-o"]).arg(&folder)).expect(0);
    let labels = fs::read(folder.join("held_out/label.npy")).unwrap();
    let labels = labels[labels.len() - 8 * 40..].chunks(8).map(|label| usize::from(label[0]));
    let mut logits: Vec<f32> = labels.flat_map(|label| (0..10).map(move |class| f32::from(class == label))).collect();
    let name = "logits";
    let score =
        |found: &Path| said(command().args(["eval", "--format", "json"]).args(TINY).arg("--predictions").arg(found));
    let found = dir.path().join("found");
    fs::create_dir(&found).unwrap();
    assert!(score(&found).expect(3).err.contains("there is no "));
    rows(&found.join(format!("{name}.npy")), 10, &logits);
    let whole = score(&found).expect(0).json();
    assert_eq!((&whole["scores"]["top1"], &whole["samples"]), (&1.0.into(), &40.into()));
    logits[..100].fill(0.0);
    logits.truncate(390);
    rows(&found.join(format!("{name}.npy")), 10, &logits);
    assert!(score(&found).expect(2).err.contains("fewer rows"), "39 of 40");
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
