//! Shell completion of names: recipes, profiles, devices, studies, and run folders.
//!
//! The shell runs this command again (`COMPLETE=bash zoo -- zoo check res`). This is fast, because names are file
//! names.

use crate::catalog::Catalog;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use zoo_npu::DeviceLibrary;
use zoo_train::{HOST, RunFolder};

/// Search depth for run folders below `runs`: those of `--repeat` are one level deeper.
const DEPTH: usize = 2;

/// Names of recipes, and files.
pub fn recipes() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| joined(names(word, recipe_names()), PathCompleter::file().complete(word)))
}

/// Names of recipes, folders of runs, and files.
pub fn runs_or_recipes() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| {
        let known = names(word, run_folders().into_iter().chain(recipe_names()));
        joined(known, PathCompleter::file().complete(word))
    })
}

/// Folders of runs, and other folders.
pub fn runs() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| joined(names(word, run_folders()), PathCompleter::dir().complete(word)))
}

/// Profiles of the recipe that the command line names.
pub fn profiles() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| names(word, profile_names()))
}

/// Simulated devices.
pub fn devices() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| names(word, device_names()))
}

/// Simulated devices, and this machine.
pub fn devices_or_host() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| names(word, device_names().into_iter().chain([HOST.to_owned()])))
}

/// Studies.
pub fn studies() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| {
        let studies = catalog().map(|catalog| zoo_npu::study::list(catalog.dirs())).unwrap_or_default();
        names(word, studies.into_iter().map(|(name, _)| name))
    })
}

/// Candidates that begin with the word.
fn names(word: &OsStr, all: impl IntoIterator<Item = String>) -> Vec<CompletionCandidate> {
    let Some(word) = word.to_str() else { return Vec::new() };
    all.into_iter().filter(|name| name.starts_with(word)).map(CompletionCandidate::new).collect()
}

/// The candidates of both lists without duplicates.
fn joined(mut some: Vec<CompletionCandidate>, more: Vec<CompletionCandidate>) -> Vec<CompletionCandidate> {
    let trimmed =
        |candidate: &CompletionCandidate| candidate.get_value().to_string_lossy().trim_end_matches('/').to_owned();
    let known: BTreeSet<String> = some.iter().map(trimmed).collect();
    some.extend(more.into_iter().filter(|candidate| !known.contains(&trimmed(candidate))));
    some
}

/// The words of the command line to complete.
fn words() -> Vec<String> {
    let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
    words.map(|word| word.to_string_lossy().into_owned()).collect()
}

fn catalog() -> Option<Catalog> {
    let words = words();
    let given = words.iter().zip(words.iter().skip(1)).filter(|(option, _)| *option == "--recipes");
    let folders: Vec<PathBuf> = given.map(|(_, folder)| folder.into()).collect();
    Catalog::new(&folders).ok()
}

fn recipe_names() -> Vec<String> {
    let recipes = catalog().map(|catalog| catalog.library().list()).unwrap_or_default();
    recipes.into_iter().map(|(name, _)| name).collect()
}

fn device_names() -> Vec<String> {
    let devices = catalog().map(|catalog| DeviceLibrary::new(catalog.dirs()).list()).unwrap_or_default();
    devices.into_iter().map(|(name, _)| name).collect()
}

fn profile_names() -> Vec<String> {
    let Some(catalog) = catalog() else { return Vec::new() };
    let known: BTreeSet<String> = catalog.library().list().into_iter().map(|(name, _)| name).collect();
    let is_recipe = |word: &&String| known.contains(*word) || word.ends_with(".yaml");
    let loaded = words().iter().find(is_recipe).and_then(|recipe| catalog.load(recipe, None, &[]).ok());
    loaded.map(|loaded| loaded.profiles).unwrap_or_default()
}

/// Run folders below `runs` in the working directory.
fn run_folders() -> Vec<String> {
    let folders = RunFolder::below(Path::new("runs"), DEPTH);
    let mut found: Vec<String> = folders.iter().filter_map(|folder| folder.to_str()).map(str::to_owned).collect();
    found.sort();
    found
}
