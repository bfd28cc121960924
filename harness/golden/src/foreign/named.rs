//! Reads tensors by name: a safetensors file, an `.npz`, a dictionary of reprod_log, a file of `torch.save`, or a
//! folder of these and of `.npy` files.

use super::{
    Entry, Format, Names, Quantity, Recording,
    content::{Claim, Content, Statistics, torch},
    json, malformed,
    names::{KEYS, Meaning},
    rank_facts::{Held, RankFacts},
};
use crate::GoldenError;
use indexmap::IndexMap;
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Seek},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
use zoo_datasets::files;
use zoo_graph::parallel::MeshAxis;
use zoo_tensors::{ElementType, dictionary, format, npz::Npz, pth, safetensors::Reader};

/// Deepest folder below the given one. Parts of a name can be folders.
const DEEPEST: usize = 8;
/// Largest number of files in a folder.
const MOST_FILES: usize = 1_000_000;
/// Largest `capture.json`.
const MOST_BYTES: u64 = 256 << 20;
/// Largest file of a dictionary of arrays.
const LARGEST_DICTIONARY: u64 = 16 << 30;
/// Longest header of an `.npy` file.
const LONGEST_HEADER: u64 = 4096;
/// What `zoo_golden.capture` says of the tensors that it wrote.
const CAPTURE: &str = "capture.json";

/// `capture.json`.
#[derive(Deserialize)]
struct Capture {
    zoo_capture: u32,
    /// The factor on the recorded gradients; null if it is not finite.
    #[serde(default, deserialize_with = "said")]
    loss_scale: Option<Option<f64>>,
    #[serde(default)]
    ranks: Option<RankFacts>,
    tensors: IndexMap<String, Captured>,
}

/// A value that is there, perhaps as null.
fn said<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Option<f64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Description of a tensor in `capture.json`; null if not finite.
#[derive(Deserialize)]
struct Captured {
    shape: Vec<usize>,
    max: Option<f64>,
    min: Option<f64>,
    mean: Option<f64>,
    norm: Option<f64>,
    /// What the rank has of it, if its program says so.
    #[serde(default)]
    placed: Option<BTreeMap<MeshAxis, Held>>,
}

/// Opens the file or folder at `path`.
pub(super) fn open(path: &Path, names: &Names) -> Result<Recording, GoldenError> {
    let mut found: Vec<(String, Content)> = Vec::new();
    if path.is_dir() {
        folder(path, path, 0, &mut found)?;
        if found.is_empty() {
            return Err(malformed(
                path,
                "there is no recording in this folder: neither dump.json nor .safetensors, .npz, .npy or .pt",
            ));
        }
    } else {
        file(path, &mut found)?;
    }
    let (claims, loss_scale, ranks) = claims(path, &found)?;
    // A file of tensors may be sorted by name; capture.json has the order in which they were recorded.
    found.sort_by_key(|(name, _)| claims.get_index_of(name).unwrap_or(usize::MAX));
    let mut recording = Recording { loss_scale, ranks, ..Recording::of(path, Format::Named) };
    let unsound = claims.iter().filter(|(_, claim)| claim.is_unsound());
    recording.not_finite = unsound.map(|(name, _)| name.clone()).collect();
    for (name, content) in found {
        let (micro_batch, key) = micro_batch(&name);
        match names.meaning(key, Quantity::parse(key)) {
            Meaning::Quantity(quantity) => {
                let claim = claims.get(&name).cloned().unwrap_or_default();
                recording.entries.push(Entry { name, quantity, content, claim, micro_batch });
            }
            Meaning::Ignored => *recording.not_compared.entry("ignored by names.yaml").or_default() += 1,
            Meaning::Unknown => recording.unknown.push(name),
        }
    }
    if recording.entries.is_empty() {
        let example = recording.unknown.first().map_or(String::new(), |name| format!(" (the first is `{name}`)"));
        let message = format!(
            "none of its {} names is one of a step{example}: they are {KEYS}; names.yaml says what others mean",
            recording.unknown.len()
        );
        return Err(malformed(path, message));
    }
    Ok(recording)
}

/// The micro-batch of a name, `micro1/out/fc#0`, and the rest.
fn micro_batch(name: &str) -> (usize, &str) {
    let parts = name.strip_prefix("micro").and_then(|rest| rest.split_once('/'));
    parts.and_then(|(number, key)| Some((number.parse().ok()?, key))).unwrap_or((0, name))
}

