//! `launch.json`: the settings with which a run was started, so that it can be resumed and evaluated without them.

use serde::{Deserialize, Serialize};
use std::{
    io::Write,
    path::{Path, PathBuf},
};
use zoo_datasets::{atomic, files};

use crate::{TrainError, event::ListenError};

/// The file in the folder of a run.
pub(crate) const LAUNCH: &str = "launch.json";
/// Limit of the size of the file.
const LONGEST: u64 = 1 << 22;

/// The settings of a run that are not in the recipe file. Paths are absolute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Launch {
    /// Name of the recipe, or path of its file.
    pub recipe: String,
    /// The profile; `None`: the recipe as written.
    pub profile: Option<String>,
    /// Overrides `path=value`, in order.
    pub sets: Vec<String>,
    /// The folder of the data, if not the recipe's own.
    pub data: Option<PathBuf>,
    /// The simulated device; `None`: this machine.
    pub device: Option<String>,
    /// Folders in which recipes and devices were searched first.
    pub recipes: Vec<PathBuf>,
    /// Whether the golden check was skipped.
    pub no_check: bool,
}

impl Launch {
    /// Reads the file from the folder of a run; `None` if there is none, as in runs of older versions.
    ///
    /// # Errors
    /// A file that cannot be read, or is damaged.
    pub fn read(folder: &Path) -> Result<Option<Self>, TrainError> {
        let path = folder.join(LAUNCH);
        if !path.is_file() {
            return Ok(None);
        }
        let read = files::read(&path, LONGEST).and_then(|text| Ok(serde_json::from_slice(&text)?));
        read.map(Some).map_err(|source| TrainError::Unreadable { path, source })
    }

    /// These settings merged over `begun`: missing ones are taken from there, and overrides are appended.
    #[must_use]
    pub fn over(self, begun: Self) -> Self {
        let added = self.sets.into_iter().filter(|set| !begun.sets.contains(set));
        let searched = begun.recipes.iter().filter(|folder| !self.recipes.contains(folder)).cloned();
        Self {
            recipe: self.recipe,
            profile: self.profile.or(begun.profile),
            sets: begun.sets.iter().cloned().chain(added).collect(),
            data: self.data.or(begun.data),
            device: self.device.or(begun.device),
            recipes: self.recipes.iter().cloned().chain(searched).collect(),
            no_check: self.no_check || begun.no_check,
        }
    }

    /// The shell command that starts the run again.
    pub fn command(&self) -> String {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let mut words = vec!["zoo".to_owned(), "run".to_owned(), self.recipe.clone()];
        let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
        self.recipes.iter().for_each(|folder| option("--recipes", path(folder)));
        self.profile.iter().for_each(|profile| option("--profile", profile.clone()));
        self.sets.iter().for_each(|set| option("--set", set.clone()));
        self.data.iter().for_each(|data| option("--data", path(data)));
        self.device.iter().for_each(|device| option("--device", device.clone()));
        words.extend(self.no_check.then(|| "--no-check".to_owned()));
        words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    }

    /// Writes the file to the folder of a run.
    pub(super) fn write(&self, folder: &Path) -> Result<(), ListenError> {
        let path = folder.join(LAUNCH);
        let write = |out: &mut dyn Write| Ok(serde_json::to_writer_pretty(out, self)?);
        atomic::replace(&path, write).map_err(ListenError::at(&path))
    }
}

/// A word, quoted for a shell if necessary.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Launch::read(dir.path()).unwrap(), None);
        let launch = Launch {
            recipe: "net".into(),
            profile: Some("mini".into()),
            sets: vec!["train.epochs=1".into()],
            data: Some("/data".into()),
            no_check: true,
            ..Launch::default()
        };
        launch.write(dir.path()).unwrap();
        assert_eq!(Launch::read(dir.path()).unwrap(), Some(launch));
        std::fs::write(dir.path().join(LAUNCH), "{").unwrap();
        assert!(Launch::read(dir.path()).is_err());
    }

    #[test]
    fn a_command_asks_for_it_again() {
        let launch = Launch {
            recipe: "net".into(),
            sets: vec!["gradients.clip=[norm: 1]".into(), "description=it's".into()],
            data: Some("/data".into()),
            no_check: true,
            ..Launch::default()
        };
        let command =
            r"zoo run net --set 'gradients.clip=[norm: 1]' --set 'description=it'\''s' --data /data --no-check";
        assert_eq!(launch.command(), command);
    }

    #[test]
    fn what_is_said_goes_over_what_was() {
        let sets = |sets: &[&str]| sets.iter().map(|set| (*set).to_owned()).collect::<Vec<_>>();
        let begun = Launch {
            recipe: "net".into(),
            profile: Some("mini".into()),
            sets: sets(&["a=1", "b=2"]),
            data: Some("/data".into()),
            ..Launch::default()
        };
        let said = Launch { recipe: "net".into(), sets: sets(&["b=2", "c=3"]), ..Launch::default() };
        let joined = said.over(begun.clone());
        assert_eq!(joined, Launch { sets: sets(&["a=1", "b=2", "c=3"]), ..begun.clone() });
        let other = Launch { data: Some("/other".into()), ..Launch::default() };
        assert_eq!(other.over(begun).data, Some("/other".into()));
    }
}
