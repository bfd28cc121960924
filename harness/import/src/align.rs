//! One list of layers for several that lack some of each other's: what is missing is there, but disabled.

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;

use crate::item::{Item, each_list, size};
use crate::slots::outline;
use crate::word::{ENABLED, Entry, Kind, Setting, Word};

/// Most pairs of items that are compared for one block, so that long modules stay quick.
const MOST_PAIRS: usize = 20_000;

/// What a list becomes if it has all layers of another one, too.
struct Aligned {
    /// The layers of both, as the first list has them.
    union: Vec<Item>,
    /// The layers of both, as the second list has them; those of the first one alone are disabled.
    whole: Vec<Item>,
    /// How many layers are in both.
    common: usize,
}

/// The layers of both lists; `None` if they differ in more than numbers and layers that one of them lacks, or if less
/// than half of the layers are in both.
pub fn union(first: &[Item], second: &[Item]) -> Option<Vec<Item>> {
    let found = align(first, second, &taps(first))?;
    (2 * found.common >= size(&found.union) && has_own_names(&found.union)).then_some(found.union)
}

/// Whether nothing that may be missing has the name of something else in a list: of another kind of layer for the same.
fn has_own_names(items: &[Item]) -> bool {
    let mut names = HashMap::new();
    items.iter().all(|item| {
        let (name, switch) = named(item);
        let before = name.and_then(|name| names.insert(name, switch.is_some()));
        before.is_none_or(|before| !before && switch.is_none())
            && item.lists().into_iter().all(|list| has_own_names(list))
    })
}

/// A list with all layers of `whole`, of which those that it lacks are disabled; `None` if it has others, or if its
/// values would be others.
pub fn completed(items: &[Item], whole: &[Item]) -> Option<Vec<Item>> {
    let mut found = align(whole, items, &taps(whole))?.whole;
    let mut same = HashMap::new();
    let fits = outline(&found) == outline(whole) || renamed(&mut found, whole, &mut same);
    (fits && outline(&found) == outline(whole)).then_some(found)
}

/// A list with each of its sums in turn the other way round: `conv2`, `add: x` as `conv2`, `tap: conv2`, `from: x`,
/// `add: conv2`, so that others can have layers on `x`.
pub fn turned(items: &[Item]) -> Vec<Vec<Item>> {
    let known = taps(items);
    let turned = |(place, pair): (usize, &[Item])| {
        let [before, Item::Join(tag @ ("add" | "mul"), of)] = pair else { return None };
        let name = named(before).0.filter(|name| !name.is_empty() && !known.contains(*name))?.to_owned();
        let all = [Item::Tap(name.clone()), Item::From(of.clone()), Item::Join(tag, name)];
        Some([&items[..=place], &all, &items[place + 2..]].concat())
    };
    items.windows(2).enumerate().filter_map(turned).collect()
}

/// Alignment of two lists, with as many layers in both as possible.
fn align(first: &[Item], second: &[Item], known: &HashSet<String>) -> Option<Aligned> {
    if outline(first) == outline(second) {
        return Some(Aligned { union: first.to_vec(), whole: second.to_vec(), common: size(first) });
    }
    if first.len().saturating_mul(second.len()) > MOST_PAIRS {
        return None;
    }
    let pairs: Vec<Vec<Option<(Item, Item, usize)>>> =
        first.iter().map(|a| second.iter().map(|b| pair(a, b, known)).collect()).collect();
    let (rows, columns) = (first.len(), second.len());
    let off: Vec<Option<Item>> = first.iter().map(disabled).collect();
    let may_lack: Vec<bool> = second.iter().map(|item| disabled(item).is_some()).collect();
    // By how many items of each are left, the most that both have in common.
    let mut most = vec![vec![None; columns + 1]; rows + 1];
    most[rows][columns] = Some(0);
    for i in (0..=rows).rev() {
        for j in (0..=columns).rev() {
            let both = (i < rows && j < columns).then(|| pairs[i][j].as_ref()).flatten();
            let both = both.and_then(|(_, _, common)| Some(most[i + 1][j + 1]? + common));
            let skipped = (i < rows && off[i].is_some()).then(|| most[i + 1][j]).flatten();
            let added = (j < columns && may_lack[j]).then(|| most[i][j + 1]).flatten();
            most[i][j] = most[i][j].max(both).max(skipped).max(added);
        }
    }
    let common = most[0][0]?;
    let (mut union, mut whole) = (Vec::new(), Vec::new());
    let (mut i, mut j) = (0, 0);
    while (i, j) != (rows, columns) {
        let here = most[i][j];
        if i < rows
            && j < columns
            && let Some((a, b, own)) = &pairs[i][j]
            && here.is_some_and(|here| most[i + 1][j + 1] == here.checked_sub(*own))
        {
            union.push(a.clone());
            whole.push(b.clone());
            (i, j) = (i + 1, j + 1);
        } else if i < rows
            && most[i + 1][j] == here
            && let Some(off) = &off[i]
        {
            union.push(optional(&first[i]));
            whole.push(off.clone());
            i += 1;
        } else {
            union.push(optional(second.get(j)?));
            whole.push(optional(&second[j]));
            j += 1;
        }
    }
    Some(Aligned { union, whole, common })
}

