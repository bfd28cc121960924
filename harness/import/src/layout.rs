//! Layers as they are written: names within the module around them, names that are no modules as scopes.

use indexmap::{IndexMap, IndexSet};

use crate::structure;
use crate::word::{Entry, Word};

/// A layer as it is written.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A layer of its own.
    Layer {
        /// What it does.
        word: Word,
        /// Its name; `None`: a plain function.
        name: Option<String>,
    },
    /// Keeps the present value under a name.
    Tap(String),
    /// Goes on from a kept value.
    From(String),
    /// Adds, subtracts or multiplies by a kept value.
    Join(&'static str, String),
    /// Two branches, added.
    Residual {
        /// The branch that computes.
        main: Vec<Item>,
        /// The branch around it.
        shortcut: Vec<Item>,
    },
    /// Branches, joined along an axis.
    Concat {
        /// The branches, in order.
        branches: Vec<Vec<Item>>,
        /// The axis.
        axis: &'static str,
    },
    /// A value times what layers make of it.
    Gate(Vec<Item>),
    /// A name that is no module.
    Scope {
        /// The name.
        name: String,
        /// Its layers.
        body: Vec<Item>,
    },
    /// A module with its layers.
    Module {
        /// Its name.
        name: String,
        /// Its path in the network.
        path: String,
        /// Its class.
        class: String,
        /// File and line of its class.
        source: Option<String>,
        /// Its layers.
        body: Vec<Item>,
        /// Whether it is there, where that differs between uses of the block around it.
        enabled: Option<Entry>,
        /// Whether it has been decided that it is written where it stands.
        closed: bool,
    },
    /// A block used as a module.
    Use {
        /// The module's name.
        name: String,
        /// The block's.
        block: String,
        /// Its arguments.
        args: IndexMap<String, Entry>,
        /// Arguments that count channels.
        channels: IndexSet<String>,
    },
    /// A block several times in a row.
    Stack {
        /// The module's name; empty where the uses stand in no module of their own.
        name: String,
        /// The block's.
        block: String,
        /// What stands before the number in the name of each use.
        item: String,
        /// How many times.
        repeat: Entry,
        /// Arguments of every use.
        args: IndexMap<String, Entry>,
        /// Those of the first that differ.
        first: IndexMap<String, Entry>,
        /// Arguments that count channels.
        channels: IndexSet<String>,
    },
}

/// Gives layers inside the module `path` the names that they have there.
pub fn lay_out(items: Vec<structure::Item>, path: &str) -> Vec<Item> {
    let mut out: Vec<Item> = Vec::new();
    for item in items {
        let (scopes, laid) = one(item, path);
        push(&mut out, &scopes, laid);
    }
    out
}

/// Adds a layer inside names that are no modules, to those that stand last where they are the same.
fn push(out: &mut Vec<Item>, scopes: &[String], item: Item) {
    let Some((first, rest)) = scopes.split_first() else { return out.push(item) };
    if let Some(Item::Scope { name, body }) = out.last_mut()
        && name == first
    {
        return push(body, rest, item);
    }
    let mut body = Vec::new();
    push(&mut body, rest, item);
    out.push(Item::Scope { name: first.clone(), body });
}

/// The names between a module and something inside it, and its own.
fn split(full: &str, path: &str) -> (Vec<String>, String) {
    let local = match path {
        "" => full,
        _ => full.strip_prefix(path).and_then(|rest| rest.strip_prefix('.')).unwrap_or(full),
    };
    let mut names: Vec<String> = local.split('.').map(str::to_owned).collect();
    let own = names.pop().unwrap_or_default();
    (names, own)
}

fn one(item: structure::Item, path: &str) -> (Vec<String>, Item) {
    let none = Vec::new;
    match item {
        structure::Item::Layer { word, name: Some(full) } => {
            let (scopes, own) = split(&full, path);
            (scopes, Item::Layer { word, name: Some(own) })
        }
        structure::Item::Layer { word, name: None } => (none(), Item::Layer { word, name: None }),
        structure::Item::Tap(tap) => (none(), Item::Tap(tap)),
        structure::Item::From(tap) => (none(), Item::From(tap)),
        structure::Item::Join(tag, tap) => (none(), Item::Join(tag, tap)),
        structure::Item::Residual { main, shortcut } => {
            (none(), Item::Residual { main: lay_out(main, path), shortcut: lay_out(shortcut, path) })
        }
        structure::Item::Concat { branches, axis } => {
            let branches = branches.into_iter().map(|branch| lay_out(branch, path)).collect();
            (none(), Item::Concat { branches, axis })
        }
        structure::Item::Gate(body) => (none(), Item::Gate(lay_out(body, path))),
        structure::Item::Module { path: full, class, source, body } => {
            let (scopes, name) = split(&full, path);
            let body = lay_out(body, &full);
            (scopes, Item::Module { name, path: full, class, source, body, enabled: None, closed: false })
        }
    }
}

/// Calls `visit` with every list of layers, those inside before those around them.
pub fn each_list(items: &mut Vec<Item>, visit: &mut dyn FnMut(&mut Vec<Item>)) {
    for item in items.iter_mut() {
        match item {
            Item::Residual { main, shortcut } => {
                each_list(main, visit);
                each_list(shortcut, visit);
            }
            Item::Concat { branches, .. } => branches.iter_mut().for_each(|branch| each_list(branch, visit)),
            Item::Gate(body) | Item::Scope { body, .. } | Item::Module { body, .. } => each_list(body, visit),
            Item::Layer { .. }
            | Item::Tap(_)
            | Item::From(_)
            | Item::Join(..)
            | Item::Use { .. }
            | Item::Stack { .. } => {}
        }
    }
    visit(items);
}

/// Whether layers without a name would get one where they stand in a `sequential`, which numbers what is in it.
pub fn would_be_numbered(body: &[Item]) -> bool {
    body.iter().any(|item| match item {
        Item::Layer { word, name } => name.is_none() && word.tag != "map",
        Item::Residual { .. } | Item::Concat { .. } | Item::Gate(_) => true,
        Item::Stack { name, .. } => name.is_empty(),
        Item::Tap(_) | Item::From(_) | Item::Join(..) | Item::Scope { .. } | Item::Module { .. } | Item::Use { .. } => {
            false
        }
    })
}

/// Number of layers that are written.
pub fn size(items: &[Item]) -> usize {
    let one = |item: &Item| match item {
        Item::Layer { .. } | Item::Use { .. } | Item::Stack { .. } | Item::Join(..) => 1,
        Item::Tap(_) | Item::From(_) => 1,
        Item::Residual { main, shortcut } => 1 + size(main) + size(shortcut),
        Item::Concat { branches, .. } => 1 + branches.iter().map(|branch| size(branch)).sum::<usize>(),
        Item::Gate(body) | Item::Scope { body, .. } | Item::Module { body, .. } => 1 + size(body),
    };
    items.iter().map(one).sum()
}
