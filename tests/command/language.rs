//! `run`, `eval` and `data` on networks that continue text or find hidden characters, small enough to train in seconds.

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

/// e^710 is no f64: such a perplexity is null in all files.
#[test]
fn a_perplexity_beyond_all_numbers_is_missed() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let mut run = command();
    run.args(["run", "tiny_language", "--no-check", "--format", "json", "--out"]).arg(&out).args(RECIPES);
    run.args(["--set", "schedule={constant: {base_lr: 20}}", "--set", "target={metric: perplexity, value: 60}"]);
    let result = said(&mut run).expect(1).lines().pop().unwrap();
    assert_eq!((&result["event"], &result["met"]), (&"result".into(), &false.into()));
    assert!(result["achieved"].is_null(), "{result}");
    let mut eval = command();
    let evaluation = said(eval.args(["eval", "--format", "json"]).args(RECIPES).arg(&out)).expect(1).json();
    assert!(evaluation["scores"]["perplexity"].is_null() && evaluation["loss"].as_f64().unwrap() > 709.0);
    let judged = said(command().arg("verdict").arg(&out)).expect(1);
    assert!(judged.out.contains("1 of 1 runs did not reach a finite perplexity"), "{}", judged.out);
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("target missed"), "{page}");
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

/// The path of a tokenizer that the tests of `zoo-datasets` use, too: 256 bytes, `th`, `the` and ` the`.
const BYTE_PAIRS: &str = "data.source={text_file: {path: none, tokenizer: datasets/tests/tokenizers/byte_pairs.json}}";

#[test]
fn text_is_read_with_a_tokenizer() {
    let dir = tempfile::tempdir().unwrap();
    let texts = dir.path().join("texts");
    fs::create_dir(&texts).unwrap();
    for name in ["a.txt", "b.txt"] {
        fs::write(texts.join(name), "the cat saw the mouse in the house.\n".repeat(20)).unwrap();
    }
    let out = dir.path().join("run");
    let run = out.to_str().unwrap();
    let trained =
        language(&["run", "tiny_language", "--set", BYTE_PAIRS, "--out", run], Some(("--data", &texts))).expect(0);
    assert!(trained.err.contains("model.classes is 259"), "{}", trained.err);
    assert!(trained.err.contains("2 texts in "), "{}", trained.err);
    // Bits per character: tokens are longer than one.
    let evaluated = language(&["eval", run], None).expect(0).json();
    let (loss, bits) = (&evaluated["loss"], &evaluated["scores"]["bits_per_character"]);
    let share = bits.as_f64().unwrap() * 2f64.ln() / loss.as_f64().unwrap();
    // A line of 36 characters has 28 tokens: `the`, twice ` the`, and 25 others.
    assert!((share - 28.0 / 36.0).abs() < 1e-9, "{share}");
    let json = language(&["data", "inspect", "tiny_language", "--set", BYTE_PAIRS], Some(("--data", &texts))).expect(0);
    assert_eq!(json.json()["splits"][0]["characters"], 1296);
    let asked = ["eval", run, "--prompt", "the cat é", "--length", "12", "--temperature", "0"];
    let report = language(&asked, None).expect(0).json();
    assert!(report["continuation"].as_str().unwrap().len() >= 12, "{report}");
    let none = ["run", "tiny_language", "--set", "data.source={text_file: {path: none, tokenizer: Cargo.toml}}"];
    let refused = language(&none, Some(("--data", &texts))).expect(3);
    assert!(refused.err.contains("Cargo.toml: invalid tokenizer: "), "{}", refused.err);
    let both = format!("{}, vocabulary: ab}}}}", BYTE_PAIRS.trim_end_matches('}'));
    let refused = language(&["check", "tiny_language", "--set", &both], None).expect(2);
    assert!(refused.err.contains("a vocabulary of characters beside a tokenizer"), "{}", refused.err);
}

#[test]
fn hidden_characters_are_found_and_pairs_judged() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let run = out.to_str().unwrap();
    let target = ["run", "tiny_masked", "--set", "target={metric: masked_accuracy, value: 0.01}"];
    let trained = language(&target, Some(("--out", &out))).expect(0);
    assert!(trained.err.contains("the most frequent token reaches masked_accuracy"), "{}", trained.err);
    assert!(trained.err.contains("between the two neighbours reaches masked_accuracy"), "{}", trained.err);
    let evaluated = || language(&["eval", run], None).expect(0).json();
    let scores = evaluated()["scores"].clone();
    let score = |name: &str| scores[name].as_f64().unwrap();
    assert!(score("masked_accuracy") > 0.05 && score("masked_accuracy") < 1.0, "{scores}");
    assert!(score("next_sentence_accuracy") > 0.0, "{scores}");
    // The same tokens are hidden in each evaluation.
    assert_eq!(evaluated()["scores"], scores);
    let refused = language(&["eval", run, "--prompt", "the fox"], None).expect(2);
    assert!(refused.err.contains("`tiny_masked` does not predict the next token"), "{}", refused.err);
}

#[test]
fn texts_without_pairs_of_sentences_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("a.txt");
    fs::write(&text, "one sentence.\n".repeat(40)).unwrap();
    let refused = language(&["run", "tiny_masked"], Some(("--data", &text))).expect(3);
    assert!(refused.err.contains("1 document; pairs of sentences take at least 2"), "{}", refused.err);
    fs::write(&text, "one sentence.\nanother one.\n\n".repeat(40)).unwrap();
    let given = |more: &[&str]| language(&[&["run", "tiny_masked", "--set", "target=~"], more].concat(), None);
    let path = text.to_str().unwrap();
    let trained = given(&["--data", path, "--out", dir.path().join("b").to_str().unwrap()]).expect(0);
    // 12 characters, the line break and the four special tokens.
    assert!(trained.err.contains("model.classes is 16"), "{}", trained.err);
    let refused = given(&["--data", path, "--set", BYTE_PAIRS]).expect(3);
    assert!(refused.err.contains("it has no token `[MASK]` or `<mask>`"), "{}", refused.err);
}

#[test]
fn only_text_is_continued() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    said(command().args(["run", "tiny", "--no-check", "--set", "target=~"]).args(RECIPES).arg("--out").arg(&out))
        .expect(0);
    let refused = said(command().arg("eval").arg(&out).args(["--prompt", "a"]).args(RECIPES)).expect(2);
    assert!(refused.err.contains("`tiny` does not predict the next token of a text"), "{}", refused.err);
}
