//! Finds recipes and goldens.

use crate::Failure;
use include_dir::{Dir, include_dir};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tracing::debug;
use zoo_datasets::{atomic::Aside, files};
use zoo_engine::{Kernels, Level, Options, Tiles, tiles};
use zoo_recipe::{Library, LoadOptions, Loaded, Recipe};

/// The recipes of this source tree, embedded so that an installed command has them in any folder.
static RECIPES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/recipes");
/// Their goldens, embedded for the same reason.
static GOLDENS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/golden");

/// Folders with recipes, and the goldens next to them.
#[derive(Clone, Debug)]
pub struct Catalog {
    dirs: Vec<PathBuf>,
    library: Library,
    /// Set once the goldens of the built-in recipes have been unpacked.
    goldens: OnceLock<()>,
}

impl Catalog {
    /// Searches `given` first, then the nearest folder `recipes` at or above the working directory, then the built-in
    /// recipes.
    ///
    /// # Errors
    /// A given folder that does not exist.
    pub fn new(given: &[PathBuf]) -> Result<Self, Failure> {
        if let Some(missing) = given.iter().find(|dir| !dir.is_dir()) {
            return Err(Failure::Usage(format!("--recipes {}: no such folder", missing.display())));
        }
        let mut dirs = given.to_vec();
        dirs.extend(nearest());
        let there = |recipe: &include_dir::File<'_>| dirs.iter().any(|dir| dir.join(recipe.path()).is_file());
        if !RECIPES.files().all(there) {
            dirs.extend(unpacked("recipes", &RECIPES));
        }
        Ok(Self { library: Library::new(&dirs), dirs, goldens: OnceLock::new() })
    }

    /// The recipes.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// Folders that are searched for recipes, in order.
    pub fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    /// The folder for new recipes: the first folder that is searched and not built in, or `recipes` in the working
    /// directory.
    pub fn own(&self) -> PathBuf {
        let built_in = unpacked_to("recipes");
        self.dirs.iter().find(|dir| Some(*dir) != built_in.as_ref()).cloned().unwrap_or_else(|| "recipes".into())
    }

    /// Loads a recipe and logs its warnings.
    ///
    /// # Errors
    /// All mistakes in the recipe.
    pub fn load(&self, name: &str, profile: Option<&str>, sets: &[String]) -> Result<Loaded, Failure> {
        let options = LoadOptions { profile: profile.map(str::to_owned), sets: sets.to_vec() };
        let loaded = self.library.load(name, &options)?;
        debug!("recipe {}: {}", loaded.recipe.name, loaded.path.display());
        debug!("products: {}", products(Options::of(&loaded.recipe)));
        Ok(loaded)
    }

    /// The golden manifest that a recipe names; `None` if it names none.
    ///
    /// # Errors
    /// There is no such file.
    pub fn golden(&self, recipe: &Recipe, path: &Path) -> Result<Option<PathBuf>, Failure> {
        let Some(golden) = &recipe.golden else { return Ok(None) };
        // Goldens are unpacked only on demand: few commands need them, and they are larger than the recipes.
        if unpacked_to("recipes").is_some_and(|built_in| self.dirs.contains(&built_in)) {
            self.goldens.get_or_init(|| {
                unpacked("golden", &GOLDENS);
            });
        }
        let beside_recipe = path.parent().map(Path::to_owned);
        let mut searched: Vec<PathBuf> = Vec::new();
        for dir in beside_recipe.iter().chain(&self.dirs) {
            let folder = sibling(dir, "golden");
            if !searched.contains(&folder) {
                searched.push(folder);
            }
        }
        match searched.iter().map(|folder| folder.join(&golden.manifest)).find(|manifest| manifest.is_file()) {
            Some(manifest) => Ok(Some(manifest)),
            None => {
                let (recipe, manifest) = (recipe.name.clone(), golden.manifest.clone());
                Err(Failure::GoldenNotFound { recipe, manifest, searched })
            }
        }
    }
}

/// How the engine computes matrix products and convolutions.
fn products(options: Options) -> &'static str {
    if options.kernels == Kernels::Reference {
        return "reference kernels";
    }
    match (options.isa().level(), tiles()) {
        (Level::Amx, _) => "AMX tiles",
        (Level::Portable | Level::Avx2 | Level::Avx512, Tiles::Permitted) => "vectors, as engine.instructions asks",
        (Level::Portable | Level::Avx2 | Level::Avx512, Tiles::Missing) => "vectors; the processor has no AMX tiles",
        (Level::Portable | Level::Avx2 | Level::Avx512, Tiles::Refused) => "vectors; the system refuses AMX tiles",
    }
}

/// The folder `recipes` in the working directory or in the nearest parent that has one, as a relative path.
fn nearest() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let above = here.ancestors().position(|dir| dir.join("recipes").is_dir())?;
    Some(std::iter::repeat_n("..", above).collect::<PathBuf>().join("recipes"))
}

/// The folder `name` next to `dir`.
fn sibling(dir: &Path, name: &str) -> PathBuf {
    let mut parts = dir.components();
    match parts.next_back() {
        Some(std::path::Component::Normal(_)) => parts.as_path().join(name),
        _ => dir.join("..").join(name),
    }
}

/// The folder to which built-in files are unpacked.
fn unpacked_to(name: &str) -> Option<PathBuf> {
    Some(cache_folder()?.join(concat!("zoo/", env!("CARGO_PKG_VERSION"))).join(name))
}

/// Unpacks built-in files to a folder, so that messages can refer to their lines; `None` if the folder cannot be
/// written.
fn unpacked(name: &str, built_in: &Dir<'_>) -> Option<PathBuf> {
    let folder = unpacked_to(name)?;
    match unpack(built_in, &folder) {
        Ok(()) => Some(folder),
        Err(error) => {
            tracing::warn!("cannot unpack the built-in {name} to {}: {error}", folder.display());
            None
        }
    }
}

fn unpack(dir: &Dir<'_>, to: &Path) -> std::io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goldens_lie_beside_recipes() {
        let of = |dir: &str| sibling(Path::new(dir), "golden").display().to_string();
        assert_eq!(of("recipes"), "golden");
        assert_eq!(of("../recipes"), "../golden");
        assert_eq!(of("/a/recipes/"), "/a/golden");
        assert_eq!(of(".."), "../../golden");
        assert_eq!(of(""), "../golden");
    }

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
}
