//! Writes a model as YAML, in the style of hand-written recipes.

use std::fmt::Write;

use indexmap::IndexMap;
use zoo_recipe::layers::Axis;

use crate::fold::{Block, Folded};
use crate::item::Item;
use crate::scalar::{quoted, scalar};
use crate::word::{ENABLED, Entry, Setting, Word};

/// Largest number of characters in a line that is not broken.
pub const WIDTH: usize = 136;

/// The sections `blocks` and `body` of `model`.
pub fn model(folded: &Folded) -> String {
    let mut out = Lines::default();
    if !folded.blocks.is_empty() {
        out.line(2, "blocks:");
        folded.blocks.iter().for_each(|block| out.block(block));
    }
    out.line(2, "body:");
    out.list(4, &folded.body, false);
    out.text
}

/// `{a: 1, b: 2}` for settings that differ from their defaults.
fn flow(entries: &IndexMap<String, Entry>) -> String {
    let said = entries.iter().filter(|(_, entry)| entry.default.as_ref() != Some(&entry.value));
    let said: Vec<String> = said.map(|(key, entry)| format!("{}: {}", scalar(key), entry.value)).collect();
    if said.is_empty() { String::new() } else { format!("{{{}}}", said.join(", ")) }
}

#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn line(&mut self, indent: usize, text: &str) {
        let _ = writeln!(self.text, "{:indent$}{text}", "");
    }

    fn block(&mut self, block: &Block) {
        let comment = block
            .comment
            .as_ref()
            .map(|comment| format!(" # {}", comment.replace(char::is_control, " ")))
            .unwrap_or_default();
        self.line(4, &format!("{}:{comment}", scalar(&block.name)));
        let args: Vec<String> = block
            .args
            .iter()
            .map(|arg| {
                format!("{}: {}", scalar(&arg.name), arg.default.as_ref().map_or("~".to_owned(), ToString::to_string))
            })
            .collect();
        if !args.is_empty() {
            self.line(6, &format!("args: {{{}}}", args.join(", ")));
        }
        self.line(6, "body:");
        self.list(8, &block.body, false);
    }

    /// `numbered`: whether unnamed layers are named by their index.
    fn list(&mut self, indent: usize, items: &[Item], numbered: bool) {
        for (index, item) in items.iter().enumerate() {
            let place = numbered.then(|| index.to_string());
            self.item(indent, "- ", item, place.as_deref());
        }
    }

    /// A layer with all keys on one line, or with one key per line if that would be too long.
    fn keys(&mut self, indent: usize, dash: &str, tag: &str, keys: &[(String, String)]) {
        let said: Vec<String> = keys.iter().map(|(key, value)| format!("{key}: {value}")).collect();
        let whole = format!("{dash}{tag}: {{{}}}", said.join(", "));
        match said.len() {
            0 => self.line(indent, &format!("{dash}{tag}")),
            _ if indent + whole.len() <= WIDTH => self.line(indent, &whole),
            _ => {
                self.line(indent, &format!("{dash}{tag}:"));
                said.iter().for_each(|line| self.line(indent + dash.len() + 2, line));
            }
        }
    }

    fn layer(&mut self, indent: usize, dash: &str, word: &Word, name: Option<&str>) {
        if let Some(Entry { value: Setting::Text(formula), .. }) = word.settings.get("") {
            return self.line(indent, &format!("{dash}{}: {}", word.tag, quoted(formula)));
        }
        let said = word.settings.iter().filter(|(_, entry)| entry.default.as_ref() != Some(&entry.value));
        let named = name.map(|name| ("name".to_owned(), scalar(name)));
        let keys: Vec<_> =
            named.into_iter().chain(said.map(|(key, entry)| (key.clone(), entry.value.to_string()))).collect();
        self.keys(indent, dash, word.tag, &keys);
    }

    /// `place`: the name of the layer if none is written.
    fn item(&mut self, indent: usize, dash: &str, item: &Item, place: Option<&str>) {
        let inner = indent + dash.len() + 2;
        let other = |name: &str| (!name.is_empty() && Some(name) != place).then(|| scalar(name));
        match item {
            Item::Layer { word, name } => {
                let name = name.as_deref().filter(|name| Some(*name) != place);
                self.layer(indent, dash, word, name);
            }
            Item::Tap(tap) => self.line(indent, &format!("{dash}tap: {}", scalar(tap))),
            Item::From(tap) => self.line(indent, &format!("{dash}from: {}", scalar(tap))),
            Item::Join(tag, tap) => self.line(indent, &format!("{dash}{tag}: {}", scalar(tap))),
            Item::Again { name, .. } => self.line(indent, &format!("{dash}again: {}", scalar(name))),
            Item::Residual { .. } | Item::Concat { .. } | Item::Around { .. } => {
                self.join(indent, dash, item, (None, None));
            }
            Item::Scope { name, body } => match &body[..] {
                [Item::Stack { .. } | Item::Use { .. } | Item::Layer { .. }] => {
                    let mut inside = Self::default();
                    inside.list(0, body, false);
                    let only = inside.text.trim_end().trim_start_matches("- ");
                    let whole = format!("{dash}scope: {{name: {}, body: [{only}]}}", scalar(name));
                    match only.contains('\n') || indent + whole.len() > WIDTH {
                        false => self.line(indent, &whole),
                        true => self.scope(indent, dash, name, body),
                    }
                }
                _ => self.scope(indent, dash, name, body),
            },
            Item::Module { name, body, returns, enabled, .. } => {
                let is_plain = enabled.is_none() && returns.is_empty();
                let said = enabled.as_ref().filter(|enabled| enabled.default.as_ref() != Some(&enabled.value));
                if let [join] = &body[..]
                    && join.is_join()
                    && returns.is_empty()
                {
                    return self.join(indent, dash, join, (other(name).as_deref(), said));
                }
                let name = other(name);
                if is_plain && self.lone(indent, dash, "sequential", name.as_deref(), ("body", body, true)) {
                    return;
                }
                self.line(indent, &format!("{dash}sequential:"));
                if let Some(name) = name {
                    self.line(inner, &format!("name: {name}"));
                }
                if let Some(enabled) = said {
                    self.line(inner, &format!("{ENABLED}: {}", enabled.value));
                }
                self.line(inner, "body:");
                self.list(inner + 2, body, true);
                if !returns.is_empty() {
                    self.line(inner, &format!("returns: {}", taps(returns)));
                }
            }
            Item::Use { name, block, args, inputs, returns, enabled, .. } => {
                let name = other(name).map(|name| ("name".to_owned(), name));
                let args = Some(("args".to_owned(), flow(args))).filter(|(_, args)| !args.is_empty());
                let named = |key: &str, names: &IndexMap<String, String>| {
                    Some((key.to_owned(), taps(names))).filter(|_| !names.is_empty())
                };
                let (inputs, returns) = (named("inputs", inputs), named("returns", returns));
                let used = [("use".to_owned(), scalar(block))];
                let enabled = enabled.as_ref().filter(|enabled| enabled.default.as_ref() != Some(&enabled.value));
                let enabled = enabled.map(|enabled| (ENABLED.to_owned(), enabled.value.to_string()));
                let keys: Vec<_> =
                    name.into_iter().chain(used).chain(enabled).chain(inputs).chain(args).chain(returns).collect();
                self.keys(indent, dash, "block", &keys);
            }
            Item::Stack { name, block, item, repeat, args, first, .. } => {
                let said =
                    |key: &str, value: String| Some((key.to_owned(), value)).filter(|(_, value)| !value.is_empty());
                let keys = [
                    other(name).map(|name| ("name".to_owned(), name)),
                    Some(("item".to_owned(), scalar(item))).filter(|_| !item.is_empty()),
                    said("block", scalar(block)),
                    said("repeat", repeat.value.to_string()),
                    said("args", flow(args)),
                    said("first", flow(first)),
                ];
                self.keys(indent, dash, "stack", &keys.into_iter().flatten().collect::<Vec<_>>());
            }
        }
    }

    fn scope(&mut self, indent: usize, dash: &str, name: &str, body: &[Item]) {
        let inner = indent + dash.len() + 2;
        self.line(indent, &format!("{dash}scope:"));
        self.line(inner, &format!("name: {}", scalar(name)));
        self.line(inner, "body:");
        self.list(inner + 2, body, false);
    }

    /// Branches that are joined, with a name if they are a module, and whether that exists.
    fn join(&mut self, indent: usize, dash: &str, item: &Item, (name, enabled): (Option<&str>, Option<&Entry>)) {
        let inner = indent + dash.len() + 2;
        let head = |own: &mut Self, tag: &str| {
            own.head(indent, dash, tag, name);
            enabled.into_iter().for_each(|enabled| own.line(inner, &format!("{ENABLED}: {}", enabled.value)));
        };
        match item {
            Item::Residual { main, shortcut } => {
                let is_short = shortcut.is_empty() && enabled.is_none();
                if is_short && self.lone(indent, dash, "residual", name, ("main", main, false)) {
                    return;
                }
                head(self, "residual");
                self.line(inner, "main:");
                self.list(inner + 2, main, false);
                if !shortcut.is_empty() {
                    self.line(inner, "shortcut:");
                    self.list(inner + 2, shortcut, false);
                }
            }
            Item::Around { word, body } => {
                head(self, word.tag);
                let said = word.settings.iter().filter(|(_, entry)| entry.default.as_ref() != Some(&entry.value));
                said.for_each(|(key, entry)| self.line(inner, &format!("{key}: {}", entry.value)));
                self.line(inner, "body:");
                self.list(inner + 2, body, false);
            }
            Item::Concat { branches, axis } => {
                let short = self.short(branches).filter(|short| {
                    name.is_none() && enabled.is_none() && *axis == Axis::default() && indent + short.len() < 100
                });
                if let Some(short) = short {
                    return self.line(indent, &format!("{dash}concat: {{branches: {short}}}"));
                }
                head(self, "concat");
                match axis {
                    Axis::Channel => {}
                    Axis::Height => self.line(inner, "axis: height"),
                    Axis::Width => self.line(inner, "axis: width"),
                    Axis::Token => self.line(inner, "axis: token"),
                }
                self.line(inner, "branches:");
                for branch in branches {
                    self.branch(inner + 2, branch);
                }
            }
            Item::Layer { .. }
            | Item::Tap(_)
            | Item::From(_)
            | Item::Join(..)
            | Item::Again { .. }
            | Item::Scope { .. }
            | Item::Module { .. }
            | Item::Use { .. }
            | Item::Stack { .. } => {}
        }
    }

    fn head(&mut self, indent: usize, dash: &str, tag: &str, name: Option<&str>) {
        self.line(indent, &format!("{dash}{tag}:"));
        if let Some(name) = name {
            self.line(indent + dash.len() + 2, &format!("name: {name}"));
        }
    }

    /// A container with a single layer on one line, if that is short enough.
    fn lone(
        &mut self,
        indent: usize,
        dash: &str,
        tag: &str,
        name: Option<&str>,
        (key, body, numbered): (&str, &[Item], bool),
    ) -> bool {
        let [Item::Use { .. }] = body else { return false };
        let mut inside = Self::default();
        inside.list(0, body, numbered);
        let name = name.map(|name| format!("name: {name}, ")).unwrap_or_default();
        let only = inside.text.trim_end().trim_start_matches("- ");
        let whole = format!("{dash}{tag}: {{{name}{key}: [{only}]}}");
        let fits = !only.contains('\n') && indent + whole.len() <= WIDTH;
        if fits {
            self.line(indent, &whole);
        }
        fits
    }

    /// A list in a list: the first layer comes after two dashes.
    fn branch(&mut self, indent: usize, items: &[Item]) {
        match items {
            [] => self.line(indent, "- []"),
            [first, rest @ ..] => {
                self.item(indent, "- - ", first, None);
                self.list(indent + 2, rest, false);
            }
        }
    }

    /// Branches of at most one plain layer, on one line.
    fn short(&self, branches: &[Vec<Item>]) -> Option<String> {
        let mut parts = Vec::new();
        for branch in branches {
            let mut inside = Self::default();
            inside.list(0, branch, false);
            let lines: Vec<&str> = inside.text.lines().collect();
            match lines[..] {
                [] => parts.push("[]".to_owned()),
                [line] => parts.push(format!("[{}]", line.trim_start_matches("- "))),
                _ => return None,
            }
        }
        Some(format!("[{}]", parts.join(", ")))
    }
}

