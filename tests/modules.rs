//! The order of modules inside crates: no circles among the modules of a folder, and no module imports what stands above
//! it, in a module that contains it. A module with parts is `name.rs` beside the folder `name`.
//!
//! Imports are all paths that begin with `crate` or `super`, in uses and in expressions. A path to a re-export leads to
//! the module that defines the item. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The sources of the crates whose modules are in order.
const IN_ORDER: &[&str] = &["zoo", "harness/measured/src", "harness/npu/src", "harness/settings/src"];

/// The sources of the crates without circles among modules, some of which import from the module around them: a trait
/// and the enum of all that implement it.
const WITHOUT_CIRCLES: &[&str] = &[
    "harness/engine/kernels/src",
    "harness/engine/src",
    "harness/golden/src",
    "harness/onnx/src",
    "harness/pages/src",
    "harness/ranks/src",
    "harness/recipe/src",
    "harness/tensors/src",
    "harness/train/src",
];

/// The names of a module and of those around it, from the root of the crate.
type ModulePath = Vec<String>;

/// A path in a source: its names, and the name under which it is imported.
type Import = Vec<String>;

/// The modules of a crate, one per file.
#[derive(Default)]
struct Modules {
    /// All imports of each.
    imports: BTreeMap<ModulePath, Vec<Import>>,
    /// What each names again: `pub use` of paths, by name.
    again: BTreeMap<ModulePath, BTreeMap<String, Import>>,
}

/// A text without comments, strings and characters.
fn code(text: &str) -> String {
    let (mut kept, mut rest) = (String::new(), text);
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |at| at + 2),
            '"' => quoted(rest),
            'r' if !kept.ends_with(is_word) && (rest.starts_with("r\"") || rest.starts_with("r#")) => {
                let hashes = rest[1..].bytes().take_while(|byte| *byte == b'#').count();
                match rest[1 + hashes..].strip_prefix('"') {
                    Some(inner) => {
                        let end = format!("\"{}", "#".repeat(hashes));
                        inner.find(&end).map_or(rest.len(), |at| 2 + hashes + at + end.len())
                    }
                    None => 0,
                }
            }
            '\'' if rest.starts_with("'\\") => rest[2..].find('\'').map_or(rest.len(), |at| at + 3),
            '\'' => rest
                .chars()
                .nth(2)
                .filter(|third| *third == '\'')
                .map_or(0, |_| 2 + rest[1..].chars().next().map_or(0, char::len_utf8)),
            _ => 0,
        };
        if length == 0 {
            kept.push(first);
        }
        rest = &rest[length.max(first.len_utf8())..];
    }
    kept
}

/// The length of a string at the beginning of a text.
fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            _ => escaped = c == '\\' && !escaped,
        }
    }
    text.len()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The code without modules of tests.
fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.find([';', '{']).map_or(rest.len(), |at| at);
        rest = match rest[end..].starts_with('{') {
            true => &rest[end + block(&rest[end..])..],
            false => &rest[(end + 1).min(rest.len())..],
        };
    }
    kept + rest
}

/// The length of a block in braces.
fn block(text: &str) -> usize {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

/// All paths at the beginning of a text, of which `before` were read: several if it ends in braces. Each is followed by
/// the name that it gets.
fn paths(text: &str, before: &[String], found: &mut Vec<(Import, String)>) {
    let text = text.trim_start();
    if let Some(inner) = text.strip_prefix('{') {
        let inner = &inner[..block(text) - 2];
        let mut depth = 0;
        let parts = inner.split(|c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            c == ',' && depth == 0
        });
        parts.filter(|part| !part.trim().is_empty()).for_each(|part| paths(part, before, found));
        return;
    }
    let end = text.find(|c| !is_word(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let mut path = before.to_vec();
    if !(name.is_empty() || name == "self" && !before.is_empty()) {
        path.push(name.to_owned());
    }
    match rest.strip_prefix("::") {
        Some(rest) if rest.trim_start().starts_with(|c: char| is_word(c) || c == '{') => paths(rest, &path, found),
        _ => {
            let renamed = rest.trim_start().strip_prefix("as ").map(|rest| rest.trim_start());
            let renamed = renamed.map(|rest| rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())].to_owned());
            let name = renamed.or_else(|| path.last().cloned()).unwrap_or_default();
            found.push((path, name));
        }
    }
}

/// All paths of a code that begin with `crate` or `super`.
fn imports(code: &str) -> Vec<Import> {
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let before = &code[..at];
            // The second `super` of a path, a visibility, or the end of another word.
            if !before.ends_with("::") && !before.ends_with("(in ") && !before.ends_with(is_word) {
                paths(&code[at..], &[], &mut found);
            }
        }
    }
    found.into_iter().map(|(path, _)| path).collect()
}

/// What a code names again, for other modules.
fn named_again(code: &str) -> BTreeMap<String, Import> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let line = code[..at].rsplit(['\n', ';', '}']).next().unwrap_or_default().trim();
        if line.starts_with("pub") && !code[..at].ends_with(is_word) {
            paths(&code[at + "use ".len()..], &[], &mut found);
        }
    }
    found.into_iter().map(|(path, name)| (name, path)).collect()
}

impl Modules {
    /// The modules of the sources in a folder.
    fn read(folder: &Path) -> Self {
        let mut modules = Self::default();
        modules.add(folder, &Vec::new());
        assert!(modules.imports.len() > 1, "no modules in {}", folder.display());
        modules
    }

