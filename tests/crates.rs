//! Checks the dependencies between crates, and the location of `unsafe` code. ARCHITECTURE.md explains why.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use toml::Table;

/// Each crate and the crates that it may import, tests and benchmarks included. The map has no circle: a crate comes
/// after all it imports.
const CRATES: &[(&str, &str, &[&str])] = &[
    ("zoo-settings", "harness/settings", &[]),
    ("zoo-datasets", "datasets", &["zoo-settings"]),
    ("zoo-kernels", "harness/engine/kernels", &[]),
    ("zoo-ranks", "harness/ranks", &[]),
    ("zoo-tensors", "harness/tensors", &["zoo-datasets"]),
    ("zoo-measured", "harness/measured", &[]),
    ("zoo-graph", "harness/graph", &[]),
    ("zoo-recipe", "harness/recipe", &["zoo-graph", "zoo-settings"]),
    ("zoo-tasks", "harness/tasks", &["zoo-recipe", "zoo-datasets"]),
    ("zoo-pages", "harness/pages", &["zoo-recipe"]),
    ("zoo-npu", "harness/npu", &["zoo-recipe", "zoo-graph", "zoo-pages", "zoo-measured"]),
    ("zoo-onnx", "harness/onnx", &["zoo-recipe", "zoo-graph"]),
    ("zoo-import", "harness/import", &["zoo-recipe", "zoo-graph"]),
    ("zoo-engine", "harness/engine", &["zoo-recipe", "zoo-graph", "zoo-kernels", "zoo-ranks"]),
    (
        "zoo-golden",
        "harness/golden",
        &["zoo-recipe", "zoo-datasets", "zoo-graph", "zoo-tasks", "zoo-engine", "zoo-tensors"],
    ),
    (
        "zoo-train",
        "harness/train",
        &[
            "zoo-recipe",
            "zoo-datasets",
            "zoo-graph",
            "zoo-tasks",
            "zoo-engine",
            "zoo-pages",
            "zoo-ranks",
            "zoo-tensors",
        ],
    ),
    (
        "zoo",
        "",
        &[
            "zoo-recipe",
            "zoo-datasets",
            "zoo-graph",
            "zoo-tasks",
            "zoo-npu",
            "zoo-measured",
            "zoo-onnx",
            "zoo-import",
            "zoo-pages",
            "zoo-engine",
            "zoo-golden",
            "zoo-tensors",
            "zoo-train",
            "zoo-kernels",
            "zoo-ranks",
        ],
    ),
];

/// The only crate that may contain `unsafe`.
const UNSAFE: &str = "zoo-kernels";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn manifest(folder: &Path) -> Table {
    let path = folder.join("Cargo.toml");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).parse().unwrap()
}

/// Names of workspace crates among the dependencies of a manifest, of any kind.
fn imports(manifest: &Table) -> BTreeSet<String> {
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    let tables = kinds.iter().filter_map(|kind| manifest.get(*kind)?.as_table());
    tables.flat_map(|table| table.keys().cloned()).filter(|name| name.starts_with("zoo-") || name == "zoo").collect()
}

#[test]
fn every_crate_is_listed() {
    let mut folders: BTreeSet<PathBuf> = BTreeSet::new();
    for pattern in manifest(&root())["workspace"]["members"].as_array().unwrap() {
        let pattern = pattern.as_str().unwrap();
        match pattern.strip_suffix("/*") {
            Some(parent) => folders.extend(
                fs::read_dir(root().join(parent))
                    .unwrap()
                    .map(|entry| entry.unwrap().path())
                    .filter(|path| path.join("Cargo.toml").is_file())
                    .map(|path| path.strip_prefix(root()).unwrap().to_owned()),
            ),
            None => {
                folders.insert(pattern.into());
            }
        }
    }
    let listed: BTreeSet<PathBuf> =
        CRATES.iter().map(|(_, folder, _)| folder.into()).filter(|f: &PathBuf| f != Path::new("")).collect();
    assert_eq!(folders, listed);
}

#[test]
fn imports_run_one_way() {
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for (name, folder, allowed) in CRATES {
        let manifest = manifest(&root().join(folder));
        assert_eq!(manifest["package"]["name"].as_str(), Some(*name));
        let allowed: BTreeSet<String> = allowed.iter().map(|name| name.to_string()).collect();
        let imports = imports(&manifest);
        let surplus: Vec<_> = imports.difference(&allowed).collect();
        assert!(surplus.is_empty(), "{name} must not import {surplus:?}");
        assert!(allowed.iter().all(|name| known.contains(name.as_str())), "{name} comes before what it imports");
        known.insert(name);
    }
}

#[test]
fn only_kernels_are_unsafe() {
    let workspace = &manifest(&root())["workspace"]["lints"]["rust"];
    assert_eq!(workspace["unsafe_code"].as_str(), Some("forbid"));
    let inherits: BTreeMap<&str, bool> = CRATES
        .iter()
        .map(|(name, folder, _)| {
            let manifest = manifest(&root().join(folder));
            (*name, manifest["lints"].get("workspace").and_then(|value| value.as_bool()) == Some(true))
        })
        .collect();
    let own_rules: Vec<_> = inherits.iter().filter(|(_, inherits)| !**inherits).map(|(name, _)| *name).collect();
    assert_eq!(own_rules, [UNSAFE]);
}
