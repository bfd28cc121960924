//! One body with arguments for several that differ in numbers and switches.

use indexmap::{IndexMap, IndexSet};

use crate::layout::Item;
use crate::slots::{Slot, each_entry, slots};
use crate::word::{Entry, Setting};

/// An argument of a block.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// Its name.
    pub name: String,
    /// What it is where a use does not say.
    pub default: Option<Setting>,
    /// Whether it counts channels.
    pub channels: bool,
    /// Its value in each body.
    pub values: Vec<Option<Setting>>,
}

/// What bodies have in common, and what is different.
pub struct General {
    /// The layers, with expressions of the arguments.
    pub body: Vec<Item>,
    /// The arguments.
    pub args: Vec<Argument>,
}

/// Numbers of one kind in all bodies.
struct Column {
    key: String,
    layer: String,
    channels: bool,
    values: Vec<Option<Setting>>,
}

/// One body for several of the same outline.
pub fn generalise(bodies: &mut [Vec<Item>]) -> General {
    complete(bodies);
    even_out(bodies);
    let tables: Vec<Vec<Slot>> = bodies.iter().map(|body| slots(body)).collect();
    let mut args: Vec<Argument> = Vec::new();
    let mut template = bodies.first().cloned().unwrap_or_default();
    let widest = tables.iter().position(|table| table.iter().all(|slot| slot.value.is_some())).unwrap_or(0);
    template.clone_from(&bodies[widest.min(bodies.len() - 1)]);
    let columns: Vec<Vec<Column>> = (0..tables[0].len()).map(|index| split(&tables, index)).collect();
    let mut written: Vec<Setting> = Vec::new();
    let names = names(&columns);
    for column in columns.iter().flatten() {
        written.push(expression(column, &mut args, &names));
    }
    let mut counts = columns.iter().map(Vec::len);
    let mut written = written.into_iter();
    each_entry(&mut template, true, &mut |_, _, _, _, entry| {
        let count = counts.next().unwrap_or(0);
        let mut parts: Vec<Setting> = written.by_ref().take(count).collect();
        entry.value = match &entry.value {
            Setting::List(_) => Setting::List(parts).shortest(),
            _ => parts.pop().unwrap_or(Setting::Bool(true)),
        };
    });
    General { body: template, args }
}

/// Gives bodies without the shortcut of others a copy that is switched off.
fn complete(bodies: &mut [Vec<Item>]) {
    let Some(whole) = bodies.iter().max_by_key(|body| slots(body).len()).cloned() else { return };
    if bodies.iter().all(|body| slots(body).len() == slots(&whole).len()) {
        return;
    }
    for body in bodies.iter_mut() {
        adopt(body, &whole);
    }
}

fn adopt(items: &mut [Item], whole: &[Item]) {
    for (item, whole) in items.iter_mut().zip(whole) {
        match (item, whole) {
            (Item::Residual { main, shortcut }, Item::Residual { main: whole_main, shortcut: whole_shortcut }) => {
                adopt(main, whole_main);
                let is_there = !shortcut.is_empty();
                if !is_there {
                    shortcut.clone_from(whole_shortcut);
                }
                if let [Item::Module { enabled, .. }] = &mut shortcut[..] {
                    let value = Setting::Bool(is_there);
                    *enabled = Some(Entry { value, default: Some(Setting::Bool(true)) });
                }
            }
            (Item::Gate(body), Item::Gate(whole))
            | (Item::Scope { body, .. }, Item::Scope { body: whole, .. })
            | (Item::Module { body, .. }, Item::Module { body: whole, .. }) => adopt(body, whole),
            (Item::Concat { branches, .. }, Item::Concat { branches: whole, .. }) => {
                branches.iter_mut().zip(whole).for_each(|(branch, whole)| adopt(branch, whole));
            }
            _ => {}
        }
    }
}

/// Writes a size as a list wherever another body has a list there.
fn even_out(bodies: &mut [Vec<Item>]) {
    let lengths: Vec<Vec<usize>> = bodies
        .iter()
        .map(|body| {
            slots(body)
                .iter()
                .map(|slot| match &slot.value {
                    Some(Setting::List(items)) => items.len(),
                    _ => 0,
                })
                .collect()
        })
        .collect();
    for body in bodies.iter_mut() {
        let mut index = 0;
        each_entry(body, true, &mut |_, _, _, _, entry| {
            let wanted = lengths.iter().filter_map(|row| row.get(index)).copied().max().unwrap_or(0);
            index += 1;
            entry.value = match std::mem::replace(&mut entry.value, Setting::Bool(true)) {
                Setting::List(items) if items.len() == 2 && wanted == 4 => {
                    Setting::List(vec![items[0].clone(), items[0].clone(), items[1].clone(), items[1].clone()])
                }
                value @ Setting::List(_) => value,
                value if wanted > 0 => Setting::List(vec![value; wanted]),
                value => value,
            };
        });
    }
}