/// Two items as one, as the first and as the second list have it, and how many layers are in both.
fn pair(first: &Item, second: &Item, known: &HashSet<String>) -> Option<(Item, Item, usize)> {
    let inside = |a: &[Item], b: &[Item]| align(a, b, known);
    match (first, second) {
        (Item::From(a), Item::From(b)) => {
            // That of what the other one lacks is the one that both can have.
            let shared = if known.contains(b) { a } else { b };
            Some((Item::From(shared.clone()), second.clone(), usize::from(a == b)))
        }
        (Item::Residual { main: a, shortcut: c }, Item::Residual { main: b, shortcut: d }) => {
            let (main, shortcut) = (inside(a, b)?, inside(c, d)?);
            let common = 1 + main.common + shortcut.common;
            let union = Item::Residual { main: main.union, shortcut: shortcut.union };
            Some((union, Item::Residual { main: main.whole, shortcut: shortcut.whole }, common))
        }
        (Item::Concat { branches, axis }, Item::Concat { branches: others, axis: other })
            if axis == other && branches.len() == others.len() =>
        {
            let both: Option<Vec<Aligned>> = branches.iter().zip(others).map(|(a, b)| inside(a, b)).collect();
            let common = 1 + both.iter().flatten().map(|branch| branch.common).sum::<usize>();
            let (union, whole) = both?.into_iter().map(|branch| (branch.union, branch.whole)).unzip();
            let concat = |branches| Item::Concat { branches, axis: *axis };
            Some((concat(union), concat(whole), common))
        }
        (Item::Scope { name, body: a }, Item::Scope { name: other, body: b }) if name == other => {
            let body = inside(a, b)?;
            let scope = |body| Item::Scope { name: name.clone(), body };
            Some((scope(body.union), scope(body.whole), 1 + body.common))
        }
        (Item::Around { word, body: a }, Item::Around { word: other, body: b }) => {
            let body = inside(a, b)?;
            let is_optional = enabled(first).or(enabled(second)).is_some();
            let around = |word: &Word, body| {
                let around = Item::Around { word: word.clone(), body };
                if is_optional { optional(&around) } else { around }
            };
            let is_same = outline(&[around(word, Vec::new())]) == outline(&[around(other, Vec::new())]);
            is_same.then(|| (around(word, body.union), around(other, body.whole), 1 + body.common))
        }
        (Item::Module { name, returns, body: a, .. }, Item::Module { name: other, returns: others, body: b, .. })
            if (name, returns) == (other, others) =>
        {
            let body = inside(a, b)?;
            let is_optional = enabled(first).or(enabled(second)).is_some();
            let with = |module: &Item, own: Vec<Item>| {
                let mut module = if is_optional { optional(module) } else { module.clone() };
                if let Item::Module { body, .. } = &mut module {
                    *body = own;
                }
                module
            };
            Some((with(first, body.union), with(second, body.whole), 1 + body.common))
        }
        (Item::Stack { .. }, Item::Stack { .. } | Item::Use { .. }) | (Item::Use { .. }, Item::Stack { .. }) => {
            let [a, b] = [first, second].map(as_stack);
            let (a, b) = (with_first(a?, second), with_first(b?, first));
            (outline(std::slice::from_ref(&a)) == outline(std::slice::from_ref(&b))).then_some((a, b, 1))
        }
        (a, b) => {
            let [one, other] = [optional(a), optional(b)].map(|item| outline(&[item]));
            let is_same = outline(std::slice::from_ref(a)) == outline(std::slice::from_ref(b));
            match (is_same, one == other) {
                (true, _) => Some((a.clone(), b.clone(), size(std::slice::from_ref(a)))),
                (false, true) if enabled(a).or(enabled(b)).is_some() => {
                    Some((optional(a), optional(b), size(std::slice::from_ref(a))))
                }
                (false, _) => None,
            }
        }
    }
}

