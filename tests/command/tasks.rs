//! `run`, `eval` and `data` on networks that find text and follow targets, small enough to train in seconds.

use crate::workbench::{Said, command, said};
use serde_json::Value;
use std::fs;
use std::path::Path;

const RECIPES: [&str; 2] = ["--recipes", "tests/fixtures/recipes"];

fn run(recipe: &str, out: &Path, rest: &[&str]) -> Said {
    let mut run = command();
    run.args(["run", recipe]).args(RECIPES).args(["--format", "json", "--out"]).arg(out);
    said(run.args(rest))
}

fn events<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|event| event["event"] == kind).collect()
}

/// Losses, their components and scores, to the bit.
fn numbers(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("events.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let kept = lines.filter(|event| event["event"] == "step" || event["event"] == "evaluated");
    kept.map(|event| format!("{} {} {} {}", event["step"], event["loss"], event["components"], event["scores"]))
        .collect()
}

#[test]
fn a_detector_of_text_is_trained_evaluated_and_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let lines = run("tiny_text", &out, &[]).expect(0).lines();
    let steps = events(&lines, "step");
    assert_eq!(steps.len(), 18);
    let names: Vec<&str> = steps[0]["components"].as_array().unwrap().iter().map(|c| c[0].as_str().unwrap()).collect();
    assert_eq!(names, ["bce_loss", "l1_loss", "dice_loss"]);
    let last = |n: usize| steps[n]["loss"].as_f64().unwrap();
    assert!(last(17) < last(0), "{} {}", last(0), last(17));
    let result = lines.last().unwrap();
    assert_eq!((&result["metric"], &result["target"]), (&"hmean".into(), &Value::Null));
    let scores = events(&lines, "evaluated").pop().unwrap()["scores"].as_array().unwrap().clone();
    let metrics: Vec<&str> = scores.iter().map(|score| score["metric"].as_str().unwrap()).collect();
    assert_eq!(metrics, ["hmean", "precision", "recall"]);

    let pictures = dir.path().join("pictures");
    let mut eval = command();
    eval.args(["eval", "tiny_text"]).args(RECIPES).args(["--format", "json", "--checkpoint"]).arg(&out);
    let evaluation = said(eval.arg("--draw").arg(&pictures)).expect(0).json();
    assert_eq!(evaluation["achieved"], result["achieved"], "the average that the run evaluated");
    assert_eq!((&evaluation["samples"], &evaluation["loss"]), (&7.into(), &Value::Null));
    // The pictures, and the table of what was found in them.
    assert_eq!(fs::read_dir(&pictures).unwrap().count(), 7 + 1);
}

#[test]
fn what_a_classifier_finds_is_told_for_each_image() {
    let dir = tempfile::tempdir().unwrap();
    let (out, pictures) = (dir.path().join("run"), dir.path().join("pictures"));
    run("tiny", &out, &["--set", "train.epochs=1"]).expect(0);
    let mut eval = command();
    said(eval.args(["eval", "--drawn", "5"]).args(RECIPES).arg(&out).arg("--draw").arg(&pictures)).expect(0);
    let table = fs::read_to_string(pictures.join("index.tsv")).unwrap();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!((rows.len(), &rows[0]), (6, &vec!["picture", "sample", "found"]));
    for row in &rows[1..] {
        assert!(pictures.join(row[0]).exists(), "{row:?}");
        assert!(row[2].contains("correct with") || row[2].contains("predicted as"), "{row:?}");
    }
}

