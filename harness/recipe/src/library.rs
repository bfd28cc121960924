//! Finds recipes, joins what they inherit, applies profiles and overrides, and reads the result.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde_yaml::with::singleton_map_recursive;

use crate::check::check;
use crate::diagnostic::{Diagnostic, Diagnostics, Sources, suggest};
use crate::merge::{Removal, merge};
use crate::overrides::Override;
use crate::schema::Recipe;
use crate::shape::{FILE_KEYS, Shapes};
use crate::source;
use crate::span::{ConfigPath, Span, SpanTable};
use crate::tree::{self, Entry, Map, Node, Value};
use crate::validate::{Extent, validate};

/// Most recipes that extend each other in a row.
const MOST_ANCESTORS: usize = 16;

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
    /// The file that was asked for.
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
        let mut found: Vec<(String, PathBuf)> = Vec::new();
        for dir in &self.dirs {
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                let path = entry.path();
                let name = path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned);
                let is_recipe = path.extension().is_some_and(|extension| extension == "yaml") && path.is_file();
                if let (Some(name), true) = (name, is_recipe)
                    && !found.iter().any(|(known, _)| *known == name)
                {
                    found.push((name, path));
                }
            }
        }
        found.sort();
        found
    }

    /// Loads a recipe, by name from the library's folders, or by path.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(&self, name_or_path: &str, options: &LoadOptions) -> Result<Loaded, Diagnostics> {
        let mut loading = Loading::new(self);
        let result = loading.load(name_or_path, options);
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
        found.extend(check(&recipe));
        let mut diagnostics = Diagnostics::new(found, &sources);
        if let Err(errors) = recipe.resolve() {
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
            match self.load(name_or_path, &LoadOptions { profile, sets: Vec::new() }) {
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

    /// The file of a recipe that `from` asks for; `from` is the file that extends it.
    fn find(&self, name: &str, from: Option<&Path>) -> Option<PathBuf> {
        let is_yaml = name.ends_with(".yaml") || name.ends_with(".yml");
        let beside = from.and_then(Path::parent);
        if is_yaml || name.contains(['/', '\\']) {
            // What a file asks for is shown where it is no recipe: no other file than YAML.
            if from.is_some() && !is_yaml {
                return None;
            }
            let path = beside.map_or_else(|| PathBuf::from(name), |dir| dir.join(name));
            return path.exists().then_some(path);
        }
        let dirs = beside.into_iter().chain(self.dirs.iter().map(PathBuf::as_path));
        dirs.map(|dir| dir.join(format!("{name}.yaml"))).find(|path| path.is_file())
    }
}

/// A recipe file with all it inherits.
struct Joined {
    base: Node,
    profiles: IndexMap<String, Profile>,
}

/// A fragment over the recipe, and changes of single values after it.
struct Profile {
    fragment: Node,
    set: Option<Vec<Override>>,
}

type Parts = (Recipe, PathBuf, Node, Vec<String>, Vec<ConfigPath>);

/// Loading cannot go on; the reason, unless it has been reported.
struct Failure(Option<Diagnostic>);

/// One call of [`Library::load`].
struct Loading<'a> {
    library: &'a Library,
    sources: Sources,
    found: Vec<Diagnostic>,
}

impl From<Diagnostic> for Failure {
    fn from(error: Diagnostic) -> Self {
        Self(Some(error))
    }
}

impl<'a> Loading<'a> {
    fn new(library: &'a Library) -> Self {
        Self { library, sources: Sources::default(), found: Vec::new() }
    }