    fn add(&mut self, folder: &Path, around: &ModulePath) {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        for path in entries {
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let is_root = around.is_empty() && ["main", "build"].contains(&stem.as_str());
            if is_root || ["tests", "testing"].contains(&stem.as_str()) {
                continue;
            }
            let mut module = around.clone();
            if stem != "lib" {
                module.push(stem);
            }
            if path.is_dir() {
                self.add(&path, &module);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let code = without_tests(&code(&fs::read_to_string(&path).unwrap()));
                self.again.insert(module.clone(), named_again(&code));
                self.imports.insert(module, imports(&code));
            }
        }
    }

    /// The module to which a path in `module` leads; none outside of the crate.
    fn target(&self, module: &ModulePath, path: &[String]) -> Option<ModulePath> {
        let mut at = module.clone();
        let mut names = path.iter().peekable();
        match names.peek()?.as_str() {
            "crate" => {
                at.clear();
                names.next();
            }
            "super" => {}
            first => {
                at.push(first.to_owned());
                names.next();
                if !self.imports.contains_key(&at) {
                    return None;
                }
            }
        }
        for name in names {
            if name == "super" {
                at.pop()?;
                continue;
            }
            if name == "self" {
                continue;
            }
            at.push(name.clone());
            if !self.imports.contains_key(&at) {
                at.pop();
                return match self.again.get(&at).and_then(|again| again.get(name)) {
                    Some(path) => self.target(&at, path),
                    None => Some(at),
                };
            }
        }
        Some(at)
    }

    /// Imports from modules that contain the importing one, and circles among the modules of a folder.
    fn faults(&self) -> [Vec<String>; 2] {
        let mut upwards = BTreeSet::new();
        let mut beside: BTreeMap<ModulePath, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for (module, imports) in &self.imports {
            for target in imports.iter().filter_map(|path| self.target(module, path)) {
                let common = module.iter().zip(&target).take_while(|(own, other)| own == other).count();
                match (module.get(common), target.get(common)) {
                    (Some(own), Some(other)) => {
                        let folder = beside.entry(module[..common].to_vec()).or_default();
                        folder.entry(own.clone()).or_default().insert(other.clone());
                    }
                    (Some(_), None) => {
                        upwards.insert(format!("{} imports {}", shown(module), shown(&target)));
                    }
                    (None, _) => {}
                }
            }
        }
        let circles = beside.iter().filter_map(|(folder, edges)| {
            let circle = circle(edges)?;
            Some(format!("in {}: {}", shown(folder), circle.join(" -> ")))
        });
        [upwards.into_iter().collect(), circles.collect()]
    }
}

fn shown(module: &[String]) -> String {
    std::iter::once("crate").chain(module.iter().map(String::as_str)).collect::<Vec<_>>().join("::")
}

/// A circle of imports, if there is one: what is left after all without imports are taken away again and again.
fn circle(edges: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    let mut left = edges.clone();
    loop {
        let open: BTreeSet<String> = left.keys().cloned().collect();
        left.values_mut().for_each(|targets| targets.retain(|target| open.contains(target)));
        let before = left.len();
        left.retain(|_, targets| !targets.is_empty());
        if left.len() == before {
            break;
        }
    }
    let mut walk = vec![left.keys().next()?.clone()];
    loop {
        let next = left[walk.last()?].first()?.clone();
        if let Some(start) = walk.iter().position(|name| *name == next) {
            walk.push(next);
            return Some(walk.split_off(start));
        }
        walk.push(next);
    }
}

#[test]
fn modules_are_in_order() {
    let faults = |folder: &str| Modules::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).faults();
    for folder in IN_ORDER {
        let faults = faults(folder).concat();
        assert!(faults.is_empty(), "{folder}:\n{}", faults.join("\n"));
    }
    for folder in WITHOUT_CIRCLES {
        let [_, circles] = faults(folder);
        assert!(circles.is_empty(), "{folder}:\n{}", circles.join("\n"));
    }
}

/// The files `mod.rs` below a folder.
fn mod_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() && !path.ends_with("target") {
            found.extend(mod_files(&path));
        } else if path.ends_with("mod.rs") {
            found.push(path);
        }
    }
    found
}

#[test]
fn modules_stand_beside_their_folders() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found: Vec<_> =
        ["datasets", "harness", "tests", "zoo"].iter().flat_map(|name| mod_files(&root.join(name))).collect();
    assert!(found.is_empty(), "name.rs instead: {found:?}");
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("tests/a")).unwrap();
    fs::write(dir.path().join("tests/a/mod.rs"), "").unwrap();
    assert_eq!(mod_files(dir.path()).len(), 1);
}

#[test]
fn planted_circles_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path: PathBuf = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("lib.rs", "mod a;\nmod b;\nmod c;\npub use c::{Inner as Outer, deep::Deep};\npub struct Own;");
    write("a.rs", "//! crate::Own\nuse crate::{b::{self, B}, Outer}; const TEXT: &str = \"crate::Own\";");
    write("b.rs", "pub struct B; // crate::a\n#[cfg(test)]\nmod tests { use crate::a::A; }");
    write("c.rs", "pub mod deep; pub struct Inner;");
    write("c/deep.rs", "pub struct Deep;\npub(in crate::c) fn f() -> char { '\"' }");
    let faults = || Modules::read(dir.path()).faults().concat();
    assert!(faults().is_empty(), "{:?}", faults());
    write("c/deep.rs", "fn f(inner: super::Inner) {}");
    assert_eq!(faults(), ["crate::c::deep imports crate::c"]);
    write("c/deep.rs", "fn f() { crate::Own; }");
    assert_eq!(faults(), ["crate::c::deep imports crate"]);
    write("c/deep.rs", "use crate::a;");
    assert_eq!(faults(), ["in crate: a -> c -> a"]);
    write("c/deep.rs", "");
    write("b.rs", "use super::a as first;");
    assert_eq!(faults(), ["in crate: a -> b -> a"]);
}
