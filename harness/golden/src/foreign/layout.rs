//! The folders of a recording.

use super::{malformed, msprobe, padiff};
use crate::GoldenError;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The folders `step0`, `step1`, ... in a folder, by number; none if it holds one step itself.
///
/// # Errors
/// A folder that cannot be read, or numbers that are not consecutive.
pub(super) fn steps(path: &Path) -> Result<Vec<PathBuf>, GoldenError> {
    let is_one = [msprobe::MANIFEST, padiff::MANIFEST].iter().any(|manifest| path.join(manifest).is_file());
    if is_one || !path.is_dir() {
        return Ok(Vec::new());
    }
    let number = |path: PathBuf| {
        let number = path.file_name()?.to_str()?.strip_prefix("step")?.parse::<u64>().ok()?;
        path.is_dir().then_some((number, path))
    };
    let mut steps: Vec<(u64, PathBuf)> = inside(path)?.into_iter().filter_map(number).collect();
    steps.sort();
    let gap = steps.windows(2).find(|pair| pair[1].0 != pair[0].0 + 1);
    if let Some([(last, _), (next, _)]) = gap {
        let message = format!("step{next} follows step{last}: the steps between them are missing, so name one of them");
        return Err(malformed(path, message));
    }
    Ok(steps.into_iter().map(|(_, path)| path).collect())
}

/// The folders `rank0`, `rank1`, ... in a folder, by number.
///
/// # Errors
/// A folder that cannot be read.
pub(super) fn ranks(path: &Path) -> Result<BTreeMap<usize, PathBuf>, GoldenError> {
    if !path.is_dir() {
        return Ok(BTreeMap::new());
    }
    let number = |path: PathBuf| {
        let number = path.file_name()?.to_str()?.strip_prefix("rank")?.parse().ok()?;
        path.is_dir().then_some((number, path))
    };
    Ok(inside(path)?.into_iter().filter_map(number).collect())
}

/// The content of a folder, sorted.
fn inside(folder: &Path) -> Result<Vec<PathBuf>, GoldenError> {
    let unreadable = GoldenError::unreadable(folder);
    let entries: Result<Vec<_>, _> = fs::read_dir(folder).map_err(unreadable)?.collect();
    let mut paths: Vec<PathBuf> = entries.map_err(unreadable)?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

/// The file of this name at a path or in a folder below it, or any other `.json` that is given instead of `dump.json`;
/// `None` if there is none.
///
/// # Errors
/// There are several: only one step of one rank can be judged.
pub(super) fn manifest(path: &Path, name: &str) -> Result<Option<PathBuf>, GoldenError> {
    if path.is_file() {
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        let is_own = path.file_name().is_some_and(|file| file == name);
        return Ok((is_own || is_json && name == msprobe::MANIFEST).then(|| path.to_owned()));
    }
    let mut found = Vec::new();
    below(path, name, 0, &mut found)?;
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        several => {
            let folders = several.iter().filter_map(|file| file.parent()).map(|folder| folder.display().to_string());
            let folders = folders.take(8).collect::<Vec<_>>().join(", ");
            Err(malformed(path, format!("there are dumps of several steps or ranks, name one: {folders}")))
        }
    }
}

/// Deepest such file below the given path: `step0/rank0/dump.json`.
const DEEPEST: usize = 3;

fn below(folder: &Path, name: &str, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), GoldenError> {
    let here = folder.join(name);
    if here.is_file() {
        found.push(here);
        return Ok(());
    }
    if depth == DEEPEST {
        return Ok(());
    }
    let is_step = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        path.is_dir() && ["step", "rank", "proc"].iter().any(|prefix| name.starts_with(prefix))
    };
    inside(folder)?.iter().filter(|path| is_step(path)).try_for_each(|path| below(path, name, depth + 1, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_in_the_order_of_their_numbers_and_complete() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["step10", "step9", "steps", "step11", "names"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let names = |steps: Vec<PathBuf>| steps.iter().map(|s| s.file_name().unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(names(steps(folder.path()).unwrap()), ["step9", "step10", "step11"]);
        fs::create_dir(folder.path().join("step13")).unwrap();
        assert!(steps(folder.path()).unwrap_err().to_string().contains("step13 follows step11"));
        fs::write(folder.path().join("dump.json"), "{}").unwrap();
        assert!(steps(folder.path()).unwrap().is_empty());
    }
}
