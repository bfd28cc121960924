//! `report` on a network that trains in a second.

use crate::workbench::{Said, command, said};
use std::fs;
use std::path::Path;

fn run(out: &Path, recipe: &str, rest: &[&str]) -> Said {
    let mut run = command();
    run.args(["run", recipe, "--recipes", "tests/fixtures/recipes", "--out"]).arg(out);
    said(run.args(rest)).expect(0)
}

/// Pages take nothing from elsewhere, and whoever does not see them is told what there is.
fn self_contained(page: &str) {
    for forbidden in ["http://", "https://", "<script", "<link", "url(", "@import"] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    for (element, name) in [("<svg ", "aria-labelledby="), ("<svg ", "role=\"img\""), ("<img ", "alt=\"")] {
        for part in page.split(element).skip(1) {
            let tag = part.split_once('>').unwrap().0;
            assert!(tag.contains(name), "{element} without {name}: {tag}");
        }
    }
}

#[test]
fn runs_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    run(&a, "tiny", &["--set", "target={metric: top1, value: 0%}"]);
    run(&b, "tiny", &["--set", "optimizer.sgd.momentum=0.5", "--set", "train.seed=1"]);
    let page = dir.path().join("page.html");
    let report = |rest: &[&str]| said(command().arg("report").args([&a, &b]).args(rest));
    let json = report(&["--format", "json"]).expect(0).json();
    assert_eq!((&json["runs"][0]["met"], &json["runs"][1]["seed"]), (&true.into(), &1.into()));
    let paths: Vec<&str> = json["settings"].as_array().unwrap().iter().map(|s| s["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["optimizer.sgd.momentum", "target", "train.seed"]);
    assert_eq!(json["settings"][0]["values"], serde_json::json!(["0.9", "0.5"]));
    assert!(json["runs"][0]["simulated_step"][1].as_f64().unwrap() > 0.0);
    let text = report(&["--html", page.to_str().unwrap()]).expect(0);
    assert!(text.out.contains("optimizer.sgd.momentum  0.9 | 0.5"), "{}", text.out);
    let html = fs::read_to_string(&page).unwrap();
    self_contained(&html);
    for part in [
        "1 of 1 runs with a target met it, 1 have none",
        "Training loss, smoothed",
        "optimizer.sgd.momentum",
        "Resolved recipe of",
    ] {
        assert!(html.contains(part), "{part}");
    }
    // A run is compared with itself: nothing differs.
    let same = said(command().arg("report").args([&a, &a])).expect(0);
    assert!(same.out.contains("none: the settings and the seed are the same"), "{}", same.out);
    // Its own page is rewritten.
    fs::remove_file(a.join("report.html")).unwrap();
    said(command().arg("report").arg(&a)).expect(0);
    let own = fs::read_to_string(a.join("report.html")).unwrap();
    self_contained(&own);
    for part in ["Simulated cost on ascend910", "Timeline of one step", "git revision", "vector instructions"] {
        assert!(own.contains(part), "{part}");
    }
    assert!(said(command().args(["report", "no/such/run"])).expect(2).err.contains("no/such/run"));
    said(command().arg("report")).expect(2);
}

#[test]
fn results_stand_beside_those_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let folders: Vec<_> = (0..2).map(|seed| dir.path().join(seed.to_string())).collect();
    for (seed, folder) in folders.iter().enumerate() {
        run(
            folder,
            "tiny",
            &["--set", "target={metric: top1, value: 0%, of: A paper}", "--set", &format!("train.seed={seed}")],
        );
    }
    let json = said(command().arg("report").args(&folders).args(["--format", "json"])).expect(0).json();
    let [a, b] = [0, 1].map(|run| json["runs"][run]["achieved"].as_f64().unwrap());
    let log = fs::read_to_string(folders[0].join("events.jsonl")).unwrap();
    let started: serde_json::Value = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .find(|event: &serde_json::Value| event["event"] == "started")
        .unwrap();
    // Two others with the steps and samples of these runs, and one with other steps.
    let others = dir.path().join("others.jsonl");
    let other = |value: f64, seconds: u64, seed: u64, more: u64| {
        let (steps, held_out) = (started["steps"].as_u64().unwrap() + more, &started["val_samples"]);
        format!(
            "{{\"recipe\": \"tiny\", \"by\": \"Other 1\", \"metric\": \"top1\", \"value\": {value}, \"seconds\": {seconds}, \"seed\": {seed}, \"steps\": {steps}, \"held_out\": {held_out}}}\n"
        )
    };
    fs::write(&others, other(0.5, 10, 3, 0) + &other(0.7, 20, 4, 0) + &other(0.9, 20, 5, 1)).unwrap();
    let page = dir.path().join("results.md");
    let report = |folders: &[std::path::PathBuf]| {
        said(
            command()
                .arg("report")
                .args(folders)
                .arg("--against")
                .arg(&others)
                .arg("--markdown")
                .arg(&page)
                .args(["--note", "Drawn."]),
        )
    };
    report(&folders).expect(0);
    let text = fs::read_to_string(&page).unwrap();
    // Deviations by hand: |0.7 - 0.5| / sqrt(2) and |a - b| / sqrt(2).
    let sigma = 100.0 * (a - b).abs() / 2f64.sqrt();
    for row in [
        "| A paper | 0.0 % | | | |".to_owned(),
        "| Other 1 | 60.00 % | 14.14 % | 15 s | 3, 4 |".to_owned(),
        format!("| zoo | {:.2} % | {sigma:.2} % |", 50.0 * (a + b)),
    ] {
        assert!(text.contains(&row), "{row} in {text}");
    }
    assert!(text.matches("\n## ").count() == 1 && text.contains("\n\nDrawn.\n\n## "), "{text}");
    // The page says what the data are, and claims nothing about them.
    assert!(text.contains("Data: generated characters, 16x16 pixels; 96 samples to train on, 40 held out."), "{text}");
    assert!(text.contains(" 2 epochs, 12 steps") && !text.contains("published data"), "{text}");
    let short = dir.path().join("short");
    run(&short, "tiny", &["--profile", "short"]);
    report(&[short]).expect(0);
    assert!(fs::read_to_string(&page).unwrap().contains(" 1 epoch, 6 steps"));
    report(&folders).expect(0);
    let verdict = |margin: &str| {
        said(command().arg("verdict").args(&folders).arg("--against").arg(&others).args(["--margin", margin]))
    };
    let judged = verdict("100%").expect(0).out;
    assert!(judged.contains("Other 1") && judged.contains("60.0 %"), "{judged}");
    fs::write(&others, other(0.5, 10, 3, 0) + &other(0.9, 20, 5, 1)).unwrap();
    assert!(verdict("100%").expect(2).err.contains("include 1 of tiny with "));
    fs::write(&others, other(0.5, 10, 3, 0) + "{\"recipe\": 1}\n").unwrap();
    assert!(report(&folders).expect(3).err.contains("others.jsonl:2: "));
    assert!(report(&[dir.path().to_owned()]).expect(2).err.contains("no run in this folder"));
}