#[test]
fn a_segmenter_is_trained_evaluated_and_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let lines = run("tiny_segment", &out, &[]).expect(0).lines();
    let steps = events(&lines, "step");
    let loss = |n: usize| steps[n]["loss"].as_f64().unwrap();
    assert_eq!(steps.len(), 18);
    assert!(loss(17) < loss(0), "{} {}", loss(0), loss(17));
    let evaluated = events(&lines, "evaluated").pop().unwrap().clone();
    let scores = evaluated["scores"].as_array().unwrap();
    let metrics: Vec<&str> = scores.iter().map(|score| score["metric"].as_str().unwrap()).collect();
    assert_eq!(metrics, ["mean_iou", "pixel_accuracy"]);
    assert!(evaluated["loss"].as_f64().unwrap().is_finite());
    let trivial = lines.iter().find(|line| line.to_string().contains("background everywhere"));
    assert!(trivial.is_some(), "what the most frequent class reaches");

    let pictures = dir.path().join("pictures");
    let mut eval = command();
    eval.args(["eval", "tiny_segment"]).args(RECIPES).args(["--format", "json", "--checkpoint"]).arg(&out);
    let evaluation = said(eval.arg("--draw").arg(&pictures)).expect(0).json();
    assert_eq!(evaluation["achieved"], lines.last().unwrap()["achieved"]);
    assert_eq!(fs::read_dir(&pictures).unwrap().count(), 10 + 1);
    let ignored = run("tiny_segment", &dir.path().join("other"), &["--set", "loss.softmax_cross_entropy.ignore=~"]);
    assert!(ignored.expect(2).err.contains("pixels without class have the label 255: add `ignore: 255`"));
    let classes = run("tiny_segment", &dir.path().join("other"), &["--set", "model.classes=4"]).expect(2);
    assert!(
        classes.err.contains("the shapes have 5 classes including background, but the model has 4"),
        "{}",
        classes.err
    );
}

#[test]
fn colours_are_no_label_maps() {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["train/images", "train/labels", "val/images", "val/labels"] {
        fs::create_dir_all(dir.path().join(folder)).unwrap();
        let image = zoo_datasets::Image::filled(zoo_datasets::Size::new(24, 24), [9; 3]);
        zoo_datasets::image::write_png(&image, &dir.path().join(folder).join("a.png")).unwrap();
    }
    let data = ["--data", dir.path().to_str().unwrap(), "--set", "train.batch=1"];
    let refused = run("tiny_segment", &dir.path().join("run"), &data).expect(3);
    assert!(refused.err.contains("a.png: Rgb of 8 bits are colours, not classes"), "{}", refused.err);
}

#[test]
fn a_detector_is_trained_evaluated_and_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let lines = run("tiny_detect", &out, &[]).expect(0).lines();
    let steps = events(&lines, "step");
    let loss = |n: usize| steps[n]["loss"].as_f64().unwrap();
    assert_eq!(steps.len(), 18);
    assert!(loss(17) < loss(0), "{} {}", loss(0), loss(17));
    let evaluated = events(&lines, "evaluated").pop().unwrap().clone();
    let scores = evaluated["scores"].as_array().unwrap();
    let metrics: Vec<&str> = scores.iter().map(|score| score["metric"].as_str().unwrap()).collect();
    assert_eq!(metrics, ["map", "map_50", "map_75", "map_small", "mar_100"], "all objects are small");
    for answer in ["the mean box of each class", "the whole image as a box"] {
        assert!(lines.iter().any(|line| line.to_string().contains(answer)), "no {answer}");
    }

    let pictures = dir.path().join("pictures");
    let mut eval = command();
    eval.args(["eval", "tiny_detect"]).args(RECIPES).args(["--format", "json", "--checkpoint"]).arg(&out);
    let evaluation = said(eval.arg("--draw").arg(&pictures)).expect(0).json();
    assert_eq!(evaluation["achieved"], lines.last().unwrap()["achieved"]);
    assert_eq!(fs::read_dir(&pictures).unwrap().count(), 10 + 1);
    let other = dir.path().join("other");
    let anchors = run("tiny_detect", &other, &["--set", "preprocess.boxes.anchors.ratios=[1, 2]"]).expect(2);
    let message = "the network predicts 128 boxes, but there are 256 anchors: 4 shapes at 8x8 positions";
    assert!(anchors.err.contains(message), "{}", anchors.err);
    let cropped = run("tiny_detect", &other, &["--set", "preprocess.train=[center_crop: {size: 32}]"]).expect(2);
    assert!(cropped.err.contains("images with boxes by `preprocess.boxes`"), "{}", cropped.err);
}

/// COCO's layout with one image of 40 x 30 pixels per part.
fn coco(root: &Path, bounds: &str) {
    fs::create_dir_all(root.join("annotations")).unwrap();
    for part in ["train", "val"] {
        fs::create_dir_all(root.join(part)).unwrap();
        let image = zoo_datasets::Image::filled(zoo_datasets::Size::new(40, 30), [9; 3]);
        zoo_datasets::image::write_png(&image, &root.join(part).join("a.png")).unwrap();
        let json = format!(
            r#"{{"images": [{{"id": 1, "file_name": "a.png", "width": 40, "height": 30}}],
            "annotations": [{{"id": 7, "image_id": 1, "category_id": 2, "bbox": {bounds}, "iscrowd": 0}}],
            "categories": [{{"id": 2, "name": "cat"}}]}}"#
        );
        fs::write(root.join(format!("annotations/instances_{part}.json")), json).unwrap();
    }
}

