//! The dictionaries of tensors in a file, wherever they are nested.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};

use super::{Storages, View};
use crate::pickle::{Id, Pickle, Value};

/// Deepest nesting that is followed. A state_dict in a training checkpoint needs about ten levels.
const DEEPEST: usize = 64;
/// Names may take this multiple of the pickle, which can name one long text many times.
const MOST_NAMES: usize = 16;

/// A dictionary of tensors, or a module with its parameters and buffers.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its keys, joined by dots; empty if the file is nothing else.
    pub name: String,
    /// Names in it, and the tensors.
    pub(super) tensors: Vec<(String, Id)>,
}

/// A file whose description was read, and whose values were not.
#[derive(Debug)]
pub struct Saved {
    pub(super) pickle: Pickle,
    pub(super) storages: Storages,
    entries: Vec<Entry>,
}

impl Saved {
    pub(super) fn new(pickle: Pickle, storages: Storages) -> Result<Self, String> {
        let entries = entries(&pickle)?;
        Ok(Self { pickle, storages, entries })
    }

    /// The dictionaries of tensors, the outer ones first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Number of tensors of an entry.
    pub fn len(&self, entry: &Entry) -> usize {
        entry.tensors.len()
    }

    /// Names and shapes of the tensors of an entry; those that are stored in a way that is not read have no shape.
    pub fn shapes(&self, entry: &Entry) -> BTreeMap<String, Option<Vec<usize>>> {
        let shaped =
            |(name, id): &(String, Id)| Some((name.clone(), View::of(&self.pickle, *id)?.ok().map(|view| view.shape)));
        entry.tensors.iter().filter_map(shaped).collect()
    }

    /// What the outermost object is, for a file without entries.
    pub fn outline(&self) -> String {
        let root = self.pickle.root();
        let Some(items) = self.pickle.items(root) else { return "it holds no dictionary".to_owned() };
        const NAMED: usize = 12;
        let keys = items.iter().filter_map(|(key, _)| Key::of(&self.pickle, *key));
        let keys: Vec<String> = keys.take(NAMED).map(|key| format!("`{key}`")).collect();
        if keys.is_empty() { "it is empty".to_owned() } else { format!("its entries: {}", keys.join(", ")) }
    }
}

/// A key of a dictionary, or a place in a list.
#[derive(Clone, Copy, Debug)]
pub(super) enum Key<'p> {
    Text(&'p str),
    Number(i64),
}

