//! The parts of a data set, by the usual names of their folders.

use std::path::{Path, PathBuf};

use crate::{DataError, files};

/// The part of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Samples to train on.
    Train,
    /// Held-out samples, to evaluate on.
    Val,
}

impl Part {
    /// This one of both parts.
    pub(super) fn of<T>(self, [train, val]: [T; 2]) -> T {
        match self {
            Self::Train => train,
            Self::Val => val,
        }
    }
}

/// What a folder is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Train,
    Val,
    Test,
}

impl Purpose {
    /// What a part of this name is for: `train`, `Training`, `training_set`, `train2017`, `valid`, `Testing`, `dev`.
    pub fn of(name: &str) -> Option<Self> {
        let plain = plain(name);
        let word = plain.trim_end_matches(|c: char| c.is_ascii_digit());
        let word =
            ["images", "image", "data", "set", "split"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
        match word {
            "train" | "training" | "trn" => Some(Self::Train),
            "val" | "valid" | "validate" | "validation" | "dev" | "eval" | "evaluation" | "heldout" | "holdout" => {
                Some(Self::Val)
            }
            "test" | "testing" | "tst" => Some(Self::Test),
            _ => None,
        }
    }

    /// The name that zoo's own layouts use.
    fn usual(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Val => "val",
            Self::Test => "test",
        }
    }
}

/// The letters and digits of a name in lower case, by which names are compared.
pub(super) fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// The last part of a path.
pub(super) fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The folders in a folder, sorted by name.
pub(super) fn folders_in(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    Ok(files::entries(folder)?.into_iter().filter(|path| path.is_dir()).collect())
}

/// The part to train on and the held-out part among some paths, by their names without extension; the test part is held
/// out if there is no other.
///
/// # Errors
/// Two parts for the same purpose, neither of which has zoo's own name.
pub(super) fn divided(paths: &[PathBuf]) -> Result<[Option<PathBuf>; 2], DataError> {
    let stem = |path: &PathBuf| path.with_extension("").file_name().unwrap_or_default().to_string_lossy().into_owned();
    let of = |purpose: Purpose| {
        let mut found: Vec<&PathBuf> = paths.iter().filter(|path| Purpose::of(&stem(path)) == Some(purpose)).collect();
        if let Some(own) = found.iter().find(|path| stem(path) == purpose.usual()) {
            found = vec![own];
        }
        only(found, || format!("the part `{}`", purpose.usual()))
    };
    let (train, val, test) = (of(Purpose::Train)?, of(Purpose::Val)?, of(Purpose::Test)?);
    if let (Some(val), Some(test)) = (&val, &test) {
        tracing::debug!("{} is held out, {} is not used", val.display(), test.display());
    }
    Ok([train, val.or(test)])
}

/// The one path of several; none of none.
///
/// # Errors
/// More than one; `wanted` says what was looked for.
pub(super) fn only(found: Vec<&PathBuf>, wanted: impl Fn() -> String) -> Result<Option<PathBuf>, DataError> {
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some((*one).clone())),
        several => Err(DataError::Ambiguous { wanted: wanted(), found: several.iter().copied().cloned().collect() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_many_names() {
        for (purpose, names) in [
            (
                Purpose::Train,
                &["train", "Train", "TRAIN", "training", "Training_set", "train-data", "train2017", "trn"][..],
            ),
            (
                Purpose::Val,
                &["val", "Val", "valid", "validation", "validation_set", "dev", "eval", "val_images", "held-out"],
            ),
            (Purpose::Test, &["test", "Testing", "test_set", "test1", "TEST DATA"]),
        ] {
            for name in names {
                assert_eq!(Purpose::of(name), Some(purpose), "{name}");
            }
        }
        for name in ["trains", "trainer", "cat", "", "tested", "value", "trainval", "set", "images", "2017", "tr"] {
            assert_eq!(Purpose::of(name), None, "{name}");
        }
    }

    #[test]
    fn a_part_is_never_guessed() {
        let of = |names: &[&str]| divided(&names.iter().map(PathBuf::from).collect::<Vec<_>>());
        let some = |name: &str| Some(PathBuf::from(name));
        assert_eq!(of(&["Train", "Valid", "Test"]).unwrap(), [some("Train"), some("Valid")]);
        assert_eq!(of(&["test_set", "training_set"]).unwrap(), [some("training_set"), some("test_set")]);
        assert_eq!(of(&["train", "train_set", "cat"]).unwrap(), [some("train"), None]);
        assert_eq!(of(&["train.txt", "val.txt", "trainval.txt"]).unwrap(), [some("train.txt"), some("val.txt")]);
        let message = of(&["Train", "training", "val"]).unwrap_err().to_string();
        assert_eq!(message, "several fit the part `train`: Train, training. Keep one of them");
    }
}