/// A block as a stack of one.
fn as_stack(item: &Item) -> Option<Item> {
    match item {
        Item::Use { name, block, args, channels, inputs, returns, enabled: None }
            if returns.is_empty() && inputs.is_empty() =>
        {
            let (args, channels) = (args.clone(), channels.clone());
            Some(Item::Stack {
                name: String::new(),
                block: block.clone(),
                item: name.strip_suffix('0')?.to_owned(),
                repeat: Entry { value: Setting::Int(1), default: None },
                args,
                first: IndexMap::new(),
                channels,
            })
        }
        Item::Stack { .. } => Some(item.clone()),
        _ => None,
    }
}

/// A stack that says of its first block what another one says of its own.
fn with_first(mut stack: Item, other: &Item) -> Item {
    if let (Item::Stack { args, first, .. }, Item::Stack { first: others, .. }) = (&mut stack, other) {
        for key in others.keys() {
            if let (false, Some(value)) = (first.contains_key(key), args.get(key)) {
                first.insert(key.clone(), value.clone());
            }
        }
        first.sort_keys();
    }
    stack
}

/// The name of an item, and whether it is there if it may be missing.
fn named(item: &Item) -> (Option<&str>, Option<&Entry>) {
    match item {
        Item::Layer { word, name } => (name.as_deref(), word.settings.get(ENABLED)),
        Item::Around { word, .. } => (None, word.settings.get(ENABLED)),
        Item::Module { name, enabled, .. } | Item::Use { name, enabled, .. } => (Some(name), enabled.as_ref()),
        Item::Tap(_)
        | Item::From(_)
        | Item::Join(..)
        | Item::Again { .. }
        | Item::Residual { .. }
        | Item::Concat { .. }
        | Item::Scope { .. }
        | Item::Stack { .. } => (None, None),
    }
}

fn enabled(item: &Item) -> Option<&Entry> {
    named(item).1
}

/// An item that may be missing elsewhere.
fn optional(item: &Item) -> Item {
    if enabled(item).is_some() { item.clone() } else { switched(item, true).unwrap_or_else(|| item.clone()) }
}

/// An item that is missing here; `None` if it cannot be.
fn disabled(item: &Item) -> Option<Item> {
    switched(item, false)
}

fn switched(item: &Item, is_on: bool) -> Option<Item> {
    let entry = || Entry { value: Setting::Bool(is_on), default: Some(Setting::Bool(true)) };
    let mut item = item.clone();
    match &mut item {
        Item::Layer { word, .. } if matches!(word.kind, Kind::Plain | Kind::Wide | Kind::Parameter | Kind::First) => {
            word.settings.shift_insert(0, ENABLED.to_owned(), entry());
        }
        Item::Around { word, .. } if word.kind == Kind::Gate => {
            word.settings.shift_insert(0, ENABLED.to_owned(), entry());
        }
        Item::Module { enabled, returns, .. } | Item::Use { enabled, returns, .. } if returns.is_empty() => {
            *enabled = Some(entry());
        }
        Item::Scope { body, .. } => {
            for inner in body.iter_mut() {
                *inner = switched(inner, is_on)?;
            }
        }
        Item::Tap(_) => {}
        Item::Layer { .. }
        | Item::Module { .. }
        | Item::Use { .. }
        | Item::From(_)
        | Item::Join(..)
        | Item::Again { .. }
        | Item::Residual { .. }
        | Item::Concat { .. }
        | Item::Around { .. }
        | Item::Stack { .. } => return None,
    }
    Some(item)
}