/// Adds the files of a folder and its subfolders.
fn folder(root: &Path, at: &Path, depth: usize, found: &mut Vec<(String, Content)>) -> Result<(), GoldenError> {
    let unreadable = GoldenError::unreadable(at);
    let listed: Result<Vec<_>, _> = fs::read_dir(at).map_err(unreadable)?.collect();
    let mut paths: Vec<PathBuf> = listed.map_err(unreadable)?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if found.len() > MOST_FILES || depth > DEEPEST {
            let message = format!("more than {MOST_FILES} tensors, or folders nested deeper than {DEEPEST}");
            return Err(malformed(root, message));
        }
        let name = path.strip_prefix(root).unwrap_or(&path).with_extension("");
        let name = name.to_string_lossy().into_owned();
        let extension = path.extension().and_then(|extension| extension.to_str());
        match extension {
            _ if path.is_dir() => folder(root, &path, depth + 1, found)?,
            Some("npy") if is_dictionary(&path)? => file(&path, found)?,
            Some("npy") => found.push((name, Content::Npy(path))),
            Some("pt" | "pth") => found.push((name, Content::Torch(path))),
            Some("safetensors" | "npz") => file(&path, found)?,
            _ => {}
        }
    }
    Ok(())
}

/// Whether an `.npy` file holds a dictionary of arrays, as those of reprod_log.
fn is_dictionary(path: &Path) -> Result<bool, GoldenError> {
    let unreadable = GoldenError::unreadable(path);
    let (file, _) = files::open(path).map_err(unreadable)?;
    let mut start = Vec::new();
    file.take(LONGEST_HEADER).read_to_end(&mut start).map_err(unreadable)?;
    Ok(dictionary::is_one(&start))
}

/// Takes what a file holds, which its content tells.
fn file(path: &Path, found: &mut Vec<(String, Content)>) -> Result<(), GoldenError> {
    let unreadable = GoldenError::unreadable(path);
    let (mut file, _) = files::open(path).map_err(unreadable)?;
    if !pth::is_zip(&file).map_err(unreadable)? {
        let mut start = [0; 6];
        let read = file.read(&mut start).map_err(unreadable)?;
        if start[..read] == *b"\x93NUMPY" && is_dictionary(path)? {
            let bytes = files::read(path, LARGEST_DICTIONARY).map_err(unreadable)?;
            let arrays = dictionary::parse(&bytes).map_err(|reason| malformed(path, reason))?.into_iter();
            found.extend(arrays.map(|(name, array)| (name, Content::Kept(path.to_owned(), array))));
            return Ok(());
        }
        if start[..read] == *b"\x93NUMPY" {
            let message = "one array and no name: name the folder, or write several with numpy.savez";
            return Err(malformed(path, message));
        }
        if let Some(foreign) = format::foreign(path).map_err(unreadable)? {
            return Err(malformed(path, foreign.to_string()));
        }
        let reader = Arc::new(Reader::open(path)?);
        let names: Vec<String> = reader.names().into_iter().map(str::to_owned).collect();
        found.extend(names.into_iter().map(|name| (name.clone(), Content::Safetensors(Arc::clone(&reader), name))));
        return Ok(());
    }
    file.rewind().map_err(unreadable)?;
    let archive = Npz::open(file).map_err(|reason| malformed(path, reason))?;
    let names = archive.names();
    if names.is_empty() {
        let arrays = torch(path)?.into_iter();
        found.extend(arrays.map(|(name, array)| (name, Content::Kept(path.to_owned(), array))));
        return Ok(());
    }
    let archive = Arc::new(Mutex::new(archive));
    found.extend(names.into_iter().map(|name| {
        let content = Content::Npz(Arc::clone(&archive), path.to_owned(), name.clone());
        (name, content)
    }));
    Ok(())
}

/// What `capture.json` says: about the tensors, the loss scale, and the rank.
type Claims = (IndexMap<String, Claim>, Option<f64>, Option<RankFacts>);

/// The statements of `capture.json` next to the tensors, if it exists.
fn claims(path: &Path, found: &[(String, Content)]) -> Result<Claims, GoldenError> {
    let manifest = path.join(CAPTURE);
    if !manifest.is_file() {
        return Ok((IndexMap::new(), None, None));
    }
    let text = files::read(&manifest, MOST_BYTES).map_err(GoldenError::unreadable(&manifest))?;
    let capture: Capture = json::parse(&text).map_err(|error| malformed(&manifest, error.to_string()))?;
    if capture.zoo_capture != 1 {
        return Err(malformed(&manifest, format!("a capture of format {}, and this zoo reads 1", capture.zoo_capture)));
    }
    let absent = capture.tensors.keys().find(|name| !found.iter().any(|(there, _)| there == *name));
    if let Some(name) = absent {
        return Err(malformed(path, format!("`{name}` is in {CAPTURE}, and not in the files: a part is missing")));
    }
    if capture.loss_scale.is_some_and(|scale| !scale.is_some_and(|scale| scale.is_finite() && scale > 0.0)) {
        return Err(malformed(&manifest, "its loss_scale is not above 0"));
    }
    let number = |number: Option<f64>| number.unwrap_or(f64::NAN);
    let claim = |(name, of): (String, Captured)| {
        let statistics =
            Statistics { max: number(of.max), min: number(of.min), mean: number(of.mean), norm: number(of.norm) };
        let dtype: Option<ElementType> = None;
        (name, Claim { shape: Some(of.shape), dtype, statistics: Some(statistics), placed: of.placed })
    };
    Ok((capture.tensors.into_iter().map(claim).collect(), capture.loss_scale.flatten(), capture.ranks))
}
