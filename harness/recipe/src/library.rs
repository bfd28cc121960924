//! Finds recipes, merges inherited recipes, applies profiles and overrides, and reads the result.

mod shared_blocks;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use indexmap::IndexMap;
use serde_yaml::with::singleton_map_recursive;
use zoo_graph::did_you_mean;

use shared_blocks::{FOLDER, merge_recipes, without_sources};

use crate::check::{check, is_name};
use crate::diagnostic::{Diagnostic, Diagnostics, suggest};
use crate::merge::Removal;
use crate::overrides::Override;
use crate::schema::Recipe;
use crate::shape::FILE_KEYS;
use crate::source;
use crate::span::{ConfigPath, Sources, Span, SpanTable};
use crate::tree::{self, Entry, Map, Node, Value};
use crate::validate::{Completeness, validate};

/// Most recipes that refer to each other in a row.
const MOST_IN_A_ROW: usize = 16;

/// Most profiles of a recipe, inherited ones included.
const MOST_PROFILES: usize = 64;

/// Most values of a recipe as all of its profiles together: each profile is a recipe of its own.
const MOST_PROFILED: usize = 2 * tree::MAX_NODES;

/// Folders with recipes, searched in order.
#[derive(Clone, Debug)]
pub struct Library {
    dirs: Vec<PathBuf>,
}

/// How to load a recipe.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Profile to apply; `None`: the recipe as written.
    pub profile: Option<String>,
    /// Overrides `path=value`, applied last, in order.
    pub sets: Vec<String>,
}

/// A recipe, ready for use.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The recipe.
    pub recipe: Recipe,
    /// The requested file.
    pub path: PathBuf,
    /// Names of the profiles it has.
    pub profiles: Vec<String>,
    /// What [`LoadOptions::sets`] changed, as full paths.
    pub overridden: Vec<ConfigPath>,
    /// What is not wrong but looks like a mistake.
    pub warnings: Diagnostics,
}

impl Library {
    /// A library of the recipes in these folders; the first that has a name wins.
    pub fn new(dirs: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        Self { dirs: dirs.into_iter().map(Into::into).collect() }
    }

    /// Names and files of all recipes, sorted by name.
    pub fn list(&self) -> Vec<(String, PathBuf)> {
        yaml_files(self.dirs.iter().cloned())
    }

