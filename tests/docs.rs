//! The documentation: what it shows is what the commands print, links lead somewhere, lines fit.
//!
//! CONTRIBUTING.md describes the markings. `UPDATE_DOCS=1 cargo test --release --test docs` replaces what is shown by
//! what the commands print.

use assert_cmd::Command;
use clap::Parser;
use clap::error::ErrorKind;
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use zoo::Cli;
use zoo_recipe::schema::{Metric, Unit};

/// README.md stays readable in a few minutes.
const README_BYTES: usize = 10 * 1024;
const PROSE_CHARACTERS: usize = 120;

/// A fenced block of a page.
struct Block {
    language: String,
    /// Contents of the comments on the lines before it.
    marks: Vec<String>,
    /// Its lines in the page, without the fences.
    lines: Range<usize>,
}

impl Block {
    fn is_marked(&self, mark: &str) -> bool {
        self.marks.iter().any(|it| it == mark)
    }

    /// What a mark that begins so names.
    fn named(&self, mark: &str) -> Option<&str> {
        self.marks.iter().find_map(|it| it.strip_prefix(mark))
    }
}

/// A command of a block, and the lines of its page that show what it prints.
struct Shown {
    command: String,
    output: Range<usize>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README.md and what is directly in docs/, but for what is generated.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "md"))
        .filter(|path| !path.file_name().unwrap().to_str().unwrap().starts_with("recipe-reference"))
        .collect();
    pages.push(root().join("README.md"));
    pages.sort();
    pages
}

/// The pages whose commands are not for a reader to repeat, too.
fn all_texts() -> Vec<PathBuf> {
    let others = [
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "golden/README.md",
        "datasets/README.md",
        "datasets/fonts/README.md",
        "examples/README.md",
    ];
    pages().into_iter().chain(others.map(|path| root().join(path))).collect()
}

fn name(page: &Path) -> String {
    page.strip_prefix(root()).unwrap().display().to_string()
}

fn blocks(lines: &[&str]) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut marks = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in lines.iter().enumerate() {
        if let Some(language) = line.strip_prefix("```") {
            open = match open {
                None => Some((number + 1, language.to_owned())),
                Some((first, language)) => {
                    blocks.push(Block { language, marks: std::mem::take(&mut marks), lines: first..number });
                    None
                }
            };
        } else if open.is_none() {
            match line.strip_prefix("<!-- ").and_then(|it| it.strip_suffix(" -->")) {
                Some(mark) => marks.push(mark.to_owned()),
                None => marks.clear(),
            }
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

/// Commands of a block of the language `console`, each with what follows it.
fn shown(lines: &[&str], block: &Block) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    for number in block.lines.clone() {
        match (lines[number].strip_prefix("$ "), all.last_mut()) {
            (Some(command), _) => all.push(Shown { command: command.to_owned(), output: number + 1..number + 1 }),
            (None, Some(last)) => last.output.end = number + 1,
            (None, None) => panic!("line {}: output without a command", number + 1),
        }
    }
    all
}

/// Commands of an `sh` block; they continue after a backslash.
fn commands(lines: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in lines {
        match all.last_mut() {
            Some(last) if last.ends_with('\\') => *last += &format!("\n{line}"),
            _ => all.push((*line).to_owned()),
        }
    }
    all
}

/// A folder with recipes that may be written to, and links to what commands read.
fn workplace() -> TempDir {
    let folder = TempDir::new().unwrap();
    let script = r#"cp -r "$0/recipes" . && ln -s "$0/golden" "$0/docs" "$0/tests" "$0/examples" ."#;
    Command::new("sh").arg("-c").arg(script).arg(root()).current_dir(&folder).assert().success();
    folder
}

/// What a command prints, stdout and stderr together.
fn run(command: &str, folder: &Path) -> Vec<String> {
    let binary = assert_cmd::cargo::cargo_bin!("zoo").parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh")
        .args(["-c", &format!("exec 2>&1\n{command}")])
        .current_dir(folder)
        .env("PATH", path)
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env_remove("CLICOLOR_FORCE")
        .env_remove("COLUMNS")
        .env_remove("GITHUB_ACTIONS")
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().trim_end().lines().map(|line| line.trim_end().to_owned()).collect()
}

/// If a command calls zoo, itself or by a launcher such as mpirun: whether zoo takes its arguments, as the shell splits
/// them.
fn parse(command: &str, folder: &Path) -> Result<(), String> {
    let call = if command.starts_with("zoo ") { Some(0) } else { command.find(" zoo ") };
    let Some(command) = call.map(|at| &command[at..]) else { return Ok(()) };
    let script = format!("zoo() {{ printf '%s\\0' zoo \"$@\"; }}\n{command}");
    let output = Command::new("sh").args(["-c", &script]).current_dir(folder).output().unwrap();
    let arguments = String::from_utf8(output.stdout).unwrap();
    match Cli::try_parse_from(arguments.split_terminator('\0')) {
        Err(error) if !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Err(error.to_string())
        }
        _ => Ok(()),
    }
}

