//! Folders of images with annotated boxes.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use zoo_datasets::detection::{BoundingBox, Role};
use zoo_datasets::image::write_png;
use zoo_datasets::{Annotated, BoxFolder, DataError, Image, OnError, Part, Size};

fn image(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    write_png(&Image::filled(Size::new(30, 20), [7; 3]), path).unwrap();
}

const CATEGORIES: &str = r#"[{"id": 1, "name": "cat"}, {"id": 4, "name": "dog"}]"#;
const IMAGES: &str = r#"[{"id": 9, "file_name": "b.png", "width": 30, "height": 20},
    {"id": 3, "file_name": "a.png", "width": 30, "height": 20}]"#;
const BOXES: &str = r#"[
    {"id": 1, "image_id": 9, "category_id": 4, "bbox": [1, 2, 10.5, 8], "area": 40.5, "iscrowd": 0},
    {"id": 2, "image_id": 9, "category_id": 1, "bbox": [0, 0, 30.5, 20], "area": 600, "iscrowd": 1, "segmentation": {}}]"#;

fn json(images: &str, annotations: &str, categories: &str) -> String {
    format!("{{\"images\": {images},\n\"annotations\": {annotations},\n\"categories\": {categories}}}")
}

/// COCO's layout with this file for both parts.
fn coco(content: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("annotations")).unwrap();
    for part in ["train2017", "val2017"] {
        image(&dir.path().join(part).join("a.png"));
        image(&dir.path().join(part).join("b.png"));
        fs::write(dir.path().join(format!("annotations/instances_{part}.json")), content).unwrap();
    }
    dir
}

fn xml(objects: &str) -> String {
    format!("<annotation>\n<size><width>30</width><height>20</height><depth>3</depth></size>\n{objects}\n</annotation>")
}

const DOG: &str = "<object><name>dog</name><difficult>0</difficult><part><name>head</name><bndbox><xmin>2</xmin>\
                   </bndbox></part><bndbox><xmin>2</xmin><ymin>3</ymin><xmax>11</xmax><ymax>20</ymax></bndbox></object>";

/// VOC's layout: an image to train on and one that is held out, both with this annotation.
fn voc(content: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    for folder in ["Annotations", "ImageSets/Main"] {
        fs::create_dir_all(dir.path().join(folder)).unwrap();
    }
    for (part, name) in [("train", "000001"), ("val", "000002")] {
        image(&dir.path().join(format!("JPEGImages/{name}.jpg")));
        fs::write(dir.path().join(format!("Annotations/{name}.xml")), content).unwrap();
        fs::write(dir.path().join(format!("ImageSets/Main/{part}.txt")), format!("{name}\n")).unwrap();
    }
    dir
}

fn open(dir: &TempDir, part: Part, on_error: OnError) -> Result<BoxFolder, DataError> {
    BoxFolder::open_root(dir.path(), part, on_error)
}

fn refused(dir: &TempDir) -> String {
    open(dir, Part::Val, OnError::Fail).unwrap_err().to_string()
}

#[test]
fn coco_is_read() {
    let dir = coco(&json(IMAGES, BOXES, CATEGORIES));
    let val = open(&dir, Part::Val, OnError::Fail).unwrap();
    assert_eq!(val.classes(), ["background", "cat", "N/A", "N/A", "dog"]);
    assert_eq!((val.len(), val.skipped()), (2, 0));
    assert!(val.name(0).ends_with("val2017/a.png"), "{}", val.name(0));
    assert_eq!(val.load(0).unwrap().1, []);
    let (image, objects) = val.load(1).unwrap();
    assert_eq!((image.size(), objects.len()), (Size::new(30, 20), 2));
    assert_eq!(objects[0].bounds, BoundingBox { x: 1.0, y: 2.0, width: 10.5, height: 8.0 });
    assert_eq!((objects[0].class, objects[0].area, objects[0].role), (4, 40.5, Role::Single));
    assert_eq!((objects[1].class, objects[1].role), (1, Role::Crowd));
    let train = open(&dir, Part::Train, OnError::Fail).unwrap();
    assert_eq!(train.len(), 1, "an image without objects is not trained on");
}

