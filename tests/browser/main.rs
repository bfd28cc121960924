//! The pages in a real browser: at the widths of a phone, a tablet and a desk, light and dark, nothing overlaps or is
//! cut, and the console stays empty.
//!
//! `apt-get install chromium`, then `cargo test --release --test browser -- --ignored`. With SCREENSHOTS=DIR pictures
//! are kept. A page is opened in a frame of the wanted width, because a browser without a screen has no window as
//! narrow as a phone.

mod server;

use assert_cmd::Command;
use serde_json::Value;
use server::Server;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use tempfile::TempDir;

const WIDTHS: [u32; 3] = [360, 768, 1400];
const SCHEMES: [&str; 2] = ["light", "dark"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Trainings of seconds may miss their target: pages are what is looked at.
fn zoo(folder: &Path, arguments: &[&str]) {
    let recipes = root().join("tests/fixtures/recipes");
    let mut zoo = Command::new(assert_cmd::cargo::cargo_bin!("zoo"));
    zoo.current_dir(folder).arg("--recipes").arg(recipes).arg("--recipes").arg(root().join("recipes")).args(arguments);
    zoo.env("XDG_CACHE_HOME", folder.join("cache")).assert().code(vec![0, 1]);
}

/// Ends `zoo serve`.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs, their comparison and a profile in a folder, and `zoo serve` over the runs.
struct Site {
    folder: TempDir,
    server: Server,
    _served: Served,
}

impl Site {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path();
        zoo(path, &["run", "digits", "--repeat", "2", "--out", "runs/digits"]);
        zoo(path, &["run", "tiny", "--out", "runs/a-run-with-a-rather-long-name-for-a-narrow-screen"]);
        let runs =
            ["runs/digits/seed-0", "runs/digits/seed-1", "runs/a-run-with-a-rather-long-name-for-a-narrow-screen"];
        zoo(path, &[&["report"], &runs[..], &["--html", "comparison.html"]].concat());
        zoo(path, &["profile", "resnet50", "--devices", "8", "--what-if", "--html", "profile.html"]);
        let mut zoo = std::process::Command::new(assert_cmd::cargo::cargo_bin!("zoo"));
        zoo.args(["serve", "runs", "--port", "0"]).current_dir(path).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut served = Served(zoo.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(served.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().trim_end_matches('/').rsplit(':').next().unwrap().parse().unwrap();
        let server = Server::start(path.to_owned(), port);
        Self { folder, server, _served: served }
    }

    /// What the browser finds on a page, after a script of the frame's around it has done its work.
    fn look(&self, page: &str, width: u32, scheme: &str, action: &str) -> Value {
        let profile = self.folder.path().join("browser");
        let url = format!(
            "http://127.0.0.1:{}/frame?width={width}&scheme={scheme}&action={action}&page={page}",
            self.server.port()
        );
        let dark = if scheme == "dark" { 0 } else { 1 };
        let mut browser = std::process::Command::new("chromium");
        browser
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(format!("--blink-settings=preferredColorScheme={dark}"))
            .args(["--virtual-time-budget=8000", "--window-size=1500,1000"]);
        // A picture is taken by a browser of its own, and a run can be interrupted only once.
        if let Some(folder) = std::env::var_os("SCREENSHOTS").filter(|_| action != "live") {
            let name = format!("{}-{width}-{scheme}-{action}.png", page.replace(['/', '?', '=', '.', '%'], "_"));
            let mut shot = std::process::Command::new("chromium");
            shot.args(browser.get_args()).arg("--window-size=1500,4000");
            shot.arg(format!("--screenshot={}", PathBuf::from(folder).join(name).display())).arg(&url);
            shot.stderr(Stdio::null()).status().unwrap();
        }
        let output = browser.arg("--dump-dom").arg(&url).output().expect("chromium starts");
        let (dom, messages) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let console: Vec<&str> = messages.lines().filter(|line| line.contains("CONSOLE")).collect();
        assert!(console.is_empty(), "{page}: {console:#?}");
        let found = dom.split_once("<pre id=\"found\">").and_then(|(_, rest)| rest.split_once("</pre>"));
        let (found, _) = found.unwrap_or_else(|| panic!("{page}: nothing was found in\n{dom}\n{messages}"));
        let found = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        serde_json::from_str(&found).unwrap_or_else(|error| panic!("{page}: {error}: {found}"))
    }
}

#[test]
#[ignore = "needs chromium"]
fn nothing_overlaps_or_is_cut() {
    let site = Site::new();
    let long = "a-run-with-a-rather-long-name-for-a-narrow-screen";
    let pages = [
        "file/runs/digits/seed-0/report.html".to_owned(),
        format!("file/runs/{long}/report.html"),
        "file/comparison.html".to_owned(),
        "file/profile.html".to_owned(),
        String::new(),
        format!("run%3Frun={long}"),
        format!("compare%3Frun=digits%252Fseed-0%26run={long}"),
    ];
    let mut wrong = Vec::new();
    for page in &pages {
        for width in WIDTHS {
            for scheme in SCHEMES {
                let found = site.look(page, width, scheme, "none");
                assert_eq!(found["width"], width, "{page}");
                assert_eq!(found["dark"], scheme == "dark", "{page}");
                for fault in found["faults"].as_array().unwrap() {
                    wrong.push(format!("/{page} at {width}, {scheme}: {}", fault.as_str().unwrap()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "needs chromium"]
fn runs_are_ticked_and_compared() {
    let site = Site::new();
    let found = site.look("", 768, "light", "compare");
    assert!(found["address"].as_str().unwrap().starts_with("/compare?run="), "{found}");
    assert!(found["title"].as_str().unwrap().contains("2 runs"), "{found}");
}

#[test]
#[ignore = "needs chromium"]
fn a_page_follows_its_run() {
    let site = Site::new();
    let found = site.look("run%3Frun=digits%252Fseed-0", 768, "light", "live");
    assert!(found["before"].as_str().unwrap().starts_with("target met: top1"), "{found}");
    assert!(found["after"].as_str().unwrap().starts_with("interrupted after step"), "{found}");
}