#[test]
fn a_detector_is_trained_on_coco() {
    let dir = tempfile::tempdir().unwrap();
    let (data, out) = (dir.path().join("data"), dir.path().join("run"));
    coco(&data, "[4, 5, 20, 10.5]");
    let given = ["--data", data.to_str().unwrap(), "--set", "train.batch=1"];
    let trained = run("tiny_detect", &out, &given).expect(0);
    assert!(trained.err.contains("model.classes is 3"), "{}", trained.err);
    let mut eval = command();
    eval.args(["eval"]).arg(&out).args(RECIPES).args(["--format", "json"]);
    assert_eq!(said(&mut eval).expect(0).json()["samples"], 1);
    coco(&data, "[4, 5, 50, 10.5]");
    let refused = run("tiny_detect", &dir.path().join("other"), &given).expect(3);
    let message =
        "instances_train.json: annotations[0] (id 7): the box at (4, 5) of 50 x 10.5 reaches beyond the image";
    assert!(refused.err.contains(message), "{}", refused.err);
}

#[test]
fn a_tracker_is_trained_in_stages_evaluated_and_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let target = ["--set", "target={metric: mask_iou, value: 0, also: [{metric: tracked, value: 0}]}"];
    let trained = run("tiny_track", &out, &target).expect(0);
    assert!(trained.err.contains("a disc at the true place reaches mask_iou"), "{}", trained.err);
    let lines = trained.lines();
    assert_eq!(events(&lines, "step").len(), 16);
    let result = lines.last().unwrap();
    assert_eq!((&result["metric"], &result["met"]), (&"mask_iou".into(), &true.into()));
    assert_eq!((&result["also"][0]["metric"], &result["also"][0]["met"]), (&"tracked".into(), &true.into()));
    assert_eq!(result["baselines"].as_array().unwrap().len(), 3);
    let scores = events(&lines, "evaluated").pop().unwrap()["scores"].clone();
    assert_eq!((&scores[1]["metric"], &scores[1]["of"]), (&"tracked".into(), &3.into()));
    // One of two goals is not enough.
    let missed = [
        "--set",
        "target={metric: mask_iou, value: 0, also: [{metric: overlap, value: 1}]}",
        "--set",
        "train.epochs=3",
    ];
    let result = run("tiny_track", &dir.path().join("missed"), &missed).expect(1).lines().pop().unwrap();
    assert_eq!((&result["met"], &result["also"][0]["met"]), (&false.into(), &false.into()));

    let pictures = dir.path().join("pictures");
    let mut eval = command();
    eval.args(["eval", "tiny_track"]).args(RECIPES).args(["--format", "json", "--checkpoint"]).arg(&out);
    let evaluation = said(eval.args(["--drawn", "2", "--draw"]).arg(&pictures)).expect(0).json();
    assert_eq!(evaluation["scores"]["mask_iou"], result_of(&lines)["achieved"]);
    let mut files: Vec<String> =
        fs::read_dir(&pictures).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    let endings: Vec<&str> = files.iter().map(|file| &file[..3]).collect();
    // A folder of frames, an animation and a strip for each of two sequences.
    assert_eq!(endings, ["000", "000", "000", "001", "001", "001"], "{files:?}");
}

#[test]
fn drawings_that_cannot_be_written_are_a_mistake_of_the_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    run("tiny_text", &out, &["--set", "train.epochs=1"]).expect(0);
    let draw = |folder: &Path| {
        let mut eval = command();
        said(eval.args(["eval", "--drawn", "1"]).args(RECIPES).arg(&out).arg("--draw").arg(folder))
    };
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let refused = draw(&file.join("pictures")).expect(2);
    assert!(refused.err.contains("file/pictures: cannot be written"), "{}", refused.err);
    // A folder in the place of a picture.
    let pictures = dir.path().join("pictures");
    draw(&pictures).expect(0);
    let picture = fs::read_dir(&pictures).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(&picture).unwrap();
    fs::create_dir(&picture).unwrap();
    let refused = draw(&pictures).expect(2);
    assert!(refused.err.contains(&format!("{}: cannot be written", picture.display())), "{}", refused.err);
}