#[test]
fn pages_show_what_was_found() {
    let dir = tempfile::tempdir().unwrap();
    for (recipe, expected) in [("tiny_text", " detected of "), ("tiny_track", " frames, mean overlap ")] {
        let out = dir.path().join(recipe);
        run(&out, recipe, &[]);
        let page = fs::read_to_string(out.join("report.html")).unwrap();
        self_contained(&page);
        assert!(page.contains("src=\"data:image/png;base64,"), "{recipe}");
        assert!(page.contains(expected), "{recipe}");
        assert!(page.len() < 4 << 20, "{recipe}: {} bytes", page.len());
    }
}

/// The browser, where there is one.
fn chromium(arguments: &[&str], page: &Path) -> Option<std::process::Output> {
    let profile = tempfile::tempdir().unwrap();
    let mut browser = std::process::Command::new("chromium");
    // Without a network: what the page would fetch is an error on its console.
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]);
    browser.args(["--enable-logging=stderr", &format!("--user-data-dir={}", profile.path().display())]);
    match browser.args(arguments).arg(format!("file://{}", page.display())).output() {
        Ok(output) => Some(output),
        Err(_) => {
            eprintln!("skipped: chromium is not installed");
            None
        }
    }
}

#[test]
fn a_browser_shows_and_prints_the_page_without_network() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), "tiny_text", &[]);
    let page = dir.path().join("report.html");
    let written = fs::read_to_string(&page).unwrap();
    let Some(shown) = chromium(&["--dump-dom"], &page) else { return };
    let (dom, log) = (String::from_utf8_lossy(&shown.stdout), String::from_utf8_lossy(&shown.stderr));
    for element in ["<svg", "<figure", "<table", "<img", "<details"] {
        assert_eq!(dom.matches(element).count(), written.matches(element).count(), "{element}");
    }
    assert!(!log.contains("CONSOLE"), "{log}");
    let pdf = dir.path().join("page.pdf");
    let Some(printed) = chromium(&[&format!("--print-to-pdf={}", pdf.display())], &page) else { return };
    let log = String::from_utf8_lossy(&printed.stderr);
    let content = fs::read(&pdf).unwrap_or_else(|_| panic!("nothing was printed: {log}"));
    // Closed details are printed too: the resolved recipe takes a page of its own.
    let pages = content.windows(b"/Type /Page\n".len()).filter(|window| window == b"/Type /Page\n").count();
    assert!(pages >= 2, "{pages} pages");
}
