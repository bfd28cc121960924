//! Help, completions, colours, and what a wrong command line gets.

use crate::workbench::{command, root, said, zoo};
use clap::Parser;
use std::process::Stdio;

const VERBS: &[&str] = &[
    "",
    "ls",
    "show",
    "new",
    "import",
    "cp",
    "validate",
    "check",
    "judge",
    "run",
    "verdict",
    "report",
    "serve",
    "eval",
    "emit",
    "bench",
    "bisect",
    "profile",
    "advise",
    "study",
    "score",
    "golden",
    "golden record",
    "golden inputs",
    "golden export",
    "golden diff",
    "export",
    "weights",
    "weights import",
    "weights export",
    "data",
    "data make",
    "data sheet",
    "data inspect",
    "schema",
    "completions",
    "man",
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

/// The words of a command line, as a shell that knows single quotes would split it; up to the first pipe or
/// redirection.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for letter in line.chars() {
        match letter {
            '\'' => quoted = !quoted,
            '|' | '>' if !quoted => break,
            ' ' if !quoted => words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty())),
            letter => word.push(letter),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

#[test]
fn examples_in_help_are_valid_command_lines() {
    let mut parsed = 0;
    for verb in VERBS {
        let help = zoo(&format!("{verb} --help")).out;
        for line in help.lines().filter(|line| line.starts_with("  zoo ")) {
            // What is behind two blanks is explanation.
            let line = line.trim_start().split("  ").next().unwrap();
            if let Err(error) = zoo::Cli::try_parse_from(words(line)) {
                panic!("{line}: {error}");
            }
            parsed += 1;
        }
    }
    assert!(parsed > 80, "{parsed}");
}

#[test]
fn the_version_is_the_package_s() {
    let short = concat!("zoo ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(zoo("-V").expect(0).out, short);
    let cited = include_str!("../../CITATION.cff");
    assert!(cited.contains(concat!("\nversion: ", env!("CARGO_PKG_VERSION"), "\n")), "{cited}");
    let long = zoo("--version").expect(0).out;
    let rest = long.strip_prefix(short).unwrap_or_else(|| panic!("{long}"));
    let (commit, instructions) = rest.split_once('\n').unwrap();
    let commit = commit.strip_prefix("commit: ").unwrap();
    assert!(
        commit == "unknown" || commit.len() >= 12 && commit.chars().all(|digit| digit.is_ascii_hexdigit()),
        "{long}"
    );
    assert!(instructions.starts_with("instructions: ") && instructions.lines().count() == 1, "{long}");
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
        assert!(script.out.contains("zoo") && script.out.contains("COMPLETE"), "{shell}");
    }
    zoo("completions tcsh").expect(2);
}

#[test]
fn every_verb_has_its_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    let man = dir.path().join("man1");
    zoo(&format!("man {}", man.display())).expect(0);
    for verb in VERBS {
        let page = man.join(format!("zoo {verb}.1").trim().replace(' ', "-").replace("-.1", ".1"));
        let text = std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        assert!(text.contains(".SH SYNOPSIS"), "{verb}");
    }
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(zoo(&format!("man {}", file.display())).expect(2).err.contains("cannot be written"));
}

#[test]
fn what_is_misspelt_gets_a_proposal() {
    for (arguments, proposal) in [
        ("chek resnet50", "check"),
        ("check resnet50 --dtpye f64", "--dtype"),
        ("show resnet5O", "resnet50"),
        ("show resnet50 --profile mimi", "mini"),
        ("profile resnet50 --device ascend901", "ascend910"),
        ("show resnet50 --set train.bach=3", "`batch`"),
    ] {
        let refused = zoo(arguments).expect(2);
        assert!(refused.err.contains(proposal), "{arguments}: {}", refused.err);
    }
}

#[test]
fn the_schema_is_the_one_beside_the_recipes() {
    for kind in ["recipe", "device", "study", "throughput", "events"] {
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
    let said = said(command().args(["schema", "--markdown"]).arg(dir.path().join("new/docs"))).expect(0);
    assert_eq!(said.out.lines().count(), 5);
    for page in said.out.lines().map(std::path::Path::new) {
        let name = page.file_name().unwrap();
        let kept = std::fs::read_to_string(root().join("docs").join(name)).unwrap_or_default();
        let advice = "zoo schema --markdown docs";
        assert!(kept == std::fs::read_to_string(page).unwrap(), "docs/{} is old: {advice}", name.display());
    }
    zoo("schema device --markdown docs").expect(2);
}

#[test]
fn verbs_of_other_tools_are_understood() {
    assert_eq!(zoo("list").expect(0).out, zoo("ls").expect(0).out);
    for (verb, same) in [("help run", "run --help"), ("train --help", "run --help"), ("test --help", "check --help")] {
        assert_eq!(zoo(verb).expect(0).out, zoo(same).expect(0).out, "{verb}");
    }
}

#[test]
fn weights_are_written_in_the_format_that_their_name_says() {
    let refused = zoo("weights import resnet50 x.pth --out x.bin").expect(2);
    assert!(refused.err.contains(".safetensors, .pth, .pt or .ckpt"), "{}", refused.err);
}

/// The request of the shell when a word is completed.
#[test]
fn names_complete() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("runs/first");
    std::fs::create_dir_all(&run).unwrap();
    std::fs::write(run.join("events.jsonl"), "").unwrap();
    let complete = |words: &str| {
        let mut zoo = command();
        let words: Vec<&str> = words.split('|').collect();
        zoo.arg("--").arg("zoo").args(&words).current_dir(&folder).env("XDG_CACHE_HOME", folder.path());
        zoo.env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", words.len().to_string());
        zoo.env("_CLAP_COMPLETE_COMP_TYPE", "9").env("_CLAP_COMPLETE_SPACE", "true").env("_CLAP_IFS", "\n");
        said(&mut zoo).expect(0).out
    };
    for (words, expected) in [
        ("check|resnet1", "resnet18"),
        ("run|resnet50|--profile|m", "mini"),
        ("profile|resnet50|--device|gaudi", "gaudi2"),
        ("eval|runs/f", "runs/first"),
        ("report|r", "runs/first"),
        ("study|db", "db-underflow"),
        ("adv", "advise"),
    ] {
        let said = complete(words);
        assert!(said.lines().any(|line| line == expected), "{words}: {said}");
    }
}

#[test]
fn a_misspelt_command_gets_only_its_near_miss() {
    let refused = zoo("chek resnet50").expect(2);
    assert!(refused.err.contains("'check'") && !refused.err.contains("schema"), "{}", refused.err);
    let refused = zoo("compare runs/a runs/b").expect(2);
    assert!(refused.err.contains("'report'") && !refused.err.contains("'score'"), "{}", refused.err);
    assert!(zoo("prof resnet50").expect(2).err.contains("exists: 'profile'"));
    assert!(!zoo("carrots").expect(2).err.contains("similar"));
}

#[test]
fn an_unknown_option_named_like_a_setting_points_to_set() {
    let refused = zoo("run resnet50 --epochs 3").expect(2);
    assert!(refused.err.contains("--set train.epochs=3"), "{}", refused.err);
}

#[test]
fn a_folder_is_not_a_recipe() {
    let refused = zoo("run recipes").expect(2);
    assert!(refused.err.contains("`recipes` is a folder, not a recipe"), "{}", refused.err);
}
