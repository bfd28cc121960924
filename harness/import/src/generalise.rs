//! Generalises several bodies that differ in numbers and switches to one body with arguments.

use crate::item::Item;
use crate::slots::{Slot, each_entry, slots};
use crate::word::{ENABLED, Setting};

/// An argument of a block.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// Its name.
    pub name: String,
    /// Its default for uses.
    pub default: Option<Setting>,
    /// Whether it counts channels.
    pub channels: bool,
    /// Its value in each body.
    pub values: Vec<Option<Setting>>,
}

/// The common part of bodies, and their differences.
pub struct General {
    /// The layers, with expressions of arguments.
    pub body: Vec<Item>,
    /// The arguments.
    pub args: Vec<Argument>,
}

/// Values of one slot in all bodies.
struct Column {
    key: String,
    layer: String,
    channels: bool,
    /// Whether it is an extent of a shape.
    is_extent: bool,
    values: Vec<Option<Setting>>,
}

/// One body for several bodies with the same outline.
pub fn generalise(bodies: &mut [Vec<Item>]) -> General {
    even_out(bodies);
    let tables: Vec<Vec<Slot>> = bodies.iter().map(|body| slots(body)).collect();
    let mut template = bodies.first().cloned().unwrap_or_default();
    let widest = tables.iter().position(|table| table.iter().all(|slot| slot.value.is_some())).unwrap_or(0);
    template.clone_from(&bodies[widest.min(bodies.len() - 1)]);
    let columns: Vec<Vec<Column>> = (0..tables[0].len()).map(|index| split(&tables, index)).collect();
    let mut found: Vec<Found> = Vec::new();
    let mut written: Vec<Setting> = columns.iter().flatten().map(|column| expression(column, &mut found)).collect();
    let args = named(found, &mut written);
    let mut counts = columns.iter().map(Vec::len);
    let mut written = written.into_iter();
    each_entry(&mut template, true, &mut |_, _, _, _, entry| {
        let count = counts.next().unwrap_or(0);
        let mut parts: Vec<Setting> = written.by_ref().take(count).collect();
        entry.value = match &entry.value {
            Setting::List(_) => Setting::List(parts),
            Setting::Sides(_) => Setting::Sides(parts).shortest(),
            _ => parts.pop().unwrap_or(Setting::Bool(true)),
        };
    });
    General { body: template, args }
}

/// Writes a size as a list if another body has a list in its place.
fn even_out(bodies: &mut [Vec<Item>]) {
    let lengths: Vec<Vec<usize>> = bodies
        .iter()
        .map(|body| {
            slots(body)
                .iter()
                .map(|slot| match &slot.value {
                    Some(Setting::Sides(items)) => items.len(),
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
                Setting::Sides(items) if items.len() == 2 && wanted == 4 => {
                    Setting::Sides(vec![items[0].clone(), items[0].clone(), items[1].clone(), items[1].clone()])
                }
                value @ (Setting::List(_) | Setting::Sides(_)) => value,
                value if wanted > 0 => Setting::Sides(vec![value; wanted]),
                value => value,
            };
        });
    }
}

/// The slot at an index in all bodies: one column, or one for each element of a list.
fn split(tables: &[Vec<Slot>], index: usize) -> Vec<Column> {
    let slot = &tables[0][index];
    let is_extent = ["to", "shape"].contains(&slot.key.as_str());
    let column = |values: Vec<Option<Setting>>, key: String| {
        let (layer, channels) = (slot.layer.clone(), slot.channels);
        Column { key, layer, channels, is_extent, values }
    };
    let values: Vec<Option<Setting>> =
        tables.iter().map(|table| table.get(index).and_then(|slot| slot.value.clone())).collect();
    let length = values.iter().flatten().find_map(|value| value.items().map(<[Setting]>::len));
    let Some(length) = length else { return vec![column(values, slot.key.clone())] };
    let element = |at: usize| {
        let of = |value: &Option<Setting>| value.as_ref()?.items()?.get(at).cloned();
        let extents: &[&str] = match length {
            1 => &["features"],
            2 => &["tokens", "features"],
            3 => &["channels", "rows", "columns"],
            _ => &["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"],
        };
        let key = match (length, extents.get(at)) {
            (_, Some(extent)) if is_extent => (*extent).to_owned(),
            (2, _) => format!("{}{}", slot.key, ["_h", "_w"][at]),
            (4, _) => format!("{}{}", slot.key, ["_top", "_bottom", "_left", "_right"][at]),
            _ => format!("{}_{at}", slot.key),
        };
        column(values.iter().map(of).collect(), key)
    };
    (0..length).map(element).collect()
}

fn varies(values: &[Option<Setting>]) -> bool {
    let mut defined = values.iter().flatten();
    defined.next().is_some_and(|first| defined.any(|other| other != first))
}