/// The names of all taps in a list.
fn taps(items: &[Item]) -> HashSet<String> {
    let mut found = HashSet::new();
    each_list(&mut items.to_vec(), &mut |list| {
        for item in list.iter() {
            if let Item::Tap(tap) = item {
                found.insert(tap.clone());
            }
        }
    });
    found
}

/// Reads the same taps as `whole`, where these have the same values; whether that could be done. `same`: for taps that
/// `items` had not, those with the same value.
fn renamed(items: &mut [Item], whole: &[Item], same: &mut HashMap<String, String>) -> bool {
    let mut present: Option<String> = None;
    items.len() == whole.len()
        && items.iter_mut().zip(whole).all(|(item, whole)| {
            let is_off = enabled(item).is_some_and(|entry| entry.value == Setting::Bool(false));
            match (item, whole) {
                (Item::Tap(tap), Item::Tap(_)) => {
                    if let Some(before) = present.replace(tap.clone()) {
                        let before = same.get(&before).cloned().unwrap_or(before);
                        same.insert(tap.clone(), before);
                    }
                    true
                }
                (Item::From(tap), Item::From(wanted)) => {
                    let value = |name: &String| same.get(name).unwrap_or(name).clone();
                    let fits = value(tap) == value(wanted);
                    tap.clone_from(wanted);
                    present = Some(wanted.clone());
                    fits
                }
                _ if is_off => true,
                (item, whole) => {
                    present = None;
                    // Taps of a module are its own.
                    let mut inside = HashMap::new();
                    let same = if matches!(item, Item::Module { .. }) { &mut inside } else { &mut *same };
                    let (lists, wholes) = (item.lists_mut(), whole.lists());
                    lists.len() == wholes.len()
                        && lists.into_iter().zip(wholes).all(|(list, whole)| renamed(list, whole, same))
                }
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoo_recipe::Layer;

    fn layer(text: &str, name: &str) -> Item {
        let layer: Layer = serde_yaml::with::singleton_map_recursive::deserialize(
            serde_yaml::from_str::<serde_yaml::Value>(text).unwrap(),
        )
        .unwrap();
        Item::Layer { word: Word::of(&layer), name: Some(name.to_owned()) }
    }

    fn linear(name: &str) -> Item {
        layer("linear: {out: 8}", name)
    }

    fn dropped(rate: f64) -> Item {
        layer(&format!("drop_path: {{rate: {rate}}}"), "drop")
    }

    fn is_there(items: &[Item]) -> Vec<bool> {
        items.iter().map(|item| enabled(item).is_none_or(|entry| entry.value == Setting::Bool(true))).collect()
    }

    #[test]
    fn a_layer_that_one_lacks_is_disabled_there() {
        let (short, long) = ([linear("fc1"), linear("fc2")], [linear("fc1"), dropped(0.1), linear("fc2")]);
        for (first, second) in [(&short[..], &long[..]), (&long, &short)] {
            let whole = union(first, second).unwrap();
            assert_eq!(is_there(&completed(&short, &whole).unwrap()), [true, false, true]);
            assert_eq!(is_there(&completed(&long, &whole).unwrap()), [true, true, true]);
        }
    }

    #[test]
    fn a_gate_that_one_lacks_is_disabled_there() {
        let gate = Item::Around { word: Word::gate(), body: vec![linear("fc")] };
        let (plain, gated) = ([linear("fc1"), linear("fc2")], [linear("fc1"), linear("fc2"), gate]);
        for (first, second) in [(&plain[..], &gated[..]), (&gated, &plain)] {
            let whole = union(first, second).unwrap();
            assert_eq!(is_there(&completed(&plain, &whole).unwrap()), [true, true, false]);
            assert_eq!(is_there(&completed(&gated, &whole).unwrap()), [true, true, true]);
        }
    }

    #[test]
    fn a_sum_the_other_way_round_has_room_for_a_layer() {
        let [tap, from] = [Item::Tap("fc2".to_owned()), Item::From("x".to_owned())];
        let add = |name: &str| Item::Join("add", name.to_owned());
        let plain = [linear("fc1"), linear("fc2"), add("x")];
        let with = [linear("fc1"), linear("fc2"), tap.clone(), from.clone(), linear("shortcut"), add("fc2")];
        assert_eq!(union(&plain, &with), None);
        let other = [linear("fc1"), linear("fc2"), tap, from, add("fc2")];
        assert_eq!(turned(&plain), [other.to_vec()]);
        let whole = union(&other, &with).unwrap();
        assert_eq!(is_there(&completed(&other, &whole).unwrap()), [true, true, true, true, false, true]);
        // Differences have an order.
        assert_eq!(turned(&[linear("fc1"), Item::Join("subtract", "x".to_owned())]), Vec::<Vec<Item>>::new());
    }

    #[test]
    fn shortcuts_may_be_missing_inside() {
        let block = |shortcut: &[Item]| [Item::Residual { main: vec![linear("fc")], shortcut: shortcut.to_vec() }];
        let whole = union(&block(&[]), &block(&[linear("proj")])).unwrap();
        let Some([Item::Residual { shortcut, .. }]) =
            completed(&block(&[]), &whole).as_deref().map(|items| [items[0].clone()])
        else {
            panic!("{whole:?}");
        };
        assert_eq!(is_there(&shortcut), [false]);
    }

    #[test]
    fn other_layers_are_no_block() {
        assert_eq!(union(&[linear("fc1")], &[linear("fc2"), linear("fc3"), linear("fc4")]), None);
        // What is joined is always there.
        let joined = [linear("fc1"), Item::Join("add", "x".to_owned())];
        assert_eq!(union(&joined, &joined[..1]), None);
        // One name, two kinds of layers.
        let other = layer("conv: {out: 8, kernel: 1}", "fc2");
        assert_eq!(union(&[linear("fc1"), linear("fc2")], &[linear("fc1"), other]), None);
    }

    #[test]
    fn values_that_a_layer_would_change_are_the_same_without_it() {
        let tap = |name: &str| Item::Tap(name.to_owned());
        let from = |name: &str| Item::From(name.to_owned());
        let reduced = [tap("x"), linear("reduce"), tap("reduce"), linear("k"), tap("key"), from("reduce"), linear("v")];
        let plain = |read: &str| [tap("x"), linear("k"), tap("key"), from(read), linear("v")];
        for (first, second) in [(&reduced[..], &plain("x")[..]), (&plain("x"), &reduced)] {
            let whole = union(first, second).unwrap();
            let filled = completed(&plain("x"), &whole).unwrap();
            assert_eq!(outline(&filled), outline(&whole));
            assert!(filled.contains(&from("reduce")), "{filled:?}");
            assert!(completed(&reduced, &whole).is_some());
        }
        // Another value.
        let whole = union(&reduced, &plain("key")).unwrap();
        assert_eq!(completed(&plain("key"), &whole), None);
    }

    #[test]
    fn a_block_is_a_stack_of_one() {
        let number = |value| Entry { value: Setting::Int(value), default: None };
        let args = IndexMap::from([("width".to_owned(), number(8)), ("stride".to_owned(), number(1))]);
        let (channels, name, block) = (indexmap::IndexSet::new(), "0".to_owned(), "block".to_owned());
        let one = Item::Use {
            name,
            block: block.clone(),
            args: args.clone(),
            channels: channels.clone(),
            inputs: IndexMap::new(),
            returns: IndexMap::new(),
            enabled: None,
        };
        let first = IndexMap::from([("stride".to_owned(), number(2))]);
        let (name, item, repeat) = (String::new(), String::new(), number(3));
        let row = Item::Stack { name, block, item, repeat, args, first, channels };
        let whole = union(std::slice::from_ref(&row), std::slice::from_ref(&one)).unwrap();
        let filled = completed(&[one], &whole).unwrap();
        let [Item::Stack { repeat, first, .. }] = &filled[..] else { panic!("{filled:?}") };
        assert_eq!((&repeat.value, &first["stride"].value), (&Setting::Int(1), &Setting::Int(1)));
    }
}
