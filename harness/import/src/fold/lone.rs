//! Blocks that are used once stand where they are used.

use std::collections::HashMap;

use indexmap::IndexMap;

use super::Folded;
use crate::generalise::Argument;
use crate::item::{Item, each_list};
use crate::layout::would_be_numbered;
use crate::word::{Entry, Setting};

/// Inlines blocks that are used once, if possible.
pub(super) fn unfold(folded: &mut Folded) {
    loop {
        let mut uses: HashMap<String, usize> = HashMap::new();
        let mut count = |list: &mut Vec<Item>| {
            for item in list.iter() {
                match item {
                    Item::Use { block, .. } => *uses.entry(block.clone()).or_default() += 1,
                    Item::Stack { block, .. } => *uses.entry(block.clone()).or_default() += 2,
                    _ => {}
                }
            }
        };
        each_list(&mut folded.body, &mut count);
        folded.blocks.iter_mut().for_each(|block| each_list(&mut block.body, &mut count));
        let lone = folded.blocks.iter().position(|block| {
            let is_join = matches!(&block.body[..], [only] if only.is_join());
            uses.get(&block.name) == Some(&1) && (is_join || !would_be_numbered(&block.body))
        });
        let Some(lone) = lone else { return };
        let block = folded.blocks.remove(lone);
        let mut replace = |list: &mut Vec<Item>| {
            for item in list.iter_mut() {
                if let Item::Use { name, block: used, args, returns, enabled, .. } = item
                    && *used == block.name
                {
                    let mut body = block.body.clone();
                    substitute(&mut body, args, &block.args);
                    let (name, path, class, returns) = (name.clone(), String::new(), String::new(), returns.clone());
                    let (source, enabled) = (None, enabled.clone());
                    *item = Item::Module { name, path, class, source, body, returns, enabled, closed: true };
                }
            }
        };
        each_list(&mut folded.body, &mut replace);
        folded.blocks.iter_mut().for_each(|block| each_list(&mut block.body, &mut replace));
    }
}

/// An expression times or divided by a whole number: `$width*4` by `/2` is `$width*2`.
fn scaled(expression: &str, factor: &str) -> String {
    let simple = || {
        let (name, before) = expression.rsplit_once('*')?;
        let (before, by): (u64, u64) = (before.parse().ok()?, factor.get(1..)?.parse().ok()?);
        let left = match factor.starts_with('*') {
            true => before.checked_mul(by)?,
            false => (by > 0 && before % by == 0).then(|| before / by)?,
        };
        Some(if left == 1 { name.to_owned() } else { format!("{name}*{left}") })
    };
    simple().unwrap_or_else(|| format!("{expression}{factor}"))
}

/// Replaces expressions by arguments.
fn substitute(body: &mut Vec<Item>, args: &IndexMap<String, Entry>, declared: &[Argument]) {
    let value = |setting: &Setting| match setting {
        Setting::Text(text) => {
            let rest = text.strip_prefix('$')?;
            let end = rest.find(['*', '/']).unwrap_or(rest.len());
            let (name, factor) = rest.split_at(end);
            let default = || declared.iter().find(|arg| arg.name == name)?.default.clone();
            let given = args.get(name).map(|entry| entry.value.clone()).or_else(default)?;
            Some(match given {
                Setting::Int(number) if !factor.is_empty() => {
                    let by: i64 = factor[1..].parse().ok()?;
                    let result = if factor.starts_with('*') { number.checked_mul(by) } else { number.checked_div(by) };
                    Setting::Int(result?)
                }
                Setting::Text(outer) => Setting::Text(scaled(&outer, factor)),
                other => other,
            })
        }
        _ => None,
    };
    let mut visit = |entry: &mut Entry| match &mut entry.value {
        Setting::List(items) | Setting::Sides(items) => {
            items.iter_mut().for_each(|item| *item = value(item).unwrap_or_else(|| item.clone()));
            entry.value = entry.value.clone().shortest();
        }
        whole => *whole = value(whole).unwrap_or_else(|| whole.clone()),
    };
    each_list(body, &mut |list| {
        for item in list.iter_mut() {
            match item {
                Item::Layer { word, .. } | Item::Around { word, .. } => word.settings.values_mut().for_each(&mut visit),
                Item::Use { args, enabled, .. } => args.values_mut().chain(enabled).for_each(&mut visit),
                Item::Stack { args, first, repeat, .. } => {
                    args.values_mut().chain(first.values_mut()).chain([repeat]).for_each(&mut visit);
                }
                Item::Module { enabled, .. } => enabled.iter_mut().for_each(&mut visit),
                Item::Tap(_)
                | Item::From(_)
                | Item::Join(..)
                | Item::Again { .. }
                | Item::Residual { .. }
                | Item::Concat { .. }
                | Item::Scope { .. } => {}
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::scaled;

    #[test]
    fn products_of_whole_numbers_become_one() {
        assert_eq!(scaled("$width*4", "/4"), "$width");
        assert_eq!(scaled("$width*4", "*2"), "$width*8");
        assert_eq!(scaled("$width*4", "/3"), "$width*4/3");
        assert_eq!(scaled("$width/2*6", "/3"), "$width/2*2");
        assert_eq!(scaled("$width", "/3"), "$width/3");
        assert_eq!(scaled("$width/2", "*2"), "$width/2*2");
    }
}