/// An argument without a name.
struct Found {
    key: String,
    layer: String,
    channels: bool,
    values: Vec<Option<Setting>>,
    uses: usize,
}

/// A column as a literal, or as an expression of an argument, which is created if needed. `$#2*4` means four times
/// the third argument.
fn expression(column: &Column, found: &mut Vec<Found>) -> Setting {
    let is_partial = column.values.iter().any(Option::is_none);
    if !varies(&column.values) && !is_partial {
        return column.values.iter().flatten().next().cloned().unwrap_or(Setting::Bool(true));
    }
    for (index, arg) in found.iter_mut().enumerate() {
        // An extent of a shape may be a number of channels.
        let is_extent = column.is_extent && arg.channels;
        let same_kind = column.channels == arg.channels && (column.channels || arg.key == column.key) || is_extent;
        let both = arg.values.iter().zip(&column.values);
        let pairs: Vec<_> =
            both.clone().filter_map(|(ours, theirs)| Some((ours.as_ref()?, theirs.as_ref()?))).collect();
        if !same_kind || pairs.is_empty() {
            continue;
        }
        let covers = both.clone().all(|(ours, theirs)| ours.is_some() || theirs.is_none());
        // Where a layer is missing, its argument may have any value.
        let may_be = covers || varies(&column.values) == varies(&arg.values);
        if may_be && pairs.iter().all(|(ours, theirs)| ours == theirs) {
            arg.values = both.map(|(ours, theirs)| ours.clone().or_else(|| theirs.clone())).collect();
            arg.uses += 1;
            return Setting::Text(format!("$#{index}"));
        }
        if !covers {
            continue;
        }
        if let (true, Some(factor)) = ((column.channels || is_extent) && varies(&column.values), ratio(&pairs)) {
            arg.uses += 1;
            return Setting::Text(format!("$#{index}{factor}"));
        }
    }
    if !varies(&column.values) {
        return column.values.iter().flatten().next().cloned().unwrap_or(Setting::Bool(true));
    }
    let Column { key, layer, channels, values, .. } = column;
    let (key, layer, channels, values) = (key.clone(), layer.clone(), *channels, values.clone());
    found.push(Found { key, layer, channels, values, uses: 1 });
    Setting::Text(format!("$#{}", found.len() - 1))
}

/// `*4` if all second numbers are four times the first ones, `/4` for the reverse.
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

/// Assigns names to arguments, and replaces their numbers in expressions.
fn named(found: Vec<Found>, written: &mut [Setting]) -> Vec<Argument> {
    let mut args: Vec<Argument> = Vec::new();
    for arg in &found {
        let many = found.iter().filter(|other| other.key == arg.key).count() > 1;
        let name = name(arg, many, &args);
        args.push(Argument { name, default: default(arg), channels: arg.channels, values: arg.values.clone() });
    }
    for setting in written {
        let Setting::Text(text) = setting else { continue };
        let Some(rest) = text.strip_prefix("$#") else { continue };
        let end = rest.find(['*', '/']).unwrap_or(rest.len());
        let (index, factor) = rest.split_at(end);
        if let Some(arg) = index.parse().ok().and_then(|index: usize| args.get(index)) {
            *setting = Setting::Text(format!("${}{factor}", arg.name));
        }
    }
    args
}

/// The most frequent value in the bodies, if more than half of them have it and it is not a number of channels. Any
/// value if it has no effect.
fn default(arg: &Found) -> Option<Setting> {
    let mut counts: Vec<(&Setting, usize)> = Vec::new();
    for value in arg.values.iter().flatten() {
        match counts.iter_mut().find(|(known, _)| *known == value) {
            Some((_, count)) => *count += 1,
            None => counts.push((value, 1)),
        }
    }
    let is_partial = arg.values.iter().any(Option::is_none);
    let (most, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    (is_partial || !arg.channels && 2 * count > arg.values.len()).then(|| most.clone())
}

/// The key. If several arguments have the same key, the name of the layer is placed before it.
fn name(arg: &Found, many: bool, args: &[Argument]) -> String {
    let taken = |name: &str| name == "classes" || args.iter().any(|arg| arg.name == name);
    let layer: String = arg.layer.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let is_word = layer.starts_with(|c: char| c.is_ascii_alphabetic());
    let plain = match arg.key.as_str() {
        ENABLED if is_word => layer.clone(),
        "out" if arg.uses > 1 => "width".to_owned(),
        key => key.to_owned(),
    };
    let long = format!("{layer}_{plain}");
    let choices = match (is_word && arg.key != ENABLED, many && plain != "width") {
        (true, true) => vec![long, plain.clone()],
        (true, false) => vec![plain.clone(), long],
        (false, _) => vec![plain.clone()],
    };
    let numbered = (2..).map(|number| format!("{plain}{number}"));
    choices.into_iter().chain(numbered).find(|name| !taken(name)).unwrap_or_default()
}
