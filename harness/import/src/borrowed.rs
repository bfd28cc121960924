//! Taps from outside that a part of a network reads.

use std::collections::{HashMap, HashSet};

use crate::item::Item;

/// The taps from outside that a list reads, in the order in which it first does.
pub fn borrowed(items: &[Item]) -> Vec<String> {
    let mut found = Vec::new();
    let own = own(items);
    let is_own = |name: &str| own.contains(name) || name.split_once('.').is_some_and(|(first, _)| own.contains(first));
    let mut reads = |name: &String| {
        if !is_own(name) && !found.contains(name) {
            found.push(name.clone());
        }
    };
    for item in items {
        if let Item::From(name) | Item::Join(_, name) = item {
            reads(name);
        }
        if let Item::Use { inputs, .. } = item {
            inputs.values().for_each(&mut reads);
        }
        item.lists().into_iter().for_each(|list| borrowed(list).iter().for_each(&mut reads));
    }
    found
}

/// The names of taps in a list, and of modules with taps of their own.
fn own(items: &[Item]) -> HashSet<String> {
    let mut found = HashSet::new();
    for item in items {
        if let Item::Tap(name)
        | Item::Use { name, .. }
        | Item::Stack { name, .. }
        | Item::Module { name, .. }
        | Item::Scope { name, .. } = item
        {
            found.insert(name.clone());
        }
        if !matches!(item, Item::Module { .. }) {
            found.extend(item.lists().into_iter().flat_map(|list| own(list)));
        }
    }
    found
}

/// Names for taps from outside that are the same wherever a part is: `skip` if it reads one.
pub fn names(items: &[Item], count: usize) -> Vec<String> {
    let own = own(items);
    let numbered = (2..).map(|number| format!("skip{number}"));
    std::iter::once("skip".to_owned()).chain(numbered).filter(|name| !own.contains(name)).take(count).collect()
}

/// Reads taps under other names.
pub fn rename(items: &mut [Item], names: &HashMap<&str, &str>) {
    let new = |name: &mut String| {
        if let Some(other) = names.get(name.as_str()) {
            (*other).clone_into(name);
        }
    };
    for item in items {
        if let Item::From(name) | Item::Join(_, name) = item {
            new(name);
        }
        if let Item::Use { inputs, .. } = item {
            inputs.values_mut().for_each(new);
        }
        // Taps of a module are its own.
        let own = if let Item::Module { body, .. } = item { own(body) } else { HashSet::new() };
        let outer = names.iter().filter(|(name, _)| !own.contains(**name)).map(|(name, other)| (*name, *other));
        let outer = outer.collect();
        item.lists_mut().into_iter().for_each(|list| rename(list, &outer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use indexmap::IndexMap;

    fn tap(name: &str) -> Item {
        Item::Tap(name.to_owned())
    }

    fn from(name: &str) -> Item {
        Item::From(name.to_owned())
    }

    fn module(name: &str, body: Vec<Item>) -> Item {
        let (name, path) = (name.to_owned(), name.to_owned());
        let (class, source, returns, enabled) = (String::new(), None, IndexMap::new(), None);
        Item::Module { name, path, class, source, body, returns, enabled, closed: true }
    }

    #[test]
    fn what_is_tapped_inside_is_not_borrowed() {
        let add = |name: &str| Item::Join("add", name.to_owned());
        let items = [
            tap("x"),
            module("up", vec![tap("y"), from("early"), add("x"), add("y")]),
            Item::Concat { branches: vec![vec![from("late")], vec![from("x")]], axis: Default::default() },
            add("up.y"),
            add("stage.y"),
            add("early"),
        ];
        assert_eq!(borrowed(&items), ["early", "late", "stage.y"]);
    }

    #[test]
    fn names_are_renamed_where_they_mean_the_same() {
        let mut items =
            vec![from("early"), module("up", vec![from("early")]), module("other", vec![tap("early"), from("early")])];
        let [name] = &names(&items, 1)[..] else { panic!() };
        rename(&mut items, &HashMap::from([("early", name.as_str())]));
        let expected =
            [from("skip"), module("up", vec![from("skip")]), module("other", vec![tap("early"), from("early")])];
        assert_eq!(items, expected);
        assert_eq!(names(&[tap("skip")], 2), ["skip2", "skip3"]);
    }
}
