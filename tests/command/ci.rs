//! What CI systems read: JUnit XML and GitHub's annotations.

use crate::workbench::{command, root, said, zoo};
use std::fs;
use std::path::Path;

const SMALL: &str = "--golden tests/fixtures/golden/resnet50-small.json --dtype f64";

/// Text without what differs from run to run.
fn timeless(xml: &str) -> String {
    let mut parts = xml.split(" time=\"");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('"').map_or("", |(_, rest)| rest))
}

fn read(file: &Path) -> String {
    timeless(&fs::read_to_string(file).unwrap())
}

#[test]
fn a_check_writes_a_case_per_stage() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("reports/check.xml");
    let fault = "--set model.blocks.bottleneck.bn2.eps=1e-3 --format json";
    let said = zoo(&format!("check resnet50 {SMALL} {fault} --junit {}", file.display())).expect(1);
    assert_eq!(said.json()["verdict"], "fail");
    assert!(!said.err.contains("::error"), "{}", said.err);
    let xml = read(&file);
    assert!(xml.contains(r#"<testsuite name="resnet50 f64" tests="11" skipped="1" errors="0" failures="6">"#), "{xml}");
    assert!(xml.contains(r#"<testcase name="init" classname="zoo.check.resnet50_f64"/>"#), "{xml}");
    let forward = r#"<testcase name="forward" classname="zoo.check.resnet50_f64" file="recipes/resnet50.yaml" line="#;
    assert!(xml.contains(forward), "{xml}");
    assert!(xml.contains(r#"<failure message="first divergence in forward: layer1.0.bn2"#), "{xml}");
    assert!(xml.contains("- bn: {name: bn2}"), "the line of the recipe is quoted: {xml}");
    assert!(!xml.contains('\u{1b}') && !xml.contains("[1m"), "{xml}");
}

#[test]
fn a_check_that_cannot_be_made_is_an_error_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("check.xml");
    zoo(&format!("check tiny --recipes tests/fixtures/recipes --junit {}", file.display())).expect(3);
    let xml = read(&file);
    assert!(xml.contains(r#"tests="1" skipped="0" failures="0" errors="1""#), "{xml}");
    assert!(xml.contains("no golden"), "{xml}");
    let folder = dir.path().display();
    let said = zoo(&format!("check resnet50 {SMALL} --junit {folder}")).expect(2);
    assert!(said.err.contains("cannot be written"), "{}", said.err);
}

#[test]
fn a_run_writes_a_case_per_target() {
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str, sets: &[&str]| {
        let file = dir.path().join(format!("{name}.xml"));
        let mut run = command();
        run.args(["run", "tiny", "--recipes", "tests/fixtures/recipes", "--out"]).arg(dir.path().join(name));
        run.args(["--annotations", "github", "--junit"]).arg(&file);
        for set in sets {
            run.args(["--set", set]);
        }
        (said(&mut run), read(&file))
    };
    let (said, xml) = run("missed", &["target={metric: top5, value: 100%, also: [{metric: top1, value: 0%}]}"]);
    assert_eq!(said.code, Some(1));
    assert!(xml.contains(r#"<testsuite name="tiny full" tests="2" skipped="0" errors="0" failures="1">"#), "{xml}");
    assert!(xml.contains(r#"<testcase name="target top1" classname="zoo.run.tiny_full"/>"#), "{xml}");
    assert!(xml.contains("target 100.0 %"), "{xml}");
    assert!(said.err.contains("::error title=zoo%3A tiny full%2C target top5::top5 "), "{}", said.err);
    let (said, xml) = run("no-target", &[]);
    assert_eq!(said.code, Some(0));
    assert!(xml.contains("the recipe has no target for these data"), "{xml}");
    assert!(xml.contains(r#"<testsuite name="tiny golden" tests="1" skipped="1""#), "{xml}");
}

#[test]
fn github_is_told_beside_the_line_and_json_stays_json() {
    let planted = format!("check resnet50 {SMALL} --format json --set model.blocks.bottleneck.bn2.eps=1e-3");
    let check = |annotations: &[&str], github: bool| {
        let mut check = command();
        check.args(planted.split(' ')).args(annotations).env_remove("GITHUB_WORKSPACE");
        if github {
            check.env("GITHUB_ACTIONS", "true");
        }
        said(&mut check).expect(1)
    };
    for said in [check(&[], true), check(&["--annotations", "github"], false)] {
        said.json();
        let lines: Vec<&str> = said.err.lines().filter(|line| line.starts_with("::")).collect();
        assert_eq!(lines.len(), 1, "{}", said.err);
        let (properties, message) = lines[0].strip_prefix("::error ").unwrap().split_once("::").unwrap();
        assert!(properties.starts_with("file=recipes/resnet50.yaml,line="), "{properties}");
        assert!(properties.ends_with(",title=zoo%3A resnet50 f64%2C forward"), "{properties}");
        assert!(message.starts_with("first divergence in forward: layer1.0.bn2"), "{message}");
    }
    for said in [check(&[], false), check(&["--annotations", "none"], true)] {
        assert!(!said.err.contains("::error"), "{}", said.err);
    }
}

#[test]
fn mistakes_of_a_recipe_are_annotated() {
    let dir = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(root().join("tests/fixtures/recipes/tiny.yaml")).unwrap();
    let file = dir.path().join("tiny.yaml");
    fs::write(&file, text.replace("momentum: 0.9", "momentun: 0.9")).unwrap();
    for verb in ["validate", "check", "run"] {
        let mut run = command();
        run.arg(verb).arg(&file).env("GITHUB_ACTIONS", "true").env("GITHUB_WORKSPACE", dir.path());
        let err = said(&mut run).expect(2).err;
        let expected =
            "::error file=tiny.yaml,line=28,col=19,title=zoo::unknown key `momentun`%0Ahint: did you mean `momentum`?";
        assert!(err.lines().any(|line| line == expected), "{verb}: {err}");
    }
}