/// `{"0": t1, "1": t2}`: the results of a module.
pub fn taps(returns: &IndexMap<String, String>) -> String {
    let said: Vec<String> = returns.iter().map(|(key, tap)| format!("{}: {}", scalar(key), scalar(tap))).collect();
    format!("{{{}}}", said.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a `sequential`, a join without a name would be a module of its own.
    #[test]
    fn a_module_that_is_a_join_is_written_as_one_whether_or_not_it_may_be_missing() {
        let word = Word::with("sigmoid", "", Setting::Bool(true));
        let inside = Item::Layer { word: Word { settings: IndexMap::new(), ..word }, name: Some("gate".to_owned()) };
        let value = Setting::Text("$se".to_owned());
        for (enabled, said) in
            [(None, ""), (Some(Entry { value, default: Some(Setting::Bool(true)) }), "enabled: $se\n")]
        {
            let module = Item::Module {
                name: "se".to_owned(),
                path: "se".to_owned(),
                class: "SqueezeExcite".to_owned(),
                source: None,
                body: vec![Item::Around { word: Word::gate(), body: vec![inside.clone()] }],
                returns: IndexMap::new(),
                enabled,
                closed: true,
            };
            let text = model(&Folded { blocks: Vec::new(), body: vec![module] });
            let text = text.lines().map(|line| format!("{}\n", line.trim_start())).collect::<String>();
            assert_eq!(text, format!("body:\n- gate:\nname: se\n{said}body:\n- sigmoid: {{name: gate}}\n"));
        }
    }
}
