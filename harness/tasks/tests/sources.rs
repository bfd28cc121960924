//! Data in folders, as recipes name them or in their place.

use std::{
    fs,
    path::{Path, PathBuf},
};

use zoo_datasets::{Image, LoaderConfig, Size, image::write_png};
use zoo_recipe::{Library, LoadOptions, Recipe};
use zoo_tasks::{DataSets, Element, Input, open};

/// An empty folder.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sources").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A recipe, or one for tests, with other settings.
fn recipe(name: &str, sets: &[String]) -> Recipe {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let folders = ["recipes", "tests/fixtures/recipes"].map(|folder| Path::new(root).join(folder));
    Library::new(folders).load(name, &LoadOptions { profile: None, sets: sets.to_vec() }).unwrap().recipe
}

fn picture(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut image = Image::filled(Size::new(100, 80), [0; 3]);
    image.pixels_mut()[3 * (30 * 100 + 30)..][..60].fill(255);
    write_png(&image, path).unwrap();
}

fn error(opened: Result<DataSets, zoo_tasks::InputError>) -> String {
    opened.err().expect("an error").to_string()
}

#[test]
fn image_folders_have_the_same_classes_in_the_order_of_their_list() {
    let root = folder("classes");
    for path in ["seen/a/1.png", "seen/b/2.png", "kept/a/3.png", "kept/b/4.png", "train/b/5.png", "val/b/6.png"] {
        picture(&root.join(path));
    }
    let source = |classes: &str| {
        let keys = format!("root: {}, train: seen, val: kept{classes}", root.display());
        recipe("resnet50", &[format!("data.source={{image_folder: {{{keys}}}}}")])
    };
    fs::write(root.join("classes.txt"), "b\na\n").unwrap();
    let (sorted, listed) = (source(""), source(", classes_from: classes.txt"));
    assert_eq!(open(&sorted, None).unwrap().samples.classes(), ["a", "b"]);
    assert_eq!(open(&listed, None).unwrap().samples.classes(), ["b", "a"]);
    // The list is not forgotten in another folder: there it has a class without folder.
    assert_eq!(open(&sorted, Some(&root)).unwrap().samples.classes(), ["b"]);
    assert!(error(open(&listed, Some(&root))).contains("classes.txt:2: "));
    fs::remove_dir_all(root.join("kept/a")).unwrap();
    for recipe in [&sorted, &listed] {
        assert!(error(open(recipe, None)).ends_with("class 'a' is only in seen/"));
    }
}

#[test]
fn no_target_is_judged_on_the_videos_of_the_training() {
    let root = folder("videos");
    for frame in ["00000.png", "00001.png", "00002.png"] {
        for part in ["JPEGImages", "Annotations"] {
            picture(&root.join(part).join("480p/v").join(frame));
        }
    }
    let input =
        |(name, shape): (&str, &[usize])| Input { name: name.into(), shape: shape.to_vec(), element: Element::Real };
    let inputs = [
        ("template", &[3, 31, 31][..]),
        ("search", &[3, 63, 63]),
        ("label_cls", &[5, 5, 5]),
        ("label_loc", &[4, 5, 5, 5]),
        ("label_loc_weight", &[5, 5, 5]),
        ("label_mask", &[1, 63, 63]),
        ("label_mask_weight", &[1, 5, 5]),
    ]
    .map(input);
    let fed = |recipe: &Recipe, data: Option<&Path>| {
        let config = LoaderConfig { batch: 1, ..LoaderConfig::default() };
        open(recipe, data)?.samples.feed(recipe, &inputs, config).map(|_| ())
    };
    let aiming = recipe("tiny_track", &["target={metric: mask_iou, value: 0.5}".to_owned()]);
    let refused = fed(&aiming, Some(&root)).unwrap_err().to_string();
    assert!(refused.contains("training and evaluation use the same videos"), "{refused}");
    // Generated videos are divided, and without a target nothing is judged.
    fed(&aiming, None).unwrap();
    fed(&recipe("tiny_track", &[]), Some(&root)).unwrap();
}
