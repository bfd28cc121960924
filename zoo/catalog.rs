//! Finds recipes and goldens.

mod built_in;

use crate::Failure;
use built_in::{BuiltIn, RECIPES};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tracing::debug;
use zoo_engine::{Kernels, Level, Options, Tiles, tiles};
use zoo_recipe::{Library, LoadOptions, Loaded, Recipe};
use zoo_tensors::format;

/// Refuses a file of weights or another format where a recipe belongs, by its name.
///
/// # Errors
/// The file is no text.
pub fn expect_text(recipe: &str) -> Result<(), Failure> {
    match format::not_text(Path::new(recipe)) {
        Ok(Some(what)) => Err(Failure::Usage(format!(
            "{recipe} is {what}, not a recipe: name the recipe, and weights with --checkpoint"
        ))),
        // A name, or a file that cannot be opened, which its reader reports.
        Ok(None) | Err(_) => Ok(()),
    }
}

/// Folders with recipes, and the goldens next to them.
#[derive(Clone, Debug)]
pub struct Catalog {
    dirs: Vec<PathBuf>,
    library: Library,
    /// The unpacked recipes; `None` if the other folders have recipes with all of their names.
    built_in: Option<BuiltIn>,
    /// Set once the goldens of the built-in recipes have been unpacked.
    goldens: OnceLock<()>,
}

impl Catalog {
    /// Searches `given` first, then the nearest folder `recipes` at or above the working directory, then the built-in
    /// recipes.
    ///
    /// # Errors
    /// A given folder that does not exist, or built-in recipes that cannot be unpacked.
    pub fn new(given: &[PathBuf]) -> Result<Self, Failure> {
        if let Some(missing) = given.iter().find(|dir| !dir.is_dir()) {
            return Err(Failure::Usage(format!("--recipes {}: no such folder", missing.display())));
        }
        let mut dirs = given.to_vec();
        dirs.extend(nearest());
        let there = |recipe: &include_dir::File<'_>| dirs.iter().any(|dir| dir.join(recipe.path()).is_file());
        let built_in = if RECIPES.files().all(there) { None } else { Some(BuiltIn::unpack()?) };
        dirs.extend(built_in.as_ref().map(BuiltIn::recipes));
        Ok(Self { library: Library::new(&dirs), dirs, built_in, goldens: OnceLock::new() })
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
        let built_in = self.built_in.as_ref().map(BuiltIn::recipes);
        self.dirs.iter().find(|dir| Some(*dir) != built_in.as_ref()).cloned().unwrap_or_else(|| "recipes".into())
    }

    /// Whether a file is one of the unpacked recipes.
    pub fn is_built_in(&self, recipe: &Path) -> bool {
        self.built_in.as_ref().is_some_and(|built_in| recipe.parent() == Some(&built_in.recipes()))
    }

    /// Loads a recipe and logs its warnings.
    ///
    /// # Errors
    /// All mistakes in the recipe.
    pub fn load(&self, name: &str, profile: Option<&str>, sets: &[String]) -> Result<Loaded, Failure> {
        expect_text(name)?;
        let options = LoadOptions { profile: profile.map(str::to_owned), sets: sets.to_vec() };
        let loaded = self.library.load(name, &options)?;
        debug!("recipe {}: {}", loaded.recipe.name, loaded.path.display());
        debug!("products: {}", products(Options::of(&loaded.recipe)));
        Ok(loaded)
    }

    /// The golden manifest that a recipe names; `None` if it names none.
    ///
    /// # Errors
    /// There is no such file, or the built-in goldens cannot be unpacked.
    pub fn golden(&self, recipe: &Recipe, path: &Path) -> Result<Option<PathBuf>, Failure> {
        let Some(golden) = &recipe.golden else { return Ok(None) };
        // Goldens are unpacked only on demand: few commands need them, and they are larger than the recipes.
        if let (Some(built_in), None) = (&self.built_in, self.goldens.get()) {
            built_in.unpack_goldens()?;
            self.goldens.get_or_init(|| ());
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
}