#[test]
fn broken_entries_of_coco_are_named_or_counted() {
    let boxes = |replaced: &str, by: &str| json(IMAGES, &BOXES.replacen(replaced, by, 1), CATEGORIES);
    let images = |replaced: &str, by: &str| json(&IMAGES.replacen(replaced, by, 1), BOXES, CATEGORIES);
    for (content, message, skipped) in [
        (boxes("\"id\": 1, ", ""), "annotations[0]: no `id`", 1),
        (boxes("\"id\": 2", "\"id\": 1"), "annotations[1]: a second annotation 1", 1),
        (boxes("\"image_id\": 9, ", ""), "annotations[0] (id 1): no `image_id`", 1),
        (boxes("\"image_id\": 9", "\"image_id\": 8"), "annotations[0] (id 1): image 8 is not in `images`", 1),
        (boxes("\"category_id\": 4", "\"category_id\": 3"), "annotations[0] (id 1): category 3 is not in", 1),
        (boxes("[1, 2, 10.5, 8]", "[1, 2, 8]"), "annotations[0] (id 1): `bbox` is [1,2,8], expected four numbers", 1),
        (boxes("10.5, 8]", "0, 8]"), "the box at (1, 2) of 0 x 8 has no area inside the image of 30x20 pixels", 1),
        (boxes("[1, 2,", "[40, 2,"), "the box at (40, 2) of 10.5 x 8 has no area inside the image", 1),
        (boxes("[1, 2,", "[25, 2,"), "the box at (25, 2) of 10.5 x 8 reaches beyond the image of 30x20 pixels", 1),
        (images("\"id\": 3, ", ""), "images[1]: no `id`", 1),
        (images("\"id\": 3", "\"id\": 9"), "images[1] (id 9): a second image 9", 1),
        (images("a.png", "c.png"), "c.png: no such file", 1),
        (images("a.png", "../a.png"), "is not a path below the folder of images", 1),
        (images("\"width\": 30, ", ""), "images[0] (id 9): no `width`", 3),
        (json(IMAGES, BOXES, &CATEGORIES.replace("\"id\": 4, ", "")), "categories[1]: no `id`", 2),
        (json(IMAGES, BOXES, &CATEGORIES.replace('4', "-4")), "categories[1]: category -4 is not within", 2),
        (json(IMAGES, BOXES, &CATEGORIES.replace('4', "1")), "categories[1]: a second category 1", 2),
    ] {
        let dir = coco(&content);
        let error = refused(&dir);
        assert!(error.contains("instances_val2017.json: ") && error.contains(message), "{error}");
        let set = open(&dir, Part::Val, OnError::Skip).unwrap();
        assert_eq!(set.skipped(), skipped, "{content}");
    }
}

/// What exporters write, and what pycocotools makes of it.
#[test]
fn numbers_and_flags_of_coco_have_many_spellings() {
    let whole = json(IMAGES, BOXES, CATEGORIES);
    let read = |content: &str| {
        let dir = coco(content);
        let set = open(&dir, Part::Val, OnError::Fail).unwrap();
        (set.classes().to_vec(), (0..set.len()).map(|index| set.load(index).unwrap().1).collect::<Vec<_>>())
    };
    let expected = read(&whole);
    for (replaced, by) in [
        ("\"iscrowd\": 0", "\"iscrowd\": 0.0"),
        ("\"iscrowd\": 0", "\"iscrowd\": false"),
        ("\"iscrowd\": 0", "\"iscrowd\": \"0\""),
        ("\"iscrowd\": 0", "\"iscrowd\": null"),
        (", \"iscrowd\": 0", ", \"attributes\": {\"x\": [1, null]}"),
        ("\"iscrowd\": 1", "\"iscrowd\": true"),
        ("\"iscrowd\": 1", "\"iscrowd\": 1.0"),
        ("\"iscrowd\": 1", "\"iscrowd\": \"1\""),
        ("\"image_id\": 9", "\"image_id\": 9.0"),
        ("\"image_id\": 9", "\"image_id\": \"9\""),
        ("\"id\": 9", "\"id\": \"9\""),
        ("\"category_id\": 4", "\"category_id\": \"4\""),
        ("\"category_id\": 4", "\"category_id\": 4.0"),
        ("\"id\": 4", "\"id\": \"4\""),
        ("\"width\": 30", "\"width\": 30.0"),
        ("\"width\": 30", "\"width\": \"30\""),
        ("[1, 2, 10.5, 8]", "[1.0, \"2\", 10.5, 8]"),
        ("\"area\": 40.5", "\"area\": \"40.5\""),
        ("\"area\": 600", "\"area\": 600.0, \"score\": NaN, \"note\": \"a \\\" NaN\", \"low\": -Infinity"),
        ("\"id\": 1, \"image_id\"", "\"id\": \"x/1\", \"image_id\""),
    ] {
        assert!(whole.contains(replaced), "{replaced}");
        assert_eq!(read(&whole.replace(replaced, by)), expected, "{by}");
    }
    // Names of images as their identities, and no area.
    let named = whole.replace("\"id\": 9", "\"id\": \"a9\"").replace("\"image_id\": 9", "\"image_id\": \"a9\"");
    assert_eq!(read(&named), expected);
    let without_area = read(&whole.replace("\"area\": 40.5, ", ""));
    assert_eq!(without_area.1[1][0].area, 84.0);
}