    /// Loads a recipe, by name from the library's folders, or by path.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(&self, name_or_path: &str, options: &LoadOptions) -> Result<Loaded, Diagnostics> {
        self.load_with(name_or_path, options, Fragments::Unchecked)
    }

    fn load_with(&self, name: &str, options: &LoadOptions, fragments: Fragments) -> Result<Loaded, Diagnostics> {
        let mut loading = Loading::new(self);
        let result = loading.load(name, options, fragments);
        let Loading { sources, mut found, .. } = loading;
        let parts = match result {
            Ok(parts) => parts,
            Err(Failure(error)) => {
                found.extend(error);
                return Err(Diagnostics::new(found, &sources));
            }
        };
        let (mut recipe, path, root, profiles, overridden) = parts;
        let mut places = Vec::new();
        root.spans(&ConfigPath::default(), &mut places);
        recipe.spans = SpanTable::new(places, sources.clone());
        let resolved = recipe.resolve();
        found.extend(check(&recipe, resolved.as_ref().ok()));
        let mut diagnostics = Diagnostics::new(found, &sources);
        if let Err(errors) = resolved {
            diagnostics.extend(errors);
        }
        if diagnostics.has_errors() {
            return Err(diagnostics);
        }
        Ok(Loaded { recipe, path, profiles, overridden, warnings: diagnostics })
    }

    /// Everything that is wrong or looks wrong with a recipe as written and with each of its profiles.
    pub fn validate(&self, name_or_path: &str) -> Diagnostics {
        let mut all = Diagnostics::default();
        let mut profiles = vec![None];
        let mut next = 0;
        while let Some(profile) = profiles.get(next).cloned() {
            let fragments = if next == 0 { Fragments::Unchecked } else { Fragments::Sound };
            match self.load_with(name_or_path, &LoadOptions { profile, sets: Vec::new() }, fragments) {
                Ok(loaded) => {
                    if next == 0 {
                        profiles.extend(loaded.profiles.into_iter().map(Some));
                    }
                    all.extend(loaded.warnings);
                }
                Err(diagnostics) => all.extend(diagnostics),
            }
            next += 1;
        }
        all
    }

    /// The file of a recipe; `from` is the file that extends it.
    fn find(&self, name: &str, from: Option<&Path>) -> Option<PathBuf> {
        let is_yaml = name.ends_with(".yaml") || name.ends_with(".yml");
        let beside = from.and_then(Path::parent);
        if is_yaml || name.contains(['/', '\\']) {
            // The content of a file that is not a recipe is shown in errors, so only YAML files are read.
            if from.is_some() && !is_yaml {
                return None;
            }
            let path = beside.map_or_else(|| PathBuf::from(name), |dir| dir.join(name));
            return path.exists().then_some(path);
        }
        self.folders(from).iter().map(|dir| dir.join(format!("{name}.yaml"))).find(|path| path.is_file())
    }

    /// The block file that the file `from` refers to.
    fn find_blocks(&self, name: &str, from: &Path) -> Option<PathBuf> {
        let file = format!("{name}.yaml");
        let mut files = self.folders(Some(from)).into_iter().map(|dir| dir.join(FOLDER).join(&file));
        files.find(|path| is_name(name) && path.is_file())
    }

    /// Names and files of the files of blocks that the file `from` can ask for.
    fn block_files(&self, from: &Path) -> Vec<(String, PathBuf)> {
        yaml_files(self.folders(Some(from)).into_iter().map(|dir| dir.join(FOLDER)))
    }

    /// Folders that are searched for references of the file `from`: the folder of recipes that contains it, then those
    /// of the library.
    fn folders(&self, from: Option<&Path>) -> Vec<PathBuf> {
        let beside = from.and_then(Path::parent);
        let recipes = beside.map(|dir| if dir.ends_with(FOLDER) { dir.parent().unwrap_or(dir) } else { dir });
        recipes.into_iter().chain(self.dirs.iter().map(PathBuf::as_path)).map(Path::to_owned).collect()
    }
}

/// Names and paths of the YAML files in these folders, sorted by name; the first that has a name wins.
fn yaml_files(dirs: impl Iterator<Item = PathBuf>) -> Vec<(String, PathBuf)> {
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    for entry in dirs.flat_map(std::fs::read_dir).flatten().flatten() {
        let path = entry.path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned);
        let is_yaml = path.extension().is_some_and(|extension| extension == "yaml") && path.is_file();
        if let (Some(name), true) = (name, is_yaml)
            && !found.iter().any(|(known, _)| *known == name)
        {
            found.push((name, path));
        }
    }
    found.sort();
    found
}

/// A recipe file with all it inherits.
struct Joined {
    base: Node,
    profiles: IndexMap<String, Profile>,
}

impl Joined {
    fn refuse_large_profiles(&self) -> Result<(), Diagnostic> {
        let (base, count) = (self.base.values(), self.profiles.len());
        let values = self.profiles.values().map(|profile| base + profile.fragment.values()).sum::<usize>();
        if values <= MOST_PROFILED {
            return Ok(());
        }
        let message = format!("too many values for {count} profiles: {values} in all of them, at most {MOST_PROFILED}");
        Err(Diagnostic::error(self.base.span.clone(), ConfigPath::from("profiles"), message))
    }
}

/// A fragment over the recipe, and changes of single values after it.
struct Profile {
    fragment: Node,
    set: Option<Vec<Override>>,
}

/// Whether the fragments of all profiles are known to be sound.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fragments {
    Unchecked,
    Sound,
}

type Parts = (Recipe, PathBuf, Node, Vec<String>, Vec<ConfigPath>);

/// Loading was aborted; with the reason, unless it has been reported.
struct Failure(Option<Diagnostic>);

