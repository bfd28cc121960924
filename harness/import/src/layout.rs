//! Determines names relative to the enclosing module, and scopes for names that are not modules.

use crate::item::Item;
use crate::word::{Entry, Kind, Setting};

/// Sets the names of layers inside the module `path`.
pub fn lay_out(items: Vec<Item>, path: &str) -> Vec<Item> {
    let mut out: Vec<Item> = Vec::new();
    for item in items {
        let (scopes, laid) = one(item, path);
        push(&mut out, &scopes, laid);
    }
    out
}

/// Adds a layer inside scopes, reusing the last scopes if they are equal.
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

/// The names between a module and something inside it, and the last name.
fn split(full: &str, path: &str) -> (Vec<String>, String) {
    let local = match path {
        "" => full,
        // The module's own parameters.
        _ if full == path => ".",
        _ => full.strip_prefix(path).and_then(|rest| rest.strip_prefix('.')).unwrap_or(full),
    };
    if local == "." {
        return (Vec::new(), local.to_owned());
    }
    let mut names: Vec<String> = local.split('.').map(str::to_owned).collect();
    let own = names.pop().unwrap_or_default();
    (names, own)
}

/// A layer, and the names between the module `path` and it.
fn one(item: Item, path: &str) -> (Vec<String>, Item) {
    let laid = match item {
        Item::Layer { mut word, name: Some(full) } => {
            let (scopes, own) = split(&full, path);
            if word.tag == "unembed"
                && let Some(Entry { value: Setting::Text(bias), .. }) = word.settings.get_mut("bias")
            {
                // Its own, or beside the layer.
                let from = if *bias == format!("{full}.bias") {
                    full.len() - own.len()
                } else {
                    bias.rfind('.').map_or(0, |dot| dot + 1)
                };
                bias.replace_range(..from, "");
            }
            return (scopes, Item::Layer { word, name: Some(own) });
        }
        Item::Module { path: full, class, source, body, returns, enabled, closed, .. } => {
            let (scopes, name) = split(&full, path);
            let body = lay_out(body, &full);
            return (scopes, Item::Module { name, path: full, class, source, body, returns, enabled, closed });
        }
        Item::Residual { main, shortcut } => {
            Item::Residual { main: lay_out(main, path), shortcut: lay_out(shortcut, path) }
        }
        Item::Concat { branches, axis } => {
            Item::Concat { branches: branches.into_iter().map(|branch| lay_out(branch, path)).collect(), axis }
        }
        Item::Around { word, body } => Item::Around { word, body: lay_out(body, path) },
        Item::Again { name: full, call } => {
            let local = full.strip_prefix(path).and_then(|rest| rest.strip_prefix('.'));
            Item::Again { name: local.map_or(full.clone(), str::to_owned), call }
        }
        whole @ (Item::Layer { name: None, .. }
        | Item::Tap(_)
        | Item::From(_)
        | Item::Join(..)
        | Item::Scope { .. }
        | Item::Use { .. }
        | Item::Stack { .. }) => whole,
    };
    (Vec::new(), laid)
}

/// Whether unnamed layers would get a name in a `sequential`, which numbers its layers.
pub fn would_be_numbered(body: &[Item]) -> bool {
    body.iter().any(|item| match item {
        Item::Layer { word, name } => name.is_none() && word.kind != Kind::Formula,
        Item::Residual { .. } | Item::Concat { .. } | Item::Around { .. } => true,
        Item::Stack { name, .. } => name.is_empty(),
        Item::Tap(_) | Item::From(_) | Item::Join(..) | Item::Again { .. } => false,
        Item::Scope { .. } | Item::Module { .. } | Item::Use { .. } => false,
    })
}