/// Interrupted while trivial answers are measured, after everything is drawn: there is nothing to finish.
#[cfg(unix)]
#[test]
fn trivial_answers_are_interrupted_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (out, pictures) = (dir.path().join("run"), dir.path().join("pictures"));
    run("tiny_track", &out, &["--set", "train.epochs=1", "--set", "train.parts=[]"]).expect(0);
    let mut eval = std::process::Command::new(assert_cmd::cargo::cargo_bin!("zoo"));
    eval.current_dir(crate::workbench::root()).args(["eval", "--drawn", "1"]).args(RECIPES).arg(&out);
    eval.args(["--set", "data.source.videos.val=1500", "--draw"]).arg(&pictures);
    let mut child = eval.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let is_strip = |entry: &fs::DirEntry| entry.path().extension().is_some_and(|ending| ending == "png");
    while !fs::read_dir(&pictures).is_ok_and(|mut entries| entries.any(|entry| is_strip(&entry.unwrap()))) {
        assert!(child.try_wait().unwrap().is_none(), "the evaluation ended before it was interrupted");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{err}");
    assert!(!err.contains("writing a checkpoint"), "{err}");
}

fn result_of(lines: &[Value]) -> &Value {
    lines.last().unwrap()
}

#[test]
fn both_give_the_same_bits_on_any_number_of_threads_and_after_an_interruption() {
    for (recipe, stop) in [("tiny_text", "train.epochs=3"), ("tiny_track", "train.epochs=4")] {
        let dir = tempfile::tempdir().unwrap();
        let numbers_of = |name: &str, rest: &[&str]| {
            let out = dir.path().join(name);
            run(recipe, &out, &[&["--set", stop], rest].concat()).expect(0);
            numbers(&out)
        };
        let one = numbers_of("one", &["--threads", "1"]);
        assert!(one.len() >= 18, "{one:?}");
        assert_eq!(one, numbers_of("three", &["--threads", "3"]), "{recipe}");
        assert_ne!(one, numbers_of("seed", &["--set", "train.seed=1"]), "{recipe}");
    }
}

#[test]
fn a_backbone_starts_from_another_run() {
    let dir = tempfile::tempdir().unwrap();
    let first = dir.path().join("first");
    run("tiny_track", &first, &["--set", "train.epochs=1", "--set", "train.parts=[]"]).expect(0);
    let from = format!("train.init_from={{checkpoint: {}}}", first.display());
    let second = run("tiny_track", &dir.path().join("second"), &["--set", &from, "--set", "train.epochs=3"]).expect(0);
    assert!(second.err.contains("init_from: 33 of 33 tensors fit"), "{}", second.err);
    // As the backbone of another network, whose normalisation it has under other names.
    let into = format!("train.init_from={{checkpoint: {}, into: backbone}}", first.display());
    let nothing = run("tiny_track", &dir.path().join("third"), &["--set", &into]).expect(2);
    assert!(nothing.err.contains("no tensors that fit this network"), "{}", nothing.err);
}

#[test]
fn data_that_do_not_fit_the_step_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let other = ["--set", "data.source={text_scenes: {train: 8, val: 2, size: 64}}"];
    let refused = run("tiny", &out, &other).expect(2);
    let said = "the network needs `label`, which images with text do not provide; they provide `image`, `gt`, `mask`";
    assert!(refused.err.contains(said), "{}", refused.err);
    let metric = run("tiny_text", &out, &["--set", "target={metric: top1, value: 0.5}"]).expect(2);
    assert!(metric.err.contains("this metric is not available for these data"), "{}", metric.err);
    let anchors = run("tiny_track", &out, &["--set", "preprocess.pairs.anchors.ratios=[1, 2]"]).expect(2);
    assert!(anchors.err.contains("2 anchor shapes, but `cls` has 5"), "{}", anchors.err);
}