/// A line as it is compared: where figures vary, words with a digit are all the same, in lines that have some also
/// words with parts (`fc.bias`: another tensor may be the worst one), and blanks do not count.
fn compared(line: &str, figures_vary: bool) -> String {
    if !figures_vary {
        return line.trim_end().to_owned();
    }
    let has_digit = |text: &str| text.contains(|c: char| c.is_ascii_digit());
    let has_parts = |word: &str| word.contains('.') && word.split('.').all(|part| !part.is_empty());
    let varies = |word: &str| has_digit(word) || has_digit(line) && has_parts(word);
    let words = line.split_whitespace().map(|word| if varies(word) { "#" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// Whether lines are those shown, where `...` stands for any number of them.
fn agree(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first == "..." => (0..=printed.len()).any(|skipped| agree(rest, &printed[skipped..])),
        Some((first, rest)) => printed.first() == Some(first) && agree(rest, &printed[1..]),
    }
}

/// Runs or parses the commands of a page: what is wrong, and the page as it should be.
fn examine(text: &str) -> (String, String) {
    let lines: Vec<&str> = text.lines().collect();
    let folder = workplace();
    let mut wrong = String::new();
    let mut replacements: Vec<(Range<usize>, Vec<String>)> = Vec::new();
    for block in blocks(&lines) {
        let content = lines[block.lines.clone()].join("\n") + "\n";
        if let Some(file) = block.named("file: ") {
            fs::write(folder.path().join(file), content).unwrap();
        } else if let Some(file) = block.named("excerpt: ") {
            if !fs::read_to_string(folder.path().join(file)).unwrap().contains(&content) {
                writeln!(wrong, "line {}: {file} has other lines", block.lines.start + 1).unwrap();
            }
        } else if block.language == "sh" {
            for command in commands(&lines[block.lines.clone()]) {
                if let Err(error) = parse(&command, folder.path()) {
                    writeln!(wrong, "line {}: {command}\n{error}", block.lines.start + 1).unwrap();
                }
            }
        } else if block.language == "console" {
            for Shown { command, output } in shown(&lines, &block) {
                let place = output.start;
                if block.is_marked("no_run") {
                    if let Err(error) = parse(&command, folder.path()) {
                        writeln!(wrong, "line {place}: {command}\n{error}").unwrap();
                    }
                    continue;
                }
                assert!(command.starts_with("zoo "), "line {place}: only zoo is run, others are marked no_run");
                let figures_vary = block.is_marked("figures vary");
                let printed = run(&command, folder.path());
                let expected: Vec<String> = lines[output.clone()].iter().map(|it| compared(it, figures_vary)).collect();
                let got: Vec<String> = printed.iter().map(|it| compared(it, figures_vary)).collect();
                if !agree(&expected, &got) {
                    writeln!(wrong, "line {place}: {command} prints\n{}", printed.join("\n")).unwrap();
                    if !figures_vary && !expected.iter().any(|it| it == "...") {
                        replacements.push((output, printed));
                    }
                }
            }
        }
    }
    let mut mended: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
    for (range, printed) in replacements.into_iter().rev() {
        mended.splice(range, printed);
    }
    (wrong, mended.join("\n") + "\n")
}

#[test]
fn what_is_shown_is_what_commands_print() {
    let update = std::env::var_os("UPDATE_DOCS").is_some();
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let pages: Vec<_> = pages()
            .into_iter()
            .map(|page| {
                scope.spawn(move || {
                    let text = fs::read_to_string(&page).unwrap();
                    let (wrong, mended) = examine(&text);
                    if update && mended != text {
                        fs::write(&page, mended).unwrap();
                    }
                    (!wrong.is_empty()).then(|| format!("{}, {wrong}", name(&page)))
                })
            })
            .collect();
        pages.into_iter().filter_map(|page| page.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_output_agrees_only_if_every_line_does() {
    let lines = |text: &str| text.lines().map(|line| compared(line, false)).collect::<Vec<_>>();
    assert!(agree(&lines("a\n...\nd"), &lines("a\nb\nc\nd")));
    assert!(agree(&lines("a\n..."), &lines("a")));
    assert!(!agree(&lines("a\n...\nd"), &lines("a\nb\nd\ne")));
    assert!(!agree(&lines("a\nb"), &lines("a")));
    assert!(!agree(&lines("a 1"), &lines("a 2")));
    assert_eq!(compared("error   1.2e-3 (pass)", true), compared("error 9.9e1   (pass)", true));
    assert_ne!(compared("error 1.2e-3 pass", true), compared("error 1.2e-3 fail", true));
}

#[test]
fn readme_is_short_and_prose_fits_a_screen() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.len() <= README_BYTES, "README.md has {} bytes", readme.len());
    let mut wide = String::new();
    for page in all_texts() {
        let text = fs::read_to_string(&page).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let blocks = blocks(&lines);
        for (number, line) in lines.iter().enumerate() {
            let prose = !line.starts_with('|')
                && !line.starts_with("    ")
                && !blocks.iter().any(|it| it.lines.contains(&number));
            if prose && line.chars().count() > PROSE_CHARACTERS {
                writeln!(wide, "{}:{}", name(&page), number + 1).unwrap();
            }
            assert!(
                !line.starts_with("    $ "),
                "{}:{}: a command outside of a console block",
                name(&page),
                number + 1
            );
        }
    }
    assert!(wide.is_empty(), "lines of more than {PROSE_CHARACTERS} characters:\n{wide}");
}

/// Recipe, target, golden and step of each recipe, as the commands say them.
#[test]
fn the_table_of_recipes_has_what_the_commands_say() {
    let folder = workplace();
    let json = |command: &str| serde_json::from_str::<Value>(&run(command, folder.path()).join("\n")).unwrap();
    let [all, some] = ["docs/recipes.md", "README.md"].map(|page| {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let table = text.lines().skip_while(|line| !line.starts_with("| recipe |")).skip(2);
        table.take_while(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    });
    assert!(some.len() > 5 && some.iter().all(|row| all.contains(row)), "README has rows that docs/recipes.md has not");
    let shown: Vec<[String; 4]> = all
        .iter()
        .map(|row| row.split('|').map(str::trim).collect::<Vec<_>>())
        .map(|cells| [1, 3, 5, 6].map(|column| cells[column].to_owned()))
        .collect();
    let said: Vec<[String; 4]> = json("zoo ls --format json")["recipes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|recipe| {
            let name = recipe["name"].as_str().unwrap();
            let target = match recipe["target"]["value"].as_f64() {
                Some(value) => {
                    let metric: Metric = serde_json::from_value(recipe["target"]["metric"].clone()).unwrap();
                    let value = match metric.unit() {
                        Unit::Share => format!("{:.1}", 100.0 * value),
                        Unit::Plain => metric.unit().format(value),
                    };
                    format!("{metric} {value}")
                }
                None => "none".to_owned(),
            };
            let golden = if recipe["golden"].is_null() { "none" } else { "PyTorch" };
            let price = json(&format!("zoo profile {name} --format json"));
            let step = format!("{:.1} / {}", price["step_ms"].as_f64().unwrap(), price["batch"]);
            [name.to_owned(), target, golden.to_owned(), step]
        })
        .collect();
    assert_eq!(shown, said);
}

/// The anchor that a heading gets.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut broken = String::new();
    for page in all_texts() {
        let text = fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.starts_with("http") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let found = fs::exists(&target).unwrap()
                && (heading.is_empty()
                    || fs::read_to_string(&target)
                        .unwrap()
                        .lines()
                        .any(|line| line.starts_with('#') && anchor(line) == heading));
            if !found {
                writeln!(broken, "{}: {link}", name(&page)).unwrap();
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{broken}");
}
