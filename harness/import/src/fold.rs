//! Converts repeated modules to blocks, and consecutive ones to stacks.

mod lone;
mod names;

use std::collections::HashMap;

use indexmap::{IndexMap, IndexSet};

use self::names::{block_name, uses, words};
use crate::align::{completed, turned, union};
use crate::borrowed::{borrowed, names, rename};
use crate::generalise::{Argument, General, generalise};
use crate::item::{Item, each_list, size};
use crate::layout::would_be_numbered;
use crate::slots::outline;
use crate::word::{Entry, Setting};

/// A part that is used several times, or that cannot be written inline.
#[derive(Clone, Debug)]
pub struct Block {
    /// Its name.
    pub name: String,
    /// Its class, and where the class is defined.
    pub comment: Option<String>,
    /// Its arguments.
    pub args: Vec<Argument>,
    /// Its layers.
    pub body: Vec<Item>,
}

/// A model with blocks for its repeated parts.
#[derive(Clone, Debug)]
pub struct Folded {
    /// The blocks, inner ones first.
    pub blocks: Vec<Block>,
    /// The layers.
    pub body: Vec<Item>,
}

/// Smallest number of layers in a repeated part that becomes a block.
const WORTH: usize = 3;

/// Classes of PyTorch that hold other modules.
const LISTS: [&str; 3] = ["ModuleList", "ModuleDict", "Sequential"];

/// Folds repeated parts.
///
/// `classes`: the class of each module, by path.
pub fn fold(body: Vec<Item>, classes: &HashMap<&str, &str>) -> Folded {
    let mut folded = Folded { blocks: Vec::new(), body };
    while let Some(parts) = ready(&mut folded.body) {
        let mut replaced: HashMap<String, Item> = HashMap::new();
        for group in grouped(parts) {
            close(group, &mut folded.blocks, &mut replaced, classes);
        }
        each_list(&mut folded.body, &mut |list| {
            for item in list.iter_mut() {
                if let Item::Module { path, closed: false, .. } = item
                    && let Some(other) = replaced.remove(path.as_str())
                {
                    *item = other;
                }
            }
        });
    }
    stack(&mut folded.body, None);
    lone::unfold(&mut folded);
    let bodies = folded.blocks.iter_mut().map(|block| &mut block.body).chain([&mut folded.body]);
    bodies.for_each(|body| each_list(body, &mut without_unread));
    folded
}

/// Takes out values that nothing reads before another one takes their place.
fn without_unread(items: &mut Vec<Item>) {
    let is_from = |item: Option<&Item>| matches!(item, Some(Item::From(_)));
    let unread: Vec<bool> =
        (0..items.len()).map(|place| is_from(items.get(place)) && is_from(items.get(place + 1))).collect();
    let mut unread = unread.into_iter();
    items.retain(|_| !unread.next().unwrap_or(false));
}

/// A module whose inner modules are all processed.
#[derive(Clone)]
struct Part {
    name: String,
    path: String,
    class: String,
    source: Option<String>,
    /// Its layers, which read taps from outside under names that do not depend on where they are.
    body: Vec<Item>,
    /// Those taps, by these names.
    inputs: IndexMap<String, String>,
    returns: IndexMap<String, String>,
}

impl Part {
    /// Reads taps from outside under their own names.
    fn restore(&self, body: &mut [Item]) {
        rename(body, &self.inputs.iter().map(|(name, tap)| (name.as_str(), tap.as_str())).collect());
    }
}

/// The modules that can be processed next; `None` if all are processed. If possible, modules of the same class are
/// processed together.
fn ready(items: &mut Vec<Item>) -> Option<Vec<Part>> {
    let (mut parts, mut waiting) = (Vec::new(), Vec::new());
    each_list(items, &mut |list| {
        for item in list.iter() {
            let Item::Module { name, path, class, source, body, returns, closed: false, .. } = item else { continue };
            match is_open(body) {
                true => waiting.push(class.clone()),
                false => parts.push(Part {
                    name: name.clone(),
                    path: path.clone(),
                    class: class.clone(),
                    source: source.clone(),
                    body: body.clone(),
                    inputs: IndexMap::new(),
                    returns: returns.clone(),
                }),
            }
        }
    });
    let together = |part: &Part| part.class == "Sequential" || !waiting.contains(&part.class);
    if parts.iter().any(together) {
        parts.retain(together);
    }
    (!parts.is_empty()).then_some(parts)
}