/// One call of [`Library::load`].
struct Loading<'a> {
    library: &'a Library,
    sources: Sources,
    found: Vec<Diagnostic>,
    /// The chain of files that are being read: their identities and names.
    chain: Vec<(PathBuf, String)>,
    /// The blocks of files that others have taken some from.
    blocks: HashMap<PathBuf, Rc<Map>>,
}

impl From<Diagnostic> for Failure {
    fn from(error: Diagnostic) -> Self {
        Self(Some(error))
    }
}

impl<'a> Loading<'a> {
    fn new(library: &'a Library) -> Self {
        Self { library, sources: Sources::default(), found: Vec::new(), chain: Vec::new(), blocks: HashMap::new() }
    }

    fn load(&mut self, name: &str, options: &LoadOptions, fragments: Fragments) -> Result<Parts, Failure> {
        let path = self.library.find(name, None).ok_or_else(|| self.not_found(name))?;
        let joined = self.join(&path)?;
        joined.refuse_large_profiles()?;
        for (name, profile) in joined.profiles.iter().filter(|_| fragments == Fragments::Unchecked) {
            let path = ConfigPath::from("profiles").key(name);
            let mut fragment = without_sources(profile.fragment.clone());
            self.found.extend(validate(&mut fragment, Recipe::shapes(), &path, Completeness::Partial));
        }
        let profiles: Vec<String> = joined.profiles.keys().cloned().collect();
        let mut root = joined.base;
        if let Some(wanted) = &options.profile {
            let Some(profile) = joined.profiles.get(wanted) else {
                let error = Diagnostic::error(
                    root.span.clone(),
                    ConfigPath::default(),
                    format!("there is no profile `{wanted}`"),
                );
                let hint = match profiles.is_empty() {
                    true => "this recipe has no profiles".to_owned(),
                    false => suggest(wanted, profiles.iter().map(String::as_str)),
                };
                return Err(error.with_hint(hint).into());
            };
            root = merge_recipes(root, profile.fragment.clone(), Removal::Final);
            self.take_blocks(&mut root)?;
            self.apply(&mut root, profile.set.as_deref().unwrap_or_default());
        }
        let (recipe, root, overridden) = self.read_with(root, &options.sets)?;
        Ok((recipe, path, root, profiles, overridden))
    }

    /// Applies the overrides of the command line and reads the result; warns of those without effect.
    fn read_with(&mut self, root: Node, sets: &[String]) -> Result<(Recipe, Node, Vec<ConfigPath>), Failure> {
        self.sources.insert(Span::OVERRIDES.into(), sets.join("\n").into());
        let parsed = sets.iter().enumerate().map(|(index, set)| Override::from_argument(set, index));
        let (overrides, errors): (Vec<_>, Vec<_>) = parsed.partition(Result::is_ok);
        let overrides: Vec<Override> = overrides.into_iter().flatten().collect();
        self.found.extend(errors.into_iter().filter_map(Result::err));
        let mut changed = root.clone();
        let overridden = self.apply(&mut changed, &overrides);
        let errors = validate(&mut changed, Recipe::shapes(), &ConfigPath::default(), Completeness::Whole);
        self.found.extend(errors);
        if !self.found.is_empty() {
            return Err(Failure(None));
        }
        let recipe = typed(&changed)?;
        for (index, change) in overrides.iter().enumerate() {
            let mut without = root.clone();
            let others = overrides.iter().enumerate().filter(|(other, _)| *other != index);
            let applied = others.map(|(_, other)| other.apply(&mut without)).all(|outcome| outcome.is_ok());
            let errors = validate(&mut without, Recipe::shapes(), &ConfigPath::default(), Completeness::Whole);
            if applied && errors.is_empty() && typed(&without).is_ok_and(|other| other == recipe) {
                self.found.push(change.warning("this override changes nothing"));
            }
        }
        Ok((recipe, changed, overridden))
    }

    fn apply(&mut self, root: &mut Node, overrides: &[Override]) -> Vec<ConfigPath> {
        let mut changed = Vec::new();
        for change in overrides {
            match change.apply(root) {
                Ok(path) => changed.push(path),
                Err(error) => self.found.push(error),
            }
        }
        changed
    }

