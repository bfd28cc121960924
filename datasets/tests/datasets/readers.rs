//! Image folders and data folders of all layouts, sound and broken.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use tempfile::TempDir;
use zoo_datasets::image::write_png;
use zoo_datasets::{Cifar10, DataError, Dataset, Image, ImageFolder, Layout, OnError, Size, open_divided, open_root};

/// Writes a 2x2 image of one grey value.
fn picture(root: &Path, path: &str, grey: u8) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    write_png(&Image::filled(Size::square(2), [grey; 3]), &path).unwrap();
}

fn folder(pictures: &[&str]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (grey, path) in pictures.iter().enumerate() {
        picture(dir.path(), path, grey as u8);
    }
    dir
}

fn error<T>(result: Result<T, DataError>) -> DataError {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error,
    }
}

#[test]
fn samples_are_sorted_bytewise_and_labels_follow_class_names() {
    // Bytewise '-' < '.' < '/' < 'Z' < 'a', so that "a-b/x" comes before "a/x" although "a" < "a-b".
    let dir = folder(&["a/z.png", "a-b/x.PNG", "Z/2.png", "Z/10.png", "a/deep/er/y.png"]);
    let set = ImageFolder::open(dir.path(), OnError::Fail).unwrap();
    assert_eq!(set.classes(), ["Z", "a", "a-b"]);
    let listed: Vec<(&str, u32)> = (0..set.len()).map(|i| (set.relative_path(i), set.label(i))).collect();
    assert_eq!(listed, [("Z/10.png", 0), ("Z/2.png", 0), ("a-b/x.PNG", 2), ("a/deep/er/y.png", 1), ("a/z.png", 1)]);
    assert_eq!(set.image(4).unwrap(), Image::filled(Size::square(2), [0; 3]));
    assert!(set.name(4).ends_with("a/z.png"));
}

#[test]
fn defects_are_named_or_counted() {
    let leftovers =
        [".DS_Store", "Thumbs.db", "a/._1.png", "a/desktop.ini", ".ipynb_checkpoints/1.png", "__MACOSX/a/1.png"];
    let cases = [
        ("a/notes.md", "a/notes.md: not an image"),
        ("readme.png", "readme.png: a file next to the class folders"),
        ("a/noextension", "a/noextension: not an image"),
        ("empty/", "empty: class folder without images"),
    ];
    for (stray, expected) in cases {
        let dir = folder(&["a/1.png", "b/2.png"]);
        leftovers.iter().for_each(|leftover| picture(dir.path(), leftover, 0));
        let path = dir.path().join(stray);
        if stray.ends_with('/') {
            fs::create_dir(&path).unwrap()
        } else {
            fs::write(&path, "x").unwrap()
        }
        let failure = error(ImageFolder::open(dir.path(), OnError::Fail));
        assert!(failure.can_be_left_out() && failure.to_string().contains(expected), "{stray}: {failure}");
        let set = ImageFolder::open(dir.path(), OnError::Skip).unwrap();
        assert_eq!((set.len(), set.skipped(), set.classes().len()), (2, 1, 2), "{stray}");
    }
}

#[test]
fn broken_images_are_found_when_used() {
    let dir = folder(&["a/1.png"]);
    fs::write(dir.path().join("a/2.jpg"), b"\xff\xd8\xff\xd9").unwrap();
    fs::write(dir.path().join("a/3.jpeg"), b"no image").unwrap();
    let set = ImageFolder::open(dir.path(), OnError::Fail).unwrap();
    for (index, file) in [(1, "a/2.jpg"), (2, "a/3.jpeg")] {
        let failure = error(set.image(index));
        assert!(matches!(&failure, DataError::Decode { name, .. } if name.ends_with(file)), "{failure}");
    }
    fs::remove_file(dir.path().join("a/1.png")).unwrap();
    assert!(matches!(error(set.image(0)), DataError::Io { path, .. } if path.ends_with("a/1.png")));
}

#[test]
fn folders_without_classes_are_refused() {
    let dir = folder(&[]);
    let refused = |folder: &Path, reason: &str| {
        let failure = error(ImageFolder::open(folder, OnError::Skip));
        assert!(matches!(&failure, DataError::Absent { reason: given, .. } if given.contains(reason)), "{failure}");
    };
    refused(dir.path(), "no class folders");
    refused(&dir.path().join("x"), "not found");
    fs::create_dir(dir.path().join("only")).unwrap();
    refused(dir.path(), "no class folders");
}