fn is_open(items: &[Item]) -> bool {
    items.iter().any(|item| match item {
        Item::Module { closed, body, .. } => !closed || is_open(body),
        Item::Residual { main, shortcut } => is_open(main) || is_open(shortcut),
        Item::Concat { branches, .. } => branches.iter().any(|branch| is_open(branch)),
        Item::Around { body, .. } | Item::Scope { body, .. } => is_open(body),
        Item::Layer { .. } | Item::Tap(_) | Item::From(_) | Item::Join(..) | Item::Again { .. } => false,
        Item::Use { .. } | Item::Stack { .. } => false,
    })
}

/// Parts that become one block, and the layers of all of them.
type Group = (Vec<Item>, Vec<Part>);

/// Groups parts of a class that differ in numbers, or in layers that some of them lack: those are disabled there.
fn grouped(parts: Vec<Part>) -> Vec<Group> {
    let mut classes: IndexMap<(String, String), Vec<Group>> = IndexMap::new();
    for mut part in parts {
        stack(&mut part.body, None);
        let taps = borrowed(&part.body);
        part.inputs = names(&part.body, taps.len()).into_iter().zip(taps).collect();
        rename(&mut part.body, &part.inputs.iter().map(|(name, tap)| (tap.as_str(), name.as_str())).collect());
        let groups = classes.entry((part.class.clone(), format!("{:?}", part.returns))).or_default();
        let fits = groups.iter_mut().find_map(|(whole, parts)| {
            if outline(whole) == outline(&part.body) {
                return Some(parts);
            }
            // Any layers make a `Sequential`.
            if part.class == "Sequential" {
                return None;
            }
            let joined = |whole: &mut Vec<Item>, part: &Part, parts: &[Part]| {
                let union = union(whole, &part.body)?;
                let is_whole = |part: &Part| completed(&part.body, &union).is_some();
                let is_known = outline(whole) == outline(&union);
                (is_whole(part) && (is_known || parts.iter().all(is_whole))).then(|| *whole = union)
            };
            if joined(whole, &part, parts).is_some() {
                return Some(parts);
            }
            // A sum with a value that others change first.
            if let Some(body) = turned(&part.body)
                .into_iter()
                .find(|body| joined(whole, &Part { body: body.clone(), ..part.clone() }, parts).is_some())
            {
                part.body = body;
                return Some(parts);
            }
            let others: Vec<Vec<Vec<Item>>> = parts.iter().map(|part| turned(&part.body)).collect();
            turned(whole).into_iter().enumerate().find_map(|(place, mut other)| {
                let all = parts.iter().zip(&others);
                let turned: Option<Vec<Part>> =
                    all.map(|(part, bodies)| Some(Part { body: bodies.get(place)?.clone(), ..part.clone() })).collect();
                let turned = turned?;
                joined(&mut other, &part, &turned)?;
                (*whole, *parts) = (other, turned);
                Some(())
            })?;
            Some(parts)
        });
        match fits {
            Some(parts) => parts.push(part),
            None => groups.push((part.body.clone(), vec![part])),
        }
    }
    classes.into_values().flatten().collect()
}

/// Determines how the parts of a group are written.
fn close(
    (whole, group): Group,
    blocks: &mut Vec<Block>,
    replaced: &mut HashMap<String, Item>,
    classes: &HashMap<&str, &str>,
) {
    let Some(first) = group.first() else { return };
    let is_join = matches!(&first.body[..], [only] if only.is_join());
    let must = would_be_numbered(&first.body) && !is_join;
    // A stack is more readable inline.
    let is_layer = first.body.iter().any(|item| matches!(item, Item::Layer { name: Some(name), .. } if name == "."));
    let repeats = group.len() > 1
        && (is_layer || size(&first.body) >= WORTH)
        && (!words(&first.body).is_empty() || first.class != "Sequential" && uses(&first.body).len() >= WORTH)
        && !is_of_one_class(&group, classes);
    if let [Item::Stack { name, .. }] = &first.body[..]
        && name.is_empty()
        && first.returns.is_empty()
    {
        for mut part in group {
            // A stack reads no taps.
            if let Some(Item::Stack { name, .. }) = part.body.first_mut() {
                name.clone_from(&part.name);
            }
            replaced.extend(part.body.pop().map(|row| (part.path, row)));
        }
        return;
    }
    if !must && !repeats {
        for mut part in group {
            let mut body = std::mem::take(&mut part.body);
            part.restore(&mut body);
            let Part { name, path, class, source, returns, .. } = part;
            let own = path.clone();
            let item = Item::Module { name, path, class, source, body, returns, enabled: None, closed: true };
            replaced.insert(own, item);
        }
        return;
    }
    let filled = |part: &Part| completed(&part.body, &whole).unwrap_or_else(|| part.body.clone());
    let mut bodies: Vec<Vec<Item>> = group.iter().map(filled).collect();
    let General { mut body, args } = generalise(&mut bodies);
    let reads_alike = group.iter().all(|part| part.inputs == first.inputs);
    if reads_alike {
        first.restore(&mut body);
    }
    let name = block_name(first, &body, blocks, classes);
    let comment = first.source.as_ref().map(|source| format!("{}, {source}", first.class));
    let channels: IndexSet<String> = args.iter().filter(|arg| arg.channels).map(|arg| arg.name.clone()).collect();
    for (index, part) in group.iter().enumerate() {
        let given = |arg: &Argument| {
            let value = arg.values.get(index).cloned().flatten().or_else(|| arg.default.clone())?;
            Some((arg.name.clone(), Entry { value, default: arg.default.clone() }))
        };
        let item = Item::Use {
            name: part.name.clone(),
            block: name.clone(),
            args: args.iter().filter_map(given).collect(),
            channels: channels.clone(),
            inputs: if reads_alike { IndexMap::new() } else { part.inputs.clone() },
            returns: part.returns.clone(),
            enabled: None,
        };
        replaced.insert(part.path.clone(), item);
    }
    blocks.push(Block { name, comment, args, body });
}