    fn not_found(&self, name: &str) -> Diagnostic {
        let start = Span { file: name.into(), line: 0, column: 0 };
        if Path::new(name).is_dir() {
            let error = Diagnostic::error(start, ConfigPath::default(), format!("`{name}` is a folder, not a recipe"));
            return error.with_hint("use the name of a recipe, or the path of its file".to_owned());
        }
        let what = if name.contains(std::path::is_separator) { "file" } else { "recipe" };
        let error = Diagnostic::error(start, ConfigPath::default(), format!("there is no {what} `{name}`"));
        let known = self.library.list();
        // A file that is not there may be a recipe by its name.
        let stem = Path::new(name).file_stem().and_then(|stem| stem.to_str()).unwrap_or(name);
        error.with_hint(match did_you_mean(stem, known.iter().map(|(name, _)| name.as_str())) {
            Some(name) => format!("did you mean `{name}`?"),
            None => "`zoo ls` lists all recipes".to_owned(),
        })
    }

    /// Why the file that is being read cannot refer to the one at `path`; `verb` describes the kind of reference.
    fn refusal(&self, path: &Path, verb: &str) -> Option<String> {
        let known = identity(path);
        if let Some(start) = self.chain.iter().position(|(path, _)| *path == known) {
            let mut names: Vec<_> = self.chain[start..].iter().map(|(_, name)| name.as_str()).collect();
            names.push(names[0]);
            return Some(format!("recipes {verb} each other in a cycle: {}", names.join(" -> ")));
        }
        let too_many = self.chain.len() > MOST_IN_A_ROW;
        too_many.then(|| format!("a chain of more than {MOST_IN_A_ROW} recipes that {verb} each other"))
    }

    /// Does something with the file at `path` that may ask for other files.
    fn within<T>(
        &mut self,
        path: &Path,
        read: impl FnOnce(&mut Self) -> Result<T, Diagnostic>,
    ) -> Result<T, Diagnostic> {
        self.chain.push((identity(path), path.display().to_string()));
        let result = read(self);
        self.chain.pop();
        result
    }

    /// The file at `path`, merged with the recipe that it extends and with shared blocks.
    fn join(&mut self, path: &Path) -> Result<Joined, Diagnostic> {
        self.within(path, |loading| loading.join_within(path))
    }

    fn join_within(&mut self, path: &Path) -> Result<Joined, Diagnostic> {
        let (name, text) = source::read(path)?;
        self.sources.insert(name.clone(), text.clone());
        let mut root = tree::parse(&text, &name)?;
        let Value::Map(map) = &mut root.value else {
            let message = format!("expected a recipe, found {}", root.describe());
            return Err(Diagnostic::error(root.span, ConfigPath::default(), message));
        };
        let [extends, set, profiles] = FILE_KEYS.map(|key| map.shift_remove(key));
        let under = match extends {
            Some(entry) => Some(self.inherit(&entry, path)?),
            None => None,
        };
        let (under_base, mut all) = match under {
            Some(joined) => (Some(joined.base), joined.profiles),
            None => (None, IndexMap::new()),
        };
        let mut base = match under_base {
            Some(under) => merge_recipes(under, root, Removal::Final),
            None => root,
        };
        self.take_blocks(&mut base)?;
        let set = self.overrides(set, &ConfigPath::from("set")).unwrap_or_default();
        self.apply(&mut base, &set);
        for (name, profile, nothing) in self.profiles(profiles) {
            let under = all.shift_remove(&name);
            // `~` takes an inherited profile away.
            if under.is_some() && nothing {
                continue;
            }
            let joined = match under {
                Some(under) => Profile {
                    fragment: merge_recipes(under.fragment, profile.fragment, Removal::Kept),
                    set: profile.set.or(under.set),
                },
                None => profile,
            };
            if all.len() == MOST_PROFILES {
                let message = format!("more than {MOST_PROFILES} profiles");
                return Err(Diagnostic::error(joined.fragment.span, ConfigPath::from("profiles").key(&name), message));
            }
            all.insert(name, joined);
        }
        Ok(Joined { base, profiles: all })
    }