#[cfg(unix)]
#[test]
fn loops_of_links_and_foreign_names_are_refused() {
    use std::os::unix::ffi::OsStrExt;
    let dir = folder(&["a/1.png"]);
    std::os::unix::fs::symlink(dir.path(), dir.path().join("a/loop")).unwrap();
    let failure = error(ImageFolder::open(dir.path(), OnError::Fail));
    assert!(matches!(&failure, DataError::Io { path, .. } if path.ends_with("a/loop")), "{failure}");
    assert_eq!(ImageFolder::open(dir.path(), OnError::Skip).unwrap().skipped(), 1);
    fs::remove_file(dir.path().join("a/loop")).unwrap();
    fs::write(dir.path().join("a").join(std::ffi::OsStr::from_bytes(b"\xff.png")), "x").unwrap();
    let failure = error(ImageFolder::open(dir.path(), OnError::Fail));
    assert!(failure.to_string().contains("the name is not UTF-8"), "{failure}");
}

/// Two links per folder to the next folder: 2^30 paths, 30 folders.
#[cfg(unix)]
#[test]
fn links_do_not_multiply() {
    let dir = folder(&["a/1.png", "b/folders/30/2.png"]);
    let folders = dir.path().join("b/folders");
    for n in 0..30 {
        fs::create_dir_all(folders.join(n.to_string())).unwrap();
        for name in ["x", "y"] {
            std::os::unix::fs::symlink(format!("../{}", n + 1), folders.join(format!("{n}/{name}"))).unwrap();
        }
    }
    let failure = error(ImageFolder::open(dir.path(), OnError::Fail));
    assert!(failure.to_string().contains("a second link to the same folder"), "{failure}");
    assert!(ImageFolder::open(dir.path(), OnError::Skip).unwrap().len() >= 2);
}

#[test]
fn train_and_val_must_have_the_same_classes() {
    let dir = folder(&["train/a/1.png", "train/b/2.png", "val/a/3.png", "val/b/4.png"]);
    let root = open_root(dir.path(), OnError::Fail).unwrap();
    assert_eq!((root.train.len(), root.val.len()), (2, 2));
    assert_eq!(root.train.classes(), root.val.classes());
    picture(dir.path(), "val/c/5.png", 1);
    let failure = error(open_root(dir.path(), OnError::Skip));
    assert!(failure.to_string().ends_with(": class 'c' is only in val/"), "{failure}");
}

/// The class of each sample by its name below the root, and the classes.
fn labelled(set: &dyn Dataset) -> Vec<(String, u32, String)> {
    let end = |name: String| name.rsplit(['/', '\\']).next().unwrap().to_owned();
    let class = |index: usize| set.classes()[set.label(index) as usize].clone();
    (0..set.len()).map(|index| (end(set.name(index)), set.label(index), class(index))).collect()
}

#[test]
fn a_list_gives_the_order_of_classes_in_both_parts() {
    let dir = folder(&["seen/a/1.png", "seen/b/2.png", "seen/c/3.png", "kept/c/4.png", "kept/a/5.png", "kept/b/6.png"]);
    let list = dir.path().join("classes.txt");
    let open = |order: Option<&Path>| {
        open_divided(dir.path(), ["seen", "kept"].map(Path::new), order, OnError::Fail)
            .map(|root| (root.train, root.val))
    };
    let sample = |name: &str, label: u32, class: &str| (name.to_owned(), label, class.to_owned());
    let (train, val) = open(None).unwrap();
    assert_eq!((train.classes(), val.classes()), (&["a", "b", "c"].map(String::from)[..], train.classes()));
    fs::write(&list, "\u{feff}c\r\n\r\n a\r\nb").unwrap();
    let (train, val) = open(Some(&list)).unwrap();
    assert_eq!((train.classes(), val.classes()), (&["c", "a", "b"].map(String::from)[..], train.classes()));
    assert_eq!(labelled(&*train), [sample("1.png", 1, "a"), sample("2.png", 2, "b"), sample("3.png", 0, "c")]);
    assert_eq!(labelled(&*val), [sample("5.png", 1, "a"), sample("6.png", 2, "b"), sample("4.png", 0, "c")]);
    for (content, message) in [
        ("c\n\nd\na\nb\n", "classes.txt:3: "),
        ("c\n\nd\na\nb\n", "seen has no class folder 'd' with images"),
        ("c\na\n", "classes.txt: class 'b' is not listed"),
        ("c\na\nb\n\nc\n", "classes.txt:5: 'c' is also in line 1"),
    ] {
        fs::write(&list, content).unwrap();
        let failure = error(open(Some(&list))).to_string();
        assert!(failure.contains(message), "{failure}");
    }
    fs::remove_file(&list).unwrap();
    assert!(matches!(error(open(Some(&list))), DataError::Io { path, .. } if path == list));
    fs::remove_dir_all(dir.path().join("kept/a")).unwrap();
    assert!(error(open(None)).to_string().ends_with("class 'a' is only in seen/"));
}

