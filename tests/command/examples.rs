//! The folder `examples`, as far as it needs no PyTorch; golden/export/tests/test_examples.py runs the rest.

use crate::workbench::{root, zoo};
use std::fs;
use std::process::Command;

#[test]
fn the_example_is_proven_and_its_recorded_step_judged() {
    assert!(zoo("check examples/recipes/my_network.yaml --dtype f64").expect(0).out.contains("my_network: pass"));
    let judged = zoo("judge examples/recipes/my_network.yaml examples/recorded").expect(1).out;
    assert!(judged.contains("first divergence in forward: blocks.1.norm2#0"), "{judged}");
    assert!(judged.contains("- bn: {name: norm2}"), "{judged}");
}

#[test]
fn the_example_trains_on_folders_of_images() {
    let dir = tempfile::tempdir().unwrap();
    let pictures = root().join("golden/preprocess/images");
    for (class, picture) in [("blobs", "m2_shapes_97x61.png"), ("checks", "m5_checks_231x640.png")] {
        for (part, n) in [("train", 20), ("val", 4)] {
            let folder = dir.path().join("images").join(part).join(class);
            fs::create_dir_all(&folder).unwrap();
            for i in 0..n {
                fs::copy(pictures.join(picture), folder.join(format!("{i}.png"))).unwrap();
            }
        }
    }
    let binary = assert_cmd::cargo::cargo_bin!("zoo").parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let mut script = Command::new(root().join("examples/images.sh"));
    let said = script.args(["images", "run"]).current_dir(&dir).env("PATH", path).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success(), "{out}{err}");
    assert!(out.contains("classes: blobs, checks") && out.contains("on 8 images of image folder"), "{out}{err}");
    assert!(dir.path().join("run/report.html").exists());
}