    fn inherit(&mut self, entry: &Entry, from: &Path) -> Result<Joined, Diagnostic> {
        let fail = |message: String| Diagnostic::error(entry.node.span.clone(), ConfigPath::from("extends"), message);
        let Some(name) = entry.node.as_text() else {
            return Err(fail(format!("expected the name of a recipe, found {}", entry.node.describe())));
        };
        let Some(parent) = self.library.find(name, Some(from)) else {
            let hint = self.not_found(name).hint.unwrap_or_default();
            return Err(fail(format!("there is no recipe `{name}`")).with_hint(hint));
        };
        match self.refusal(&parent, "extend") {
            Some(refusal) => Err(fail(refusal)),
            None => self.join(&parent),
        }
    }

    fn overrides(&mut self, entry: Option<Entry>, path: &ConfigPath) -> Option<Vec<Override>> {
        let entry = entry?;
        match &entry.node.value {
            Value::Map(map) => Some(Override::from_map(map)),
            Value::Null => Some(Vec::new()),
            _ => {
                let message = format!("expected a map from paths to values, found {}", entry.node.describe());
                let error = Diagnostic::error(entry.node.span, path.clone(), message);
                self.found.push(error.with_hint("for example {model.conv1.stride: 1}"));
                None
            }
        }
    }

    /// The profiles that a file writes, and whether one is written as `~`.
    fn profiles(&mut self, entry: Option<Entry>) -> Vec<(String, Profile, bool)> {
        let path = ConfigPath::from("profiles");
        let mut all = Vec::new();
        let Some(entry) = entry else { return all };
        let profiles: Map = match entry.node.value {
            Value::Map(map) => map,
            _ => {
                let message = format!("expected a map of profiles, found {}", entry.node.describe());
                self.found.push(Diagnostic::error(entry.node.span, path, message));
                return all;
            }
        };
        for (name, entry) in profiles {
            let path = path.key(&name);
            let nothing = entry.node.value == Value::Null;
            let mut fragment = match entry.node.value {
                Value::Null => Node::empty_map(entry.node.span),
                _ => entry.node,
            };
            let set = match &mut fragment.value {
                Value::Map(map) => map.shift_remove("set"),
                _ => None,
            };
            let set = self.overrides(set, &path.key("set"));
            all.push((name, Profile { fragment, set }, nothing));
        }
        all
    }
}

/// A path that is the same however a file is called.
fn identity(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

impl Recipe {
    /// The recipe with one more override, `PATH=VALUE` as for `--set`. Its values keep their places.
    ///
    /// # Errors
    /// The override leads nowhere, or its value is not valid there.
    pub fn with(&self, set: &str) -> Result<Self, Diagnostics> {
        let file: Arc<str> = Arc::from(Span::OVERRIDES);
        let start = Span { file: file.clone(), line: 1, column: 1 };
        let unwritten = |error: serde_yaml::Error| Diagnostic::error(start, ConfigPath::default(), error.to_string());
        let changed = || -> Result<Self, Diagnostic> {
            let mut root = tree::parse(&self.to_yaml().map_err(unwritten)?, &file)?;
            Override::from_argument(set, 0)?.apply(&mut root)?;
            match validate(&mut root, Recipe::shapes(), &ConfigPath::default(), Completeness::Whole).into_iter().next()
            {
                Some(error) => Err(error),
                None => Ok(Self { spans: self.spans.clone(), ..typed(&root)? }),
            }
        };
        changed().map_err(|error| Diagnostics::new(vec![error], self.spans.sources()))
    }
}

/// Deserialises a validated tree. Layers are deserialised later, so their defaults are filled in here.
fn typed(root: &Node) -> Result<Recipe, Diagnostic> {
    let mut whole = root.clone();
    let shapes = Recipe::shapes();
    if let (Value::Map(map), Some(shape)) = (&mut whole.value, shapes.key(shapes.root, "model"))
        && let Some(model) = map.get_mut("model")
    {
        shapes.write_out_defaults(&mut model.node, shape);
    }
    singleton_map_recursive::deserialize(whole.to_yaml()).map_err(|error: serde_yaml::Error| {
        Diagnostic::error(root.span.clone(), ConfigPath::default(), error.to_string())
    })
}
