//! The recipes and goldens of this source tree, embedded so that an installed command has them in any folder. They are
//! unpacked, so that messages can refer to their lines.

use crate::Failure;
use include_dir::{Dir, include_dir};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tracing::debug;
use zoo_datasets::{atomic::Aside, files};

/// The recipes.
pub(super) static RECIPES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/recipes");
/// Their goldens.
static GOLDENS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/golden");

/// The folder with the unpacked files of this version.
#[derive(Clone, Debug)]
pub(super) struct BuiltIn {
    folder: PathBuf,
}

impl BuiltIn {
    /// Unpacks the recipes to the cache folder of the user, or else to a private folder below the temporary directory.
    ///
    /// # Errors
    /// Neither can be written.
    pub fn unpack() -> Result<Self, Failure> {
        let cached = cache_folder().map(|cache| Self { folder: cache.join("zoo").join(env!("CARGO_PKG_VERSION")) });
        if let Some(built_in) = cached {
            match unpack(&RECIPES, &built_in.recipes()) {
                Ok(()) => return Ok(built_in),
                Err(error) => debug!("cannot unpack the built-in recipes to {}: {error}", built_in.folder.display()),
            }
        }
        let temporary = std::env::temp_dir();
        let not_unpacked = |path: PathBuf| |source| Failure::NotUnpacked { what: "recipes", path, source };
        let folder = private_folder(&temporary).map_err(not_unpacked(temporary))?;
        let built_in = Self { folder };
        unpack(&RECIPES, &built_in.recipes()).map_err(not_unpacked(built_in.recipes()))?;
        Ok(built_in)
    }

    /// The folder with the recipes.
    pub fn recipes(&self) -> PathBuf {
        self.folder.join("recipes")
    }

    /// Unpacks the goldens next to the recipes.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn unpack_goldens(&self) -> Result<(), Failure> {
        let path = self.folder.join("golden");
        unpack(&GOLDENS, &path).map_err(|source| Failure::NotUnpacked { what: "goldens", path, source })
    }
}

fn unpack(dir: &Dir<'_>, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for file in dir.files() {
        let path = to.join(file.path());
        if files::read(&path, file.contents().len() as u64).is_ok_and(|content| content == file.contents()) {
            continue;
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        // Written atomically, because another process may be reading the file.
        Aside::write(&path, |out| out.write_all(file.contents()))?.commit()?;
    }
    dir.dirs().try_for_each(|inner| unpack(inner, to))
}

/// The user's cache folder (XDG base directory specification).
fn cache_folder() -> Option<PathBuf> {
    let absolute = |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))
}

/// The folder of this user and version below a directory that others can write to. Nobody else can change its content.
#[cfg(unix)]
fn private_folder(below: &Path) -> io::Result<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    let create = |folder: &Path| fs::DirBuilder::new().mode(0o700).create(folder);
    // The user of this process is the owner of what it creates.
    let probe = below.join(format!("zoo-{}.partial", std::process::id()));
    create(&probe)?;
    let owner = fs::symlink_metadata(&probe).map(|probe| probe.uid());
    fs::remove_dir(&probe)?;
    let user = owner?;
    let folder = below.join(format!("zoo-{}-{user}", env!("CARGO_PKG_VERSION")));
    match create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    // A link, or a folder that others can write to, could contain anything.
    let there = fs::symlink_metadata(&folder)?;
    if there.is_dir() && there.uid() == user && there.mode() & 0o077 == 0 {
        return Ok(folder);
    }
    let message = format!("{} is not a folder that only this user can open", folder.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

/// The folder of this version below the temporary directory, which belongs to the user on other systems.
#[cfg(not(unix))]
fn private_folder(below: &Path) -> io::Result<PathBuf> {
    Ok(below.join(concat!("zoo-", env!("CARGO_PKG_VERSION"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoo_recipe::Library;

    #[test]
    fn built_in_recipes_unpack_whole_and_again() {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            unpack(&RECIPES, dir.path()).unwrap();
            let names = Library::new([dir.path()]).list();
            assert!(names.iter().any(|(name, _)| name == "resnet50"));
            assert!(
                fs::read_dir(dir.path())
                    .unwrap()
                    .all(|entry| { !entry.unwrap().file_name().to_string_lossy().ends_with("partial") })
            );
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_private_folder_is_only_of_this_user() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let folder = private_folder(dir.path()).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(private_folder(dir.path()).unwrap(), folder);
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(private_folder(dir.path()).is_err());
        fs::rename(&folder, dir.path().join("other")).unwrap();
        symlink("other", &folder).unwrap();
        fs::set_permissions(dir.path().join("other"), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(private_folder(dir.path()).is_err());
    }
}