/// Whether `Sequential`s are the same attribute of one class, of which they remain a part.
fn is_of_one_class(group: &[Part], classes: &HashMap<&str, &str>) -> bool {
    let around = |part: &Part| {
        let (around, own) = part.path.rsplit_once('.')?;
        let class = classes.get(around).filter(|class| !LISTS.contains(class))?;
        (part.class == "Sequential").then(|| ((*class).to_owned(), own.to_owned()))
    };
    let first = group.first().and_then(around);
    first.is_some() && group.iter().all(|part| around(part) == first)
}

/// Converts sequences of one block to stacks, at all levels. `module` is the name of the module whose body this is.
fn stack(items: &mut Vec<Item>, module: Option<&str>) {
    for item in items.iter_mut() {
        match item {
            Item::Module { name, body, returns, .. } => {
                stack(body, Some(name));
                if let [Item::Stack { name: own, .. }] = &mut body[..]
                    && own.is_empty()
                    && returns.is_empty()
                {
                    own.clone_from(name);
                    if let Some(whole) = body.pop() {
                        *item = whole;
                    }
                }
            }
            Item::Scope { body, .. } => stack(body, None),
            Item::Residual { main, shortcut } => {
                stack(main, None);
                stack(shortcut, None);
            }
            Item::Concat { branches, .. } => branches.iter_mut().for_each(|branch| stack(branch, None)),
            Item::Around { body, .. } => stack(body, None),
            Item::Layer { .. }
            | Item::Tap(_)
            | Item::From(_)
            | Item::Join(..)
            | Item::Again { .. }
            | Item::Use { .. }
            | Item::Stack { .. } => {}
        }
    }
    let is_whole = module.is_some();
    if let Some(row) = row(items)
        && (is_whole || items.len() > 1)
    {
        *items = vec![row];
    }
}

/// Converts a list of uses of one block to a stack, if they are numbered from 0 and only the first differs from the
/// others.
fn row(items: &[Item]) -> Option<Item> {
    let uses: Vec<_> = items
        .iter()
        .map(|item| match item {
            Item::Use { name, block, args, channels, inputs, returns, enabled: None }
                if returns.is_empty() && inputs.is_empty() =>
            {
                Some((name, block, args, channels))
            }
            _ => None,
        })
        .collect::<Option<_>>()?;
    let [(first_name, block, first_args, channels), (_, _, args, _), ..] = uses[..] else { return None };
    let prefix = first_name.strip_suffix('0')?;
    let in_row = uses.iter().enumerate().all(|(index, (name, other, given, _))| {
        **name == format!("{prefix}{index}") && *other == block && (index == 0 || *given == args)
    });
    if !in_row {
        return None;
    }
    let first = first_args.iter().filter(|(key, entry)| args.get(*key) != Some(entry));
    let first = first.map(|(key, entry)| {
        // Written for the first even if it is the default of the block, because the others have another value.
        let said_of_others = args.get(key).is_some_and(|other| other.default.as_ref() != Some(&other.value));
        let default = if said_of_others { None } else { entry.default.clone() };
        (key.clone(), Entry { value: entry.value.clone(), default })
    });
    let count = i64::try_from(uses.len()).ok()?;
    Some(Item::Stack {
        name: String::new(),
        block: block.clone(),
        item: prefix.to_owned(),
        repeat: Entry { value: Setting::Int(count), default: None },
        args: args.clone(),
        first: first.collect(),
        channels: channels.clone(),
    })
}