#[test]
fn a_folder_of_classes_is_split_by_hash() {
    let paths: Vec<String> = (0..300).map(|i| format!("{}/{i}.png", ["a", "b"][i % 2])).collect();
    let dir = folder(&paths.iter().map(String::as_str).collect::<Vec<_>>());
    let root = open_root(dir.path(), OnError::Fail).unwrap();
    assert_eq!(Layout::of(dir.path()).unwrap(), Layout::Classes(dir.path().to_owned()));
    assert_eq!(root.train.len() + root.val.len(), 300);
    // 300 draws of probability 0.1: mean 30, deviation 5.2.
    assert!((10..=50).contains(&root.val.len()), "{}", root.val.len());
    assert_eq!(root.train.classes(), root.val.classes());
    // Another image moves no other one.
    let names = |set: &dyn Dataset| (0..set.len()).map(|i| set.name(i)).collect::<std::collections::BTreeSet<_>>();
    let before = names(&*root.val);
    picture(dir.path(), "a/new.png", 0);
    assert!(names(&*open_root(dir.path(), OnError::Fail).unwrap().val).is_superset(&before));
    let tiny = folder(&["a/1.png"]);
    let failure = error(open_root(tiny.path(), OnError::Fail));
    assert!(failure.to_string().contains("splitting 1 images by hash leaves no"), "{failure}");
}

#[test]
fn cifar_is_found_in_the_folder_or_below() {
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("cifar-10-batches-bin");
    fs::create_dir(&below).unwrap();
    fs::write(below.join("data_batch_1.bin"), vec![3; 2 * 3073]).unwrap();
    fs::write(below.join("test_batch.bin"), vec![4; 3073]).unwrap();
    for root in [dir.path(), &below] {
        assert_eq!(Layout::of(root).unwrap(), Layout::Cifar10(below.clone()));
        let root = open_root(root, OnError::Fail).unwrap();
        assert_eq!((root.train.len(), root.val.len(), root.val.label(0)), (2, 1, 4));
    }
}

#[test]
fn an_unknown_layout_says_what_was_looked_for() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("labels.csv"), "x").unwrap();
    let message = error(open_root(dir.path(), OnError::Skip)).to_string();
    for part in ["test_batch.bin", "train/CLASS", "val/CLASS", "labels.csv"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(matches!(error(open_root(&dir.path().join("none"), OnError::Skip)), DataError::Absent { .. }));
    let packed = dir.path().join("set.tar.gz");
    fs::write(&packed, "x").unwrap();
    assert!(error(open_root(&packed, OnError::Fail)).to_string().contains("unpack it first"));
}

#[test]
fn parts_and_classes_are_found_under_many_names() {
    let divided = |root: &str, train: &str, val: &str| (root.to_owned(), train.to_owned(), val.to_owned());
    for (parts, expected) in [
        (["train", "val"], divided("", "train", "val")),
        (["Train", "Val"], divided("", "Train", "Val")),
        (["Training", "Testing"], divided("", "Training", "Testing")),
        (["training_set", "test_set"], divided("", "training_set", "test_set")),
        (["train", "valid"], divided("", "train", "valid")),
        (["TRAIN", "dev"], divided("", "TRAIN", "dev")),
        (["train/images", "validation/images"], divided("", "train/images", "validation/images")),
        (["archive/dataset/train", "archive/dataset/val"], divided("archive/dataset", "train", "val")),
    ] {
        let dir = tempfile::tempdir().unwrap();
        for (part, class) in [(parts[0], "a"), (parts[0], "b"), (parts[1], "a"), (parts[1], "b")] {
            picture(dir.path(), &format!("{part}/{class}/1.png"), 1);
        }
        for leftover in ["__MACOSX/._train", ".DS_Store", "README.md"] {
            fs::create_dir_all(dir.path().join(leftover).parent().unwrap()).unwrap();
            fs::write(dir.path().join(leftover), "x").unwrap();
        }
        let (root, train, val) = expected;
        let layout = Layout::Divided {
            root: dir.path().join(root).components().collect(),
            train: train.into(),
            val: val.into(),
        };
        assert_eq!(Layout::of(dir.path()).unwrap(), layout);
        assert_eq!(layout.open(OnError::Fail).unwrap().train.classes(), ["a", "b"]);
    }
    // A test part is held out only if there is no other; a class can be called as a part is.
    let three = folder(&["train/a/1.png", "test/a/2.png", "val/a/3.png"]);
    assert!(matches!(Layout::of(three.path()).unwrap(), Layout::Divided { val, .. } if val == Path::new("val")));
    let vehicles = folder(&["bus/1.png", "car/2.png", "train/3.png"]);
    assert_eq!(Layout::of(vehicles.path()).unwrap(), Layout::Classes(vehicles.path().to_owned()));
    let inside = folder(&["pets/cat/1.png", "pets/dog/2.png"]);
    assert_eq!(Layout::of(inside.path()).unwrap(), Layout::Classes(inside.path().join("pets")));
    // Images in folders of their classes, as Tiny ImageNet has them.
    let deeper = folder(&["n01/images/1.png", "n02/images/2.png"]);
    assert_eq!(Layout::of(deeper.path()).unwrap(), Layout::Classes(deeper.path().to_owned()));
}

