//! `zoo serve`: what it answers, and whom.

use crate::workbench::{command, zoo};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

/// Ends the server.
struct Served {
    child: Child,
    port: u16,
}

impl Served {
    fn start(folder: &std::path::Path) -> Self {
        let mut zoo = std::process::Command::new(assert_cmd::cargo::cargo_bin!("zoo"));
        let mut child = zoo.arg("serve").arg(folder).args(["--port", "0"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().strip_prefix("http://127.0.0.1:").unwrap().trim_end_matches('/').parse().unwrap();
        Self { child, port }
    }

    fn ask(&self, method: &str, target: &str, host: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(stream, "{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn get(&self, target: &str) -> String {
        self.ask("GET", target, &format!("127.0.0.1:{}", self.port))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn runs_are_served_to_this_machine_and_nothing_else_is() {
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path().join("runs");
    let out = |name: &str| runs.join(name).display().to_string();
    for (name, seed) in [("first one", 0), ("inner/second", 1)] {
        let mut run = command();
        run.args(["run", "tiny", "--recipes", "tests/fixtures/recipes", "--out", &out(name)]);
        run.args(["--set", &format!("train.seed={seed}")]);
        assert!(run.output().unwrap().status.code().is_some_and(|code| code < 2));
    }
    std::fs::write(dir.path().join("events.jsonl"), "secret").unwrap();
    let served = Served::start(&runs);
    let list = served.get("/");
    assert!(
        list.starts_with("HTTP/1.1 200") && list.contains("first one") && list.contains("inner&#x2f;second"),
        "{list}"
    );
    assert!(list.contains("href=\"&#x2f;run?run=first+one\""), "{list}");
    let page = served.get("/run?run=first+one");
    assert!(page.contains("Resolved recipe") && page.contains("<script src=\"/live.js\""), "{page}");
    assert!(served.get("/compare?run=first+one&run=inner%2Fsecond").contains("2 runs"));
    assert!(served.get("/live.js").contains("text/javascript"));
    for refused in ["/run?run=..", "/run?run=inner", "/run?run=%2Fetc", "/run", "/events.jsonl", "/../events.jsonl"] {
        assert!(served.get(refused).starts_with("HTTP/1.1 404"), "{refused}");
    }
    assert!(served.get("/compare").starts_with("HTTP/1.1 400"));
    let own = format!("localhost:{}", served.port);
    assert!(served.ask("GET", "/", &own).starts_with("HTTP/1.1 200"));
    assert!(served.ask("POST", "/", &own).starts_with("HTTP/1.1 405"));
    assert!(served.ask("GET", "/", "example.com").starts_with("HTTP/1.1 403"));
    let taken = zoo(&format!("serve {} --port {}", runs.display(), served.port)).expect(2);
    assert!(taken.err.contains("choose another with --port"), "{}", taken.err);
    assert!(zoo("serve no/such/folder").expect(2).err.contains("no such folder"));
}