/// The slot of all bodies at a place: one column, or one for each element of a list.
fn split(tables: &[Vec<Slot>], index: usize) -> Vec<Column> {
    let column = |values: Vec<Option<Setting>>, suffix: &str| {
        let slot = &tables[0][index];
        Column { key: format!("{}{suffix}", slot.key), layer: slot.layer.clone(), channels: slot.channels, values }
    };
    let values: Vec<Option<Setting>> =
        tables.iter().map(|table| table.get(index).and_then(|slot| slot.value.clone())).collect();
    let length = values.iter().flatten().find_map(|value| match value {
        Setting::List(items) => Some(items.len()),
        _ => None,
    });
    let Some(length) = length else { return vec![column(values, "")] };
    let element = |at: usize| {
        let of = |value: &Option<Setting>| match value {
            Some(Setting::List(items)) => items.get(at).cloned(),
            _ => None,
        };
        let suffix = match length {
            2 => ["_h", "_w"][at].to_owned(),
            4 => ["_top", "_bottom", "_left", "_right"][at].to_owned(),
            _ => format!("_{at}"),
        };
        column(values.iter().map(of).collect(), &suffix)
    };
    (0..length).map(element).collect()
}

/// Keys of which several different columns vary: their arguments need the name of the layer too.
fn names(columns: &[Vec<Column>]) -> IndexMap<String, usize> {
    let mut found: IndexMap<String, IndexSet<String>> = IndexMap::new();
    for column in columns.iter().flatten().filter(|column| varies(column)) {
        found.entry(column.key.clone()).or_default().insert(format!("{:?}", column.values));
    }
    found.into_iter().map(|(key, values)| (key, values.len())).collect()
}

fn varies(column: &Column) -> bool {
    let mut defined = column.values.iter().flatten();
    defined.next().is_some_and(|first| defined.any(|other| other != first))
}

/// A column as a literal, or as an expression of an argument, which is made if there is none.
fn expression(column: &Column, args: &mut Vec<Argument>, names: &IndexMap<String, usize>) -> Setting {
    if !varies(column) {
        return column.values.iter().flatten().next().cloned().unwrap_or(Setting::Bool(true));
    }
    for arg in args.iter_mut() {
        let same_kind = if column.channels { arg.channels } else { !arg.channels && (arg.name == column.key || arg.name.ends_with(&format!("_{}", column.key))) };
        if !same_kind {
            continue;
        }
        let pairs: Vec<_> = arg.values.iter().zip(&column.values).filter_map(|(a, b)| Some((a.as_ref()?, b.as_ref()?))).collect();
        let covered = arg.values.iter().zip(&column.values).all(|(a, b)| a.is_some() || b.is_none());
        if pairs.iter().all(|(a, b)| a == b) && covered {
            return Setting::Text(format!("${}", arg.name));
        }
        if let (true, true, Some(factor)) = (column.channels, covered, ratio(&pairs)) {
            return Setting::Text(format!("${}{factor}", arg.name));
        }
    }
    let name = name(column, args, names);
    let mut counts: Vec<(&Setting, usize)> = Vec::new();
    for value in column.values.iter().flatten() {
        match counts.iter_mut().find(|(known, _)| *known == value) {
            Some((_, count)) => *count += 1,
            None => counts.push((value, 1)),
        }
    }
    let most = counts.iter().max_by_key(|(_, count)| *count).copied();
    let is_partial = column.values.iter().any(Option::is_none);
    let default = most.filter(|(_, count)| is_partial || 2 * count > column.values.len()).map(|(value, _)| value.clone());
    args.push(Argument { name: name.clone(), default, channels: column.channels, values: column.values.clone() });
    Setting::Text(format!("${name}"))
}

/// `*4` where all second numbers are four times the first, `/4` the other way round.
fn ratio(pairs: &[(&Setting, &Setting)]) -> Option<String> {
    let numbers: Vec<(i64, i64)> = pairs
        .iter()
        .map(|pair| match pair {
            (Setting::Int(a), Setting::Int(b)) if *a > 0 && *b > 0 => Some((*a, *b)),
            _ => None,
        })
        .collect::<Option<_>>()?;
    let (a, b) = *numbers.first()?;
    let (over, under) = (b / a, a / b);
    if over > 1 && numbers.iter().all(|(a, b)| a.checked_mul(over) == Some(*b)) {
        return Some(format!("*{over}"));
    }
    (under > 1 && numbers.iter().all(|(a, b)| b.checked_mul(under) == Some(*a))).then(|| format!("/{under}"))
}

/// A name for the argument of a column.
fn name(column: &Column, args: &[Argument], names: &IndexMap<String, usize>) -> String {
    let taken = |name: &str| name == "classes" || args.iter().any(|arg| arg.name == name);
    let layer: String = column.layer.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let is_word = layer.starts_with(|c: char| c.is_ascii_alphabetic());
    let plain = match column.key.as_str() {
        "enabled" if is_word => layer.clone(),
        "out" if !names.contains_key("out") => "width".to_owned(),
        key => key.to_owned(),
    };
    let many = names.get(&column.key).is_some_and(|count| *count > 1) && column.key != "enabled";
    let long = format!("{layer}_{plain}");
    let choices = match (many && is_word, many) {
        (true, _) => [long.clone(), plain.clone()],
        _ => [plain.clone(), if is_word { long } else { plain.clone() }],
    };
    let free = choices.iter().find(|name| !taken(name)).cloned();
    free.unwrap_or_else(|| (2..).map(|number| format!("{plain}{number}")).find(|name| !taken(name)).unwrap_or(plain))
}