impl<'p> Key<'p> {
    pub(super) fn of(pickle: &'p Pickle, id: Id) -> Option<Self> {
        match pickle.value(id) {
            Value::Int(number) => Some(Self::Number(*number)),
            _ => pickle.text(id).map(Self::Text),
        }
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// What names may still take.
pub(super) struct Names {
    left: usize,
}

impl Names {
    pub(super) fn of(pickle: &Pickle) -> Self {
        Self { left: pickle.len().saturating_mul(MOST_NAMES) }
    }

    /// Counts a name.
    pub(super) fn charge(&mut self, name: String) -> Result<String, String> {
        let rest = self.left.checked_sub(name.len() + 1);
        self.left = rest.ok_or("the names in it are longer than the file")?;
        Ok(name)
    }
}

/// An object that was found, and the way to it.
struct Found<'p> {
    id: Id,
    /// Its place among the found ones that contain it.
    parent: Option<usize>,
    key: Option<Key<'p>>,
    depth: usize,
}

/// All entries, in the order of the file.
fn entries(pickle: &Pickle) -> Result<Vec<Entry>, String> {
    let mut names = Names::of(pickle);
    let mut seen: HashSet<Id> = HashSet::new();
    let mut found = vec![Found { id: pickle.root(), parent: None, key: None, depth: 0 }];
    let mut rest = vec![0];
    let mut entries = Vec::new();
    while let Some(place) = rest.pop() {
        let Found { id, depth, .. } = found[place];
        if !seen.insert(id) {
            continue;
        }
        let mut tensors = Vec::new();
        let mut inner = Vec::new();
        if let Some(module) = module(pickle, id) {
            tensors = parameters(pickle, module, &mut names)?;
        } else {
            for (key, value) in children(pickle, id) {
                match View::of(pickle, value) {
                    Some(_) if pickle.items(id).is_some() => tensors.push((names.charge(key.to_string())?, value)),
                    Some(_) => {}
                    None => inner.push(Found { id: value, parent: Some(place), key: Some(key), depth: depth + 1 }),
                }
            }
        }
        if !tensors.is_empty() {
            entries.push(Entry { name: names.charge(path(&found, place))?, tensors });
        }
        if depth < DEEPEST {
            rest.extend((found.len()..found.len() + inner.len()).rev());
            found.extend(inner);
        }
    }
    Ok(entries)
}

/// The keys that lead to an object, joined by dots.
fn path(found: &[Found<'_>], place: usize) -> String {
    let mut keys = Vec::new();
    let mut at = Some(place);
    while let Some(place) = at {
        keys.extend(found[place].key.map(|key| key.to_string()));
        at = found[place].parent;
    }
    keys.reverse();
    keys.join(".")
}

/// What an object contains: values of a dictionary, elements of a list, attributes.
fn children(pickle: &Pickle, id: Id) -> Vec<(Key<'_>, Id)> {
    let keyed = |(key, value): &(Id, Id)| Some((Key::of(pickle, *key)?, *value));
    let numbered = |(place, value): (usize, &Id)| (Key::Number(place as i64), *value);
    match pickle.value(id) {
        Value::Tuple(list) | Value::List(list) => list.iter().enumerate().map(numbered).collect(),
        Value::Dict(items) => items.iter().filter_map(keyed).collect(),
        Value::Object(object) => {
            let attributes = object.state.and_then(|state| pickle.items(state)).unwrap_or_default();
            object.items.iter().chain(attributes).filter_map(keyed).collect()
        }
        Value::None
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Text(_)
        | Value::Bytes(_)
        | Value::Class(_)
        | Value::Persistent(_)
        | Value::Opaque
        | Value::Mark => Vec::new(),
    }
}

/// The attributes of an object, if it is a module of PyTorch.
fn module(pickle: &Pickle, id: Id) -> Option<Id> {
    let state = pickle.state(id)?;
    let has = |key: &str| pickle.get(state, key).is_some();
    (has("_parameters") && has("_modules")).then_some(state)
}

/// Parameters and persistent buffers of a module, under the names of its state_dict.
fn parameters(pickle: &Pickle, state: Id, names: &mut Names) -> Result<Vec<(String, Id)>, String> {
    let mut tensors = Vec::new();
    let mut rest = vec![(String::new(), state, 0)];
    while let Some((prefix, state, depth)) = rest.pop() {
        let items = |key: &str| pickle.get(state, key).and_then(|id| pickle.items(id)).unwrap_or_default();
        let passing = names_of_set(pickle, state, "_non_persistent_buffers_set");
        for (key, value) in items("_parameters").iter().chain(items("_buffers")) {
            let Some(key) = Key::of(pickle, *key).map(|key| key.to_string()) else { continue };
            if !passing.contains(&key.as_str()) && View::of(pickle, *value).is_some() {
                tensors.push((names.charge(format!("{prefix}{key}"))?, *value));
            }
        }
        for (key, value) in items("_modules").iter().rev() {
            let (Some(key), Some(inner)) = (Key::of(pickle, *key), module(pickle, *value)) else { continue };
            if depth < DEEPEST {
                rest.push((names.charge(format!("{prefix}{key}."))?, inner, depth + 1));
            }
        }
    }
    Ok(tensors)
}

/// The texts of a set, which is made by a call with a list.
fn names_of_set<'p>(pickle: &'p Pickle, state: Id, key: &str) -> Vec<&'p str> {
    let Some(set) = pickle.get(state, key) else { return Vec::new() };
    let list = pickle.call(set).and_then(|(_, args)| args.first().copied()).unwrap_or(set);
    children(pickle, list).into_iter().filter_map(|(_, name)| pickle.text(name)).collect()
}
