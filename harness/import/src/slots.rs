//! The numbers and switches in which otherwise equal parts of a network may differ.

use crate::item::Item;
use crate::word::{ENABLED, Entry, Kind, Setting, Word};

/// A setting of a layer, an argument of a use, or whether a module exists.
pub struct Slot {
    /// Its key.
    pub key: String,
    /// The name of its layer.
    pub layer: String,
    /// Whether it counts channels.
    pub channels: bool,
    /// Its value; `None` in a module that does not exist.
    pub value: Option<Setting>,
}

/// Calls `visit` with every entry: the key, the name of its layer, whether it counts channels, and whether its
/// container exists.
pub fn each_entry(items: &mut [Item], there: bool, visit: &mut dyn FnMut(&str, &str, bool, bool, &mut Entry)) {
    for item in items {
        match item {
            Item::Layer { word, name } => {
                let mut inside = there;
                if let Some(enabled) = word.settings.get_mut(ENABLED) {
                    inside &= enabled.value != Setting::Bool(false);
                    visit(ENABLED, name.as_deref().unwrap_or(word.tag), false, there, enabled);
                }
                for (key, entry) in word.settings.iter_mut().filter(|(key, _)| *key != ENABLED) {
                    if !matches!(entry.value, Setting::Text(_) | Setting::Group(_)) {
                        let channels = word.kind == Kind::Wide && (key == "out" || key == "groups");
                        visit(key, name.as_deref().unwrap_or_default(), channels, inside, entry);
                    }
                }
            }
            Item::Tap(_) | Item::From(_) | Item::Join(..) | Item::Again { .. } => {}
            Item::Residual { main, shortcut } => {
                each_entry(main, there, visit);
                each_entry(shortcut, there, visit);
            }
            Item::Concat { branches, .. } => branches.iter_mut().for_each(|branch| each_entry(branch, there, visit)),
            Item::Around { word, body } => {
                let mut inside = there;
                if let Some(enabled) = word.settings.get_mut(ENABLED) {
                    inside &= enabled.value != Setting::Bool(false);
                    visit(ENABLED, word.tag, false, there, enabled);
                }
                for (key, entry) in word.settings.iter_mut().filter(|(key, _)| *key != ENABLED) {
                    if !matches!(entry.value, Setting::Text(_) | Setting::Group(_)) {
                        visit(key, "", false, inside, entry);
                    }
                }
                each_entry(body, inside, visit);
            }
            Item::Scope { body, .. } => each_entry(body, there, visit),
            Item::Module { name, body, enabled, .. } => {
                let mut inside = there;
                if let Some(enabled) = enabled {
                    inside &= enabled.value != Setting::Bool(false);
                    visit(ENABLED, name, false, there, enabled);
                }
                each_entry(body, inside, visit);
            }
            Item::Use { name, args, channels, enabled, .. } => {
                let mut inside = there;
                if let Some(enabled) = enabled {
                    inside &= enabled.value != Setting::Bool(false);
                    visit(ENABLED, name, false, there, enabled);
                }
                for (key, entry) in args {
                    visit(key, name, channels.contains(key), inside, entry);
                }
            }
            Item::Stack { name, args, first, repeat, channels, .. } => {
                visit("repeat", name, false, there, repeat);
                for (key, entry) in args.iter_mut().chain(first) {
                    visit(key, name, channels.contains(key), there, entry);
                }
            }
        }
    }
}

/// All entries of a body, in order.
pub fn slots(body: &[Item]) -> Vec<Slot> {
    let mut found = Vec::new();
    each_entry(&mut body.to_vec(), true, &mut |key, layer, channels, there, entry| {
        let (key, layer) = (key.to_owned(), layer.to_owned());
        found.push(Slot { key, layer, channels, value: there.then(|| entry.value.clone()) });
    });
    found
}

/// The common part of bodies that only differ in numbers and switches.
pub fn outline(items: &[Item]) -> String {
    let keys = |word: &Word| {
        let key = |(key, entry): (&String, &Entry)| match &entry.value {
            Setting::Text(text) => format!("{key}={text}"),
            group @ Setting::Group(_) => format!("{key}={group}"),
            Setting::List(items) => format!("{key}[{}]", items.len()),
            Setting::Bool(_) | Setting::Int(_) | Setting::Float(_) | Setting::Sides(_) => key.clone(),
        };
        word.settings.iter().map(key).collect::<Vec<_>>().join(" ")
    };
    let one = |item: &Item| match item {
        Item::Layer { word, name } => {
            format!("{} {name:?} {}", word.tag, keys(word))
        }
        Item::Tap(tap) => format!("tap {tap}"),
        Item::From(tap) => format!("from {tap}"),
        Item::Join(tag, tap) => format!("{tag} {tap}"),
        Item::Again { name, .. } => format!("again {name}"),
        Item::Residual { main, shortcut } => {
            format!("residual({} | {})", outline(main), outline(shortcut))
        }
        Item::Concat { branches, axis } => {
            let branches: Vec<String> = branches.iter().map(|branch| outline(branch)).collect();
            format!("concat {axis:?}({})", branches.join(" | "))
        }
        Item::Around { word, body } => format!("{} {}({})", word.tag, keys(word), outline(body)),
        Item::Scope { name, body } => format!("scope {name}({})", outline(body)),
        Item::Module { name, body, returns, enabled, .. } => {
            format!("module {name}({}) {returns:?} {}", outline(body), enabled.is_some())
        }
        Item::Use { name, block, args, inputs, returns, enabled, .. } => {
            let keys: Vec<&str> = args.keys().map(String::as_str).collect();
            format!("use {name} {block} {} {inputs:?} {returns:?} {}", keys.join(" "), enabled.is_some())
        }
        Item::Stack { name, block, item, args, first, .. } => {
            let keys: Vec<&str> = args.keys().chain(first.keys()).map(String::as_str).collect();
            format!("stack {name} {block} {item} {} {}", keys.join(" "), first.len())
        }
    };
    items.iter().map(one).collect::<Vec<_>>().join("; ")
}