#[test]
fn values_that_cannot_be_used_are_shown_with_what_was_expected() {
    let whole = json(IMAGES, BOXES, CATEGORIES);
    for (replaced, by, message) in [
        ("\"iscrowd\": 0", "\"iscrowd\": \"no\"", "annotations[0] (id 1): `iscrowd` is \"no\", expected 0 or 1"),
        ("\"category_id\": 4", "\"category_id\": \"dog\"", "`category_id` is \"dog\", expected a whole number"),
        ("\"category_id\": 4", "\"category_id\": 4.5", "`category_id` is 4.5, expected a whole number"),
        ("\"image_id\": 9", "\"image_id\": [9]", "`image_id` is [9], expected a number or a text"),
        ("\"image_id\": 9", "\"image_id\": \"09\"", "image \"09\" is not in `images`"),
        ("[1, 2, 10.5, 8]", "[1, NaN, 10.5, 8]", "`bbox` is [1,null,10.5,8], expected four numbers: x, y, width and"),
        ("[1, 2, 10.5, 8]", "[1, \"two\", 10.5, 8]", "`bbox` is [1,\"two\",10.5,8], expected four numbers"),
        ("[1, 2, 10.5, 8]", "[]", "`bbox` is [], expected four numbers"),
        ("[1, 2, 10.5, 8]", "null", "annotations[0] (id 1): no `bbox`"),
        ("10.5, 8]", "-10.5, 8]", "the box at (1, 2) of -10.5 x 8 has no area"),
        ("\"area\": 40.5", "\"area\": -1", "`area` is -1, expected a number of at least 0"),
        ("\"area\": 40.5", "\"area\": {}", "`area` is {}, expected a number of at least 0"),
        ("\"name\": \"dog\"", "\"name\": 7", "categories[1]: `name` is 7, expected a text"),
        ("\"width\": 30", "\"width\": 30.5", "images[0] (id 9): `width` is 30.5, expected a whole number"),
        ("\"width\": 30", "\"width\": 0", "images[0] (id 9): `width` is 0, expected 1 to"),
        ("\"id\": 3", "\"id\": true", "images[1] (id true): `id` is true, expected a number or a text"),
    ] {
        assert!(whole.contains(replaced), "{replaced}");
        let dir = coco(&whole.replacen(replaced, by, 1));
        let error = refused(&dir);
        assert!(error.contains(message), "{error}");
        assert!(open(&dir, Part::Val, OnError::Skip).unwrap().skipped() > 0);
    }
}

#[test]
fn training_images_without_objects_are_refused_with_the_reason() {
    let train = |boxes: &str| {
        let dir = coco(&json(IMAGES, boxes, CATEGORIES));
        let error = open(&dir, Part::Train, OnError::Fail).unwrap_err();
        assert!(matches!(error, DataError::Malformed { .. }));
        error.to_string()
    };
    let none = "nothing to learn: none of the 2 training images has an object: ";
    assert!(train("[]").ends_with(&format!("{none}there are no boxes")));
    let crowds = train(&BOXES.replace("\"iscrowd\": 0", "\"iscrowd\": 1"));
    assert!(crowds.contains(&format!("{none}all 2 boxes are crowds")), "{crowds}");
    let broken = coco(&json(IMAGES, &BOXES.replace("image_id", "picture"), CATEGORIES));
    let error = open(&broken, Part::Train, OnError::Skip).unwrap_err().to_string();
    assert!(error.ends_with("there are no boxes; 2 entries were left out because they cannot be used"), "{error}");
    assert_eq!(open(&broken, Part::Val, OnError::Skip).unwrap().len(), 2);
}