/// What is no class is never trained as one.
#[test]
fn unclear_folders_are_refused_by_name() {
    for (pictures, expected) in [
        (&["train/a/1.png"][..], "no held-out part beside the training part: val/ or test/"),
        (&["Test/a/1.png"], "no training part"),
        (&["Train/a/1.png", "training/a/2.png", "val/a/3.png"], "several fit the part `train`: "),
        (&["train/1.png", "test/2.png"], "train/1.png: a file next to the class folders"),
        (&["images/1.png", "masks/2.png"], "images/, masks/: names of contents, not of classes"),
        (&["images/1.png"], "images/: names of contents, not of classes"),
        (&["siteA/cat/1.png", "siteA/dog/2.png", "siteB/cat/3.png", "siteB/dog/4.png"], "hold the folders cat, dog: "),
        (&["cat/train/1.png", "cat/test/2.png", "dog/train/3.png", "dog/test/4.png"], "hold the folders test, train: "),
        (
            &["train/x/cat/1.png", "train/x/dog/2.png", "train/y/cat/1.png", "train/y/dog/2.png", "val/x/cat/3.png"],
            "train: no known layout",
        ),
    ] {
        let dir = folder(pictures);
        let message = error(open_root(dir.path(), OnError::Fail)).to_string();
        assert!(message.contains(expected), "{pictures:?}: {message}");
    }
}

#[test]
fn torchvisions_folders_of_mnist_are_read_and_others_named() {
    let idx = |sizes: &[u32], elements: &[u8]| {
        let sizes: Vec<u8> = sizes.iter().flat_map(|size| size.to_be_bytes()).collect();
        [&[0, 0, 8, (sizes.len() / 4) as u8][..], &sizes, elements].concat()
    };
    let dir = tempfile::tempdir().unwrap();
    let mnist = |set: &str| {
        let raw = dir.path().join(set).join("raw");
        fs::create_dir_all(&raw).unwrap();
        for part in ["train", "t10k"] {
            fs::write(raw.join(format!("{part}-images-idx3-ubyte")), idx(&[2, 1, 1], &[5, 6])).unwrap();
            fs::write(raw.join(format!("{part}-labels-idx1-ubyte")), idx(&[2], &[1, 0])).unwrap();
            fs::write(raw.join(format!("{part}-labels-idx1-ubyte.gz")), "").unwrap();
        }
        raw
    };
    let raw = mnist("MNIST");
    for root in [dir.path(), &dir.path().join("MNIST"), &raw] {
        assert_eq!(Layout::of(root).unwrap(), Layout::Idx(raw.clone()));
    }
    assert_eq!(open_root(dir.path(), OnError::Fail).unwrap().val.label(0), 1);
    mnist("FashionMNIST");
    let message = error(open_root(dir.path(), OnError::Fail)).to_string();
    assert!(message.contains("several data sets; try ") && message.ends_with("FashionMNIST"), "{message}");
    let dir = tempfile::tempdir().unwrap();
    let python = dir.path().join("cifar-10-batches-py");
    fs::create_dir(&python).unwrap();
    ["data_batch_1", "test_batch"].iter().for_each(|file| fs::write(python.join(file), "x").unwrap());
    let message = error(open_root(dir.path(), OnError::Fail)).to_string();
    assert!(message.contains("the Python version of CIFAR-10"), "{message}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_cifar_file_is_read_or_refused(
        records in 0..4_usize,
        extra in 0..3_usize,
        label in any::<u8>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data_batch_1.bin");
        fs::write(&path, vec![label; records * 3073 + extra]).unwrap();
        let sound = records > 0 && extra == 0 && label < 10;
        match Cifar10::read(&[path]) {
            Ok(set) => prop_assert!(sound && set.len() == records && set.image(records - 1).is_ok()),
            Err(error) => prop_assert!(!sound, "{error}"),
        }
    }
}