/// Annotations with all that can be wrong in them.
fn annotated(dir: &Path) -> std::path::PathBuf {
    let root = dir.join("text");
    let image = zoo_datasets::Image::filled(zoo_datasets::Size::new(90, 70), [40, 90, 200]);
    for (name, text) in [
        ("a", "10,10,60,10,60,40,10,40,word\r\n\u{feff}"),
        ("b", ""),
        ("c", "10,10,60,10,60,40,10\n20,20,40,20,40,30,20,30,fine\nx,1,2,3,4,5,6,7,word"),
        ("d", "0,0,9,9,9,0,0,9,crossed\n"),
        ("e", "200,200,260,200,260,240,200,240,outside\n-30,-30,50,-30,50,30,-30,30,partly\n"),
        ("f", "10,10,60,10,60,40,10,40,###\n"),
    ] {
        for part in ["train", "test"].map(|part| root.join(part)) {
            ["images", "gts"].iter().for_each(|folder| fs::create_dir_all(part.join(folder)).unwrap());
            zoo_datasets::image::write_png(&image, &part.join(format!("images/{name}.png"))).unwrap();
            fs::write(part.join(format!("gts/gt_{name}.txt")), format!("\u{feff}{text}")).unwrap();
        }
    }
    root
}

#[test]
fn broken_annotations_are_named_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let root = annotated(dir.path());
    let data = ["--data", root.to_str().unwrap(), "--set", "train.batch=2", "--set", "train.epochs=1"];
    let failed = run("tiny_text", &dir.path().join("fail"), &data).expect(3);
    assert!(failed.err.contains("gt_a.txt:2: ") || failed.err.contains("gt_c.txt:1: "), "{}", failed.err);
    let skip = [data.as_slice(), &["--set", "data.on_error=skip"]].concat();
    let trained = run("tiny_text", &dir.path().join("skip"), &skip).expect(0);
    for named in ["gt_c.txt:1: ", "gt_c.txt:3: ", "gt_d.txt:1: "] {
        assert!(trained.err.contains(named), "{named}: {}", trained.err);
    }
    assert!(trained.err.contains("unusable entries are skipped"), "{}", trained.err);
    let mut inspect = command();
    inspect.args(["data", "inspect", "tiny_text"]).args(RECIPES).args([
        "--format",
        "json",
        "--set",
        "data.on_error=skip",
    ]);
    let found = said(inspect.arg("--data").arg(&root)).expect(0).json();
    // The text `###`, and the areas of two broken lines.
    assert_eq!((&found["splits"][0]["samples"], &found["splits"][0]["ignored"]), (&6.into(), &3.into()));
}

#[test]
fn images_that_are_not_divided_are_not_trained_on() {
    let dir = tempfile::tempdir().unwrap();
    let root = annotated(dir.path()).join("train");
    let undivided = ["--data", root.to_str().unwrap(), "--set", "data.on_error=skip", "--set", "train.batch=2"];
    let refused = run("tiny_text", &dir.path().join("run"), &undivided).expect(2);
    assert!(refused.err.contains("Divide them: train/images with train/gts"), "{}", refused.err);
}

#[test]
fn masks_of_another_size_and_missing_frames_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let (images, masks) = (dir.path().join("JPEGImages/480p/v"), dir.path().join("Annotations/480p/v"));
    let image = |width: usize| {
        let mut image = zoo_datasets::Image::filled(zoo_datasets::Size::new(width, 80), [0, 0, 0]);
        image.pixels_mut()[3 * (30 * width + 30)..][..60].fill(255);
        image
    };
    for folder in [&images, &masks] {
        fs::create_dir_all(folder).unwrap();
    }
    for frame in 0..4 {
        zoo_datasets::image::write_png(&image(100), &images.join(format!("{frame:05}.png"))).unwrap();
        zoo_datasets::image::write_png(&image(100), &masks.join(format!("{frame:05}.png"))).unwrap();
    }
    let data = ["--data", dir.path().to_str().unwrap(), "--set", "train.batch=1", "--set", "train.epochs=1"];
    let data = [data.as_slice(), &["--set", "train.parts=[]"]].concat();
    run("tiny_track", &dir.path().join("sound"), &data).expect(0);
    fs::remove_file(images.join("00002.png")).unwrap();
    let missing = run("tiny_track", &dir.path().join("missing"), &data).expect(3);
    assert!(missing.err.contains("00003.png: frame 2 is missing before it"), "{}", missing.err);
    zoo_datasets::image::write_png(&image(90), &masks.join("00001.png")).unwrap();
    let skip = [data.as_slice(), &["--set", "data.on_error=skip"]].concat();
    let size = run("tiny_track", &dir.path().join("size"), &skip);
    assert!(size.err.contains("00001.png: a mask of 90x80 pixels for an image of 100x80"), "{}", size.err);
}