#[test]
fn files_that_are_not_coco_are_refused_with_their_line() {
    let whole = json(IMAGES, BOXES, CATEGORIES);
    for (content, line, reason) in [
        (&whole[..whole.len() - 30], 6, "EOF"),
        ("", 1, "EOF"),
        ("{\"images\": [],\n\"annotations\": []}", 2, "missing field `categories`"),
    ] {
        let error = open(&coco(content), Part::Val, OnError::Skip).unwrap_err();
        let place = format!(".json:{line}: ");
        assert!(error.to_string().contains(&place) && error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn images_must_have_the_size_of_their_annotation() {
    let dir = coco(&json(&IMAGES.replace("20}", "19}"), "[]", CATEGORIES));
    let error = open(&dir, Part::Val, OnError::Fail).unwrap().load(0).unwrap_err().to_string();
    assert!(error.contains("a.png: 30x20 pixels, but 30x19 according to ") && error.ends_with(".json"), "{error}");
    fs::remove_file(dir.path().join("val2017/a.png")).unwrap();
    fs::remove_file(dir.path().join("val2017/b.png")).unwrap();
    let error = open(&dir, Part::Val, OnError::Skip).unwrap_err().to_string();
    assert!(error.contains("no image is left, because 2 entries cannot be used"), "{error}");
}

#[test]
fn pascal_voc_is_read() {
    let hard = DOG.replace("<difficult>0", "<difficult>1").replace("dog", "person");
    let dir = voc(&xml(&format!("{DOG}{hard}")));
    let val = open(&dir, Part::Val, OnError::Fail).unwrap();
    assert_eq!((val.len(), val.classes().len(), val.classes()[0].as_str()), (1, 21, "background"));
    let (_, objects) = val.load(0).unwrap();
    assert_eq!(objects[0].bounds, BoundingBox { x: 1.0, y: 2.0, width: 10.0, height: 18.0 });
    assert_eq!((objects[0].role, objects[1].role), (Role::Single, Role::Difficult));
    assert_eq!(objects.iter().map(|o| val.classes()[o.class].as_str()).collect::<Vec<_>>(), ["dog", "person"]);
    fs::write(dir.path().join("classes.txt"), "person\ndog\n").unwrap();
    let own = open(&dir, Part::Val, OnError::Fail).unwrap();
    assert_eq!(
        (own.classes(), own.load(0).unwrap().1[0].class),
        (&["background", "person", "dog"].map(str::to_owned)[..], 2)
    );
    // Difficult objects alone are nothing to train on.
    fs::write(dir.path().join("Annotations/000001.xml"), xml(&hard)).unwrap();
    let error = open(&dir, Part::Train, OnError::Fail).unwrap_err().to_string();
    let reason = "nothing to learn: none of the 1 training images has an object: all 1 boxes are crowds";
    assert!(error.contains(reason), "{error}");
}

#[test]
fn broken_annotations_of_voc_are_named_or_counted() {
    for (content, line, reason) in [
        (xml(&DOG.replace("<name>dog</name>", "")), 3, "an object without `name`"),
        (xml(&DOG.replace("dog", "unicorn")), 3, "the class \"unicorn\" is unknown"),
        (xml(&format!("{DOG}\n{}", DOG.replace("<ymin>3</ymin>", ""))), 4, "no number `ymin` in a `bndbox`"),
        (xml(&DOG.replace("<xmax>11", "<xmax>1")), 3, "has no area"),
        (xml(&DOG.replace("<xmax>11", "<xmax>NaN")), 3, "has no area"),
        (xml(&DOG.replace("<xmax>11", "<xmax>44")), 3, "the box at (1, 2) of 43 x 18 reaches beyond the image"),
        (xml("").replace("<width>30</width>", ""), 1, "no `size` with `width` and `height`"),
        (xml(DOG)[..200].to_owned(), 3, "never closed"),
        ("<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>".into(), 1, "DTD"),
        (String::new(), 1, ""),
    ] {
        let dir = voc(&content);
        let error = refused(&dir);
        let place = format!("000002.xml:{line}: ");
        assert!(error.contains(&place) && error.contains(reason), "{error}");
        match open(&dir, Part::Val, OnError::Skip) {
            Ok(set) => assert_eq!(set.skipped(), 1),
            Err(error) => assert!(error.to_string().contains("1 entry cannot be used"), "{error}"),
        }
    }
}

#[test]
fn missing_files_are_named() {
    let dir = voc(&xml(DOG));
    fs::remove_file(dir.path().join("JPEGImages/000002.jpg")).unwrap();
    assert!(refused(&dir).contains("JPEGImages/000002.jpg: "), "{}", refused(&dir));
    let dir = voc(&xml(DOG));
    fs::remove_file(dir.path().join("Annotations/000002.xml")).unwrap();
    assert!(refused(&dir).contains("Annotations/000002.xml: "), "{}", refused(&dir));
    fs::remove_file(dir.path().join("ImageSets/Main/val.txt")).unwrap();
    assert!(refused(&dir).contains("no known layout. Expected annotations/instances_train*.json"));
    let dir = coco(&json(IMAGES, BOXES, CATEGORIES));
    fs::write(dir.path().join("annotations/instances_val2014.json"), "").unwrap();
    assert!(refused(&dir).contains("only one of them can be read"));
    fs::remove_file(dir.path().join("annotations/instances_val2014.json")).unwrap();
    fs::rename(dir.path().join("val2017"), dir.path().join("other")).unwrap();
    assert!(refused(&dir).ends_with("val2017: not found. Expected the images of this part"), "{}", refused(&dir));
}
