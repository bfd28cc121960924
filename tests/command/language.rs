//! `run`, `eval` and `data` on a network that continues text, small enough to train in seconds.

use crate::workbench::{Said, command, said};
use std::fs;
use std::path::Path;

const RECIPES: [&str; 2] = ["--recipes", "tests/fixtures/recipes"];

fn language(verb: &[&str], path: Option<(&str, &Path)>) -> Said {
    let mut run = command();
    run.args(verb).args(RECIPES).args(["--format", "json"]);
    if let Some((option, path)) = path {
        run.arg(option).arg(path);
    }
    said(&mut run)
}

#[test]
fn a_language_model_is_trained_and_evaluated() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let target = ["run", "tiny_language", "--set", "target={metric: perplexity, value: 29}"];
    let trained = language(&target, Some(("--out", &out))).expect(0);
    assert!(trained.err.contains("a unigram model reaches cross_entropy"), "{}", trained.err);
    let lines = trained.lines();
    assert_eq!(lines.iter().filter(|event| event["event"] == "step").count(), 12);
    let evaluated = lines.iter().rfind(|event| event["event"] == "evaluated").unwrap();
    let metrics: Vec<&str> =
        evaluated["scores"].as_array().unwrap().iter().map(|score| score["metric"].as_str().unwrap()).collect();
    assert_eq!(metrics, ["perplexity", "bits_per_character"]);
    let evaluation = language(&["eval", "tiny_language"], Some(("--checkpoint", &out))).expect(0).json();
    let loss = evaluation["loss"].as_f64().unwrap();
    assert!(loss < 29f64.ln(), "{loss}");
    let score = |metric: &str| evaluation["scores"][metric].as_f64().unwrap();
    assert!((score("perplexity") - loss.exp()).abs() < 1e-9 * loss.exp());
    assert!((score("bits_per_character") - loss / 2f64.ln()).abs() < 1e-12);
}

#[test]
fn a_run_reads_other_files_by_its_own_characters() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let out = dir.path().join("run");
    let out_text = out.to_str().unwrap();
    let text = file("a.txt", &"the cat sat on a mat. ".repeat(60));
    let trained = language(&["run", "tiny_language", "--out", out_text], Some(("--data", &text))).expect(0);
    assert!(trained.err.contains("model.classes is 11"), "{}", trained.err);
    // Fewer characters than the network knows: their numbers stay.
    let other = file("b.txt", &"a mat sat. ".repeat(60));
    let evaluated = language(&["eval", out_text], Some(("--data", &other))).expect(0).json();
    assert!(evaluated["loss"].as_f64().unwrap() < 11f64.ln(), "{evaluated}");
    let unknown = file("c.txt", &"a mat\nsits. ".repeat(60));
    let refused = language(&["eval", out_text], Some(("--data", &unknown))).expect(3);
    assert!(refused.err.contains("c.txt:1:6: '\\n' is not in the vocabulary of 11 characters"), "{}", refused.err);
}

#[test]
fn a_text_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("a.txt");
    fs::write(&text, "ab".repeat(500)).unwrap();
    let json = language(&["data", "inspect", "tiny_language"], Some(("--data", &text))).expect(0).json();
    let (train, val) = (&json["splits"][0], &json["splits"][1]);
    assert_eq!((&train["characters"], &train["samples"]), (&900.into(), &56.into()));
    assert_eq!((&val["characters"], &val["samples"], &val["distinct"]), (&100.into(), &6.into(), &2.into()));
}

#[test]
fn a_run_continues_a_prompt() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    language(&["run", "tiny_language", "--set", "target=~"], Some(("--out", &out))).expect(0);
    let run = out.to_str().unwrap();
    let asked = |more: &[&str]| language(&[&["eval", run, "--length", "30"], more].concat(), None);
    let continued = |more: &[&str]| {
        let report = asked(&[&["--prompt", "the fox"], more].concat()).expect(0).json();
        assert_eq!(report["prompt"], "the fox");
        report["continuation"].as_str().unwrap().to_owned()
    };
    let first = continued(&[]);
    assert_eq!(first.chars().count(), 30);
    assert_eq!(continued(&[]), first);
    assert_ne!(continued(&["--seed", "1"]), first);
    assert_eq!(continued(&["--temperature", "0", "--seed", "1"]), continued(&["--temperature", "0"]));
    let text = said(command().args(["eval", run, "--prompt", "the fox", "--length", "30"]).args(RECIPES)).expect(0);
    assert_eq!(text.out, format!("the fox{first}\n"));
    let unknown = asked(&["--prompt", "the fox: 7"]).expect(2);
    assert!(unknown.err.contains("the prompt contains ':', which is not in the vocabulary"), "{}", unknown.err);
    assert!(asked(&["--prompt", ""]).expect(2).err.contains("the prompt is empty"));
    assert!(asked(&["--prompt", "a", "--temperature", "-1"]).expect(2).err.contains("not negative"));
}

#[test]
fn only_text_is_continued() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    said(command().args(["run", "tiny", "--no-check", "--set", "target=~"]).args(RECIPES).arg("--out").arg(&out))
        .expect(0);
    let refused = said(command().arg("eval").arg(&out).args(["--prompt", "a"]).args(RECIPES)).expect(2);
    assert!(refused.err.contains("`tiny` is not a language model"), "{}", refused.err);
}
