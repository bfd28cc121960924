//! Help, completions, colours, and what a wrong command line gets.

use crate::workbench::{command, root, said, zoo};
use std::process::Stdio;

const VERBS: &[&str] = &[
    "",
    "ls",
    "show",
    "new",
    "validate",
    "check",
    "run",
    "eval",
    "bench",
    "bisect",
    "profile",
    "advise",
    "study",
    "score",
    "golden",
    "golden record",
    "golden diff",
    "export",
    "weights",
    "weights import",
    "weights export",
    "data",
    "data make",
    "data inspect",
    "schema",
    "completions",
];

#[test]
fn every_verb_explains_itself_with_examples() {
    for verb in VERBS {
        let help = zoo(&format!("{verb} --help")).expect(0);
        assert!(help.err.is_empty());
        if !["data", "golden", "weights"].contains(verb) {
            assert!(help.out.contains("Examples:\n  zoo "), "{verb} has no examples");
        }
        insta::assert_snapshot!(format!("help {verb}").trim().replace(' ', "-"), help.out);
    }
}

#[test]
fn examples_in_help_are_valid_command_lines() {
    for verb in VERBS {
        let help = zoo(&format!("{verb} --help")).out;
        for line in help.lines().filter_map(|line| line.strip_prefix("  zoo ")) {
            let line = line.split("  ").next().unwrap();
            let line = line.split(['|', '>']).next().unwrap();
            // `--help` behind it: everything before is parsed as far as clap goes, and nothing is done.
            zoo(&format!("{line} --help")).expect(0);
        }
    }
}

#[test]
fn the_version_is_the_package_s() {
    assert_eq!(zoo("--version").expect(0).out, concat!("zoo ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn a_wrong_command_line_is_refused() {
    for arguments in ["", "no-such-verb", "show", "check", "show resnet50 --no-such-option", "run resnet50 --threads 0"]
    {
        let refused = zoo(arguments).expect(2);
        assert!(refused.out.is_empty(), "{arguments}");
        assert!(refused.err.contains("Usage: zoo") || refused.err.contains("error: "), "{arguments}: {}", refused.err);
    }
    let missing = zoo("ls --recipes no/such/folder").expect(2);
    assert!(missing.err.contains("no/such/folder: no such folder"), "{}", missing.err);
}

#[test]
fn shells_get_their_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = zoo(&format!("completions {shell}")).expect(0);
        assert!(script.out.contains("zoo") && script.out.len() > 1000, "{shell}");
    }
    zoo("completions tcsh").expect(2);
}

#[test]
fn the_schema_is_the_one_beside_the_recipes() {
    for kind in ["recipe", "device", "study", "throughput"] {
        let printed: serde_json::Value = zoo(&format!("schema {kind}")).expect(0).json();
        let file = std::fs::read_to_string(root().join(format!("recipes/schema/{kind}.json"))).unwrap();
        assert!(printed == serde_json::from_str::<serde_json::Value>(&file).unwrap(), "{kind}.json is stale");
    }
}

#[test]
fn colour_is_for_terminals_and_those_who_ask() {
    let plain = zoo("ls").expect(0).out;
    assert!(!plain.contains('\u{1b}'));
    assert!(zoo("ls --color always").expect(0).out.contains('\u{1b}'));
    assert!(!said(command().args(["ls"]).env("NO_COLOR", "1")).out.contains('\u{1b}'));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("zoo"))
        .args(["show", "resnet50", "--graph"])
        .current_dir(root())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_reference_is_the_one_in_docs() {
    let dir = tempfile::tempdir().unwrap();
    let said = said(command().args(["schema", "--markdown"]).arg(dir.path())).expect(0);
    assert_eq!(said.out.lines().count(), 5);
    for page in said.out.lines().map(std::path::Path::new) {
        let name = page.file_name().unwrap();
        let kept = std::fs::read_to_string(root().join("docs").join(name)).unwrap_or_default();
        let advice = "zoo schema --markdown docs";
        assert!(kept == std::fs::read_to_string(page).unwrap(), "docs/{} is old: {advice}", name.display());
    }
    zoo("schema device --markdown docs").expect(2);
}