    fn load(&mut self, name: &str, options: &LoadOptions) -> Result<Parts, Failure> {
        let path = self.library.find(name, None).ok_or_else(|| self.not_found(name))?;
        let joined = self.join(&path, &mut Vec::new())?;
        let shapes = Shapes::get();
        for (name, profile) in &joined.profiles {
            let path = ConfigPath::from("profiles").key(name);
            self.found.extend(validate(&mut profile.fragment.clone(), shapes, &path, Extent::Partial));
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
                return Err(error.with_hint(suggest(wanted, profiles.iter().map(String::as_str))).into());
            };
            root = merge(root, profile.fragment.clone(), shapes.root, Removal::Final);
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
        let errors = validate(&mut changed, Shapes::get(), &ConfigPath::default(), Extent::Whole);
        self.found.extend(errors);
        if !self.found.is_empty() {
            return Err(Failure(None));
        }
        let recipe = typed(&changed)?;
        for (index, change) in overrides.iter().enumerate() {
            let mut without = root.clone();
            let others = overrides.iter().enumerate().filter(|(other, _)| *other != index);
            let applied = others.map(|(_, other)| other.apply(&mut without)).all(|outcome| outcome.is_ok());
            let errors = validate(&mut without, Shapes::get(), &ConfigPath::default(), Extent::Whole);
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
        let start = Span { file: name.into(), line: 1, column: 1 };
        let error = Diagnostic::error(start, ConfigPath::default(), format!("there is no recipe `{name}`"));
        let known = self.library.list();
        error.with_hint(suggest(name, known.iter().map(|(name, _)| name.as_str())))
    }

    /// The file at `path` over what it extends; `chain` are the files that led here.
    fn join(&mut self, path: &Path, chain: &mut Vec<(PathBuf, String)>) -> Result<Joined, Diagnostic> {
        let (name, text) = source::read(path)?;
        self.sources.insert(name.clone(), text.clone());
        let mut root = tree::parse(&text, &name)?;
        let Value::Map(map) = &mut root.value else {
            let message = format!("expected a recipe, found {}", root.describe());
            return Err(Diagnostic::error(root.span, ConfigPath::default(), message));
        };
        let [extends, set, profiles] = FILE_KEYS.map(|key| map.shift_remove(key));
        let under = match extends {
            Some(entry) => Some(self.inherit(&entry, path, chain)?),
            None => None,
        };
        let (under_base, mut all) = match under {
            Some(joined) => (Some(joined.base), joined.profiles),
            None => (None, IndexMap::new()),
        };
        let shape = Shapes::get().root;
        let mut base = match under_base {
            Some(under) => merge(under, root, shape, Removal::Final),
            None => root,
        };
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
                    fragment: merge(under.fragment, profile.fragment, shape, Removal::Kept),
                    set: profile.set.or(under.set),
                },
                None => profile,
            };
            all.insert(name, joined);
        }
        Ok(Joined { base, profiles: all })
    }

    fn inherit(
        &mut self,
        entry: &Entry,
        from: &Path,
        chain: &mut Vec<(PathBuf, String)>,
    ) -> Result<Joined, Diagnostic> {
        let path = ConfigPath::from("extends");
        let fail = |message: String| Diagnostic::error(entry.node.span.clone(), path.clone(), message);
        let Some(name) = entry.node.as_text() else {
            return Err(fail(format!("expected the name of a recipe, found {}", entry.node.describe())));
        };
        let Some(parent) = self.library.find(name, Some(from)) else {
            let hint = self.not_found(name).hint.unwrap_or_default();
            return Err(fail(format!("there is no recipe `{name}`")).with_hint(hint));
        };
        let identity = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        chain.push((identity(from), from.display().to_string()));
        if chain.len() > MOST_ANCESTORS {
            return Err(fail(format!("more than {MOST_ANCESTORS} recipes extend each other in a row")));
        }
        let known = identity(&parent);
        if let Some(start) = chain.iter().position(|(path, _)| *path == known) {
            let mut names: Vec<_> = chain[start..].iter().map(|(_, name)| name.as_str()).collect();
            names.push(names[0]);
            return Err(fail(format!("recipes extend each other in a circle: {}", names.join(" -> "))));
        }
        self.join(&parent, chain)
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

/// Reads a tree that has been validated.
fn typed(root: &Node) -> Result<Recipe, Diagnostic> {
    singleton_map_recursive::deserialize(root.to_yaml()).map_err(|error: serde_yaml::Error| {
        Diagnostic::error(root.span.clone(), ConfigPath::default(), error.to_string())
    })
}
