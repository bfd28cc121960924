//! YAML as a tree in which every node has its source position.
//!
//! Parsing refuses, before any work that grows with what an attacker wrote: nesting deeper than [`MAX_DEPTH`] and more
//! than [`MAX_NODES`] values, both after aliases have been replaced, and keys and paths longer than [`MAX_KEY`] and
//! [`MAX_PATH`].

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexMap;
use indexmap::map::Entry as MapEntry;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span as Range};

use crate::diagnostic::Diagnostic;
use crate::span::{ConfigPath, Span};

/// Deepest nesting of maps and lists.
pub(crate) const MAX_DEPTH: usize = 64;
/// Most values in one file, aliases replaced.
pub(crate) const MAX_NODES: usize = 65_536;
/// Longest key, in characters.
pub(crate) const MAX_KEY: usize = 200;
/// Longest path to a value: the characters of all its keys, aliases replaced.
pub(crate) const MAX_PATH: usize = 1000;
/// So many bytes of text count as one more value.
const TEXT_PER_VALUE: usize = 64;

/// A value and its source position.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) value: Value,
}

/// A YAML value, scalars read by YAML 1.2's core schema.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Map),
}

/// A map in the order in which it was written.
pub(crate) type Map = IndexMap<String, Entry>;

/// The value of a key, and the source position of the key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key_span: Span,
    pub(crate) node: Node,
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Node {
    pub(crate) fn empty_map(span: Span) -> Self {
        Self { span, value: Value::Map(Map::new()) }
    }

    pub(crate) fn as_map(&self) -> Option<&Map> {
        match &self.value {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_map_mut(&mut self) -> Option<&mut Map> {
        match &mut self.value {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.as_map()?.get(key).map(|entry| &entry.node)
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        self.as_map_mut()?.get_mut(key).map(|entry| &mut entry.node)
    }

    /// Number of values in it, itself included.
    pub(crate) fn values(&self) -> usize {
        1 + match &self.value {
            Value::List(list) => list.iter().map(Node::values).sum(),
            Value::Map(map) => map.values().map(|entry| entry.node.values()).sum(),
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) => 0,
        }
    }

    /// What this is, for messages: "text `abc`", "a list".
    pub(crate) fn describe(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(value) => format!("`{value}`"),
            Value::Int(value) => format!("{value}"),
            Value::Float(value) => format!("{value:?}"),
            Value::Text(text) if text.chars().count() <= 40 => format!("text `{}`", text.escape_debug()),
            Value::Text(_) => "a long text".to_owned(),
            Value::List(list) => format!("a list of {}", list.len()),
            Value::Map(_) => "a map".to_owned(),
        }
    }

    /// Changes the place of this node, its keys, and all below it.
    pub(crate) fn for_each_span(&mut self, change: &mut dyn FnMut(&mut Span)) {
        change(&mut self.span);
        match &mut self.value {
            Value::List(list) => list.iter_mut().for_each(|node| node.for_each_span(change)),
            Value::Map(map) => {
                for entry in map.values_mut() {
                    change(&mut entry.key_span);
                    entry.node.for_each_span(change);
                }
            }
            _ => {}
        }
    }

    /// The same without places, for typed reading.
    pub(crate) fn to_yaml(&self) -> serde_yaml::Value {
        use serde_yaml::Value as Yaml;
        match &self.value {
            Value::Null => Yaml::Null,
            Value::Bool(value) => Yaml::Bool(*value),
            Value::Int(value) => match (u64::try_from(*value), i64::try_from(*value)) {
                (Ok(value), _) => Yaml::Number(value.into()),
                (_, Ok(value)) => Yaml::Number(value.into()),
                _ => Yaml::Number((*value as f64).into()),
            },
            Value::Float(value) => Yaml::Number((*value).into()),
            Value::Text(text) => Yaml::String(text.clone()),
            Value::List(list) => Yaml::Sequence(list.iter().map(Node::to_yaml).collect()),
            Value::Map(map) => Yaml::Mapping(
                map.iter().map(|(key, entry)| (Yaml::String(key.clone()), entry.node.to_yaml())).collect(),
            ),
        }
    }

    /// A value without source positions; tags, which validated trees do not have, are omitted.
    pub(crate) fn from_yaml(value: serde_yaml::Value) -> Self {
        use serde_yaml::Value as Yaml;
        let entry = |(key, value): (Yaml, Yaml)| {
            let key = key.as_str().map(str::to_owned)?;
            Some((key, Entry { key_span: Span::default(), node: Self::from_yaml(value) }))
        };
        let value = match value {
            Yaml::Null => Value::Null,
            Yaml::Bool(value) => Value::Bool(value),
            Yaml::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(value), ..) => Value::Int(value.into()),
                (_, Some(value), _) => Value::Int(value.into()),
                (.., Some(value)) => Value::Float(value),
                _ => Value::Null,
            },
            Yaml::String(text) => Value::Text(text),
            Yaml::Sequence(list) => Value::List(list.into_iter().map(Self::from_yaml).collect()),
            Yaml::Mapping(map) => Value::Map(map.into_iter().filter_map(entry).collect()),
            Yaml::Tagged(tagged) => return Self::from_yaml(tagged.value),
        };
        Self { span: Span::default(), value }
    }

    /// A value that stands at `span`.
    pub(crate) fn from_json(value: &serde_json::Value, span: &Span) -> Self {
        let mut node = Self::from_yaml(serde_yaml::to_value(value).unwrap_or_default());
        node.for_each_span(&mut |place| *place = span.clone());
        node
    }

    /// Places of this node and all below it, `path` being its own.
    pub(crate) fn spans(&self, path: &ConfigPath, out: &mut Vec<(ConfigPath, Span)>) {
        match &self.value {
            Value::List(list) => {
                for (index, node) in list.iter().enumerate() {
                    node.spans(&path.index(index), out);
                }
            }
            Value::Map(map) => {
                for (key, entry) in map {
                    entry.node.spans(&path.key(key), out);
                }
            }
            _ => {}
        }
        out.push((path.clone(), self.span.clone()));
    }
}

/// Reads one YAML document.
///
/// # Errors
/// The first thing that is not YAML, or that recipes do without (tags, several documents, keys that are no text, a key
/// twice).
pub(crate) fn parse(text: &str, file: &Arc<str>) -> Result<Node, Diagnostic> {
    let mut builder =
        Builder { file: file.clone(), open: Vec::new(), anchors: HashMap::new(), count: 0, anchored: 0, root: None };
    for event in Parser::new_from_str(text) {
        let (event, range) = event.map_err(|error| {
            let info = error.info();
            builder.error(builder.place(*error.marker()), format!("invalid YAML: {info}"))
        })?;
        builder.event(event, range)?;
    }
    let start = Span { file: file.clone(), line: 1, column: 1 };
    Ok(builder.root.unwrap_or(Node { span: start, value: Value::Null }))
}

/// How large a finished node is.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    /// Values in it, itself included.
    values: usize,
    /// Levels of lists and maps.
    levels: usize,
    /// Characters of the keys on its longest path.
    path: usize,
}

/// A list or map that is not complete yet.
struct Open {
    anchor: usize,
    span: Span,
    count_before: usize,
    /// Characters of the keys on the path to it.
    prefix: usize,
    /// The most levels, and the longest path, of a node in it.
    inside: Size,
    content: Content,
}

impl Open {
    /// Characters of the key of the next value.
    fn key_length(&self) -> usize {
        match &self.content {
            Content::Map { key: Some((key, _)), .. } => key.chars().count(),
            Content::Map { key: None, .. } | Content::List(_) => 0,
        }
    }
}

enum Content {
    List(Vec<Node>),
    Map { map: Map, key: Option<(String, Span)> },
}

struct Builder {
    file: Arc<str>,
    open: Vec<Open>,
    /// Finished nodes with an anchor.
    anchors: HashMap<usize, (Node, Size)>,
    count: usize,
    /// Values in `anchors`.
    anchored: usize,
    root: Option<Node>,
}

impl Builder {
    fn place(&self, marker: Marker) -> Span {
        Span { file: self.file.clone(), line: marker.line().max(1), column: marker.col() + 1 }
    }

    fn error(&self, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(span, ConfigPath::default(), message)
    }

    fn event(&mut self, event: Event<'_>, range: Range) -> Result<(), Diagnostic> {
        let span = self.place(range.start);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(&span, tag.is_some())?;
                let weight = 1 + text.len() / TEXT_PER_VALUE;
                self.grow(&span, weight)?;
                let plain = style == ScalarStyle::Plain;
                let value = if plain { scalar(&text) } else { Value::Text(text.into_owned()) };
                self.finish(Node { span, value }, anchor, Size { values: weight, ..Size::default() })
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_tag(&span, tag.is_some())?;
                self.begin(span, anchor, Content::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_tag(&span, tag.is_some())?;
                self.begin(span, anchor, Content::Map { map: Map::new(), key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(()) };
                let value = match open.content {
                    Content::List(list) => Value::List(list),
                    Content::Map { map, .. } => Value::Map(map),
                };
                let size =
                    Size { values: self.count - open.count_before, levels: open.inside.levels + 1, ..open.inside };
                self.finish(Node { span: open.span, value }, open.anchor, size)
            }
            Event::Alias(anchor) => {
                let Some((node, size)) = self.anchors.get(&anchor) else {
                    return Err(self.error(span, "this alias refers to a value that contains it"));
                };
                let (node, size) = (node.clone(), *size);
                self.grow(&span, size.values)?;
                self.refuse_depth(&span, size)?;
                self.finish(node, 0, size)
            }
            Event::DocumentStart(_) if self.root.is_some() => {
                Err(self.error(span, "a second YAML document begins here, but a recipe is a single document"))
            }
            _ => Ok(()),
        }
    }

    fn refuse_tag(&self, span: &Span, tagged: bool) -> Result<(), Diagnostic> {
        if !tagged {
            return Ok(());
        }
        let error = self.error(span.clone(), "YAML tags (`!name`) are not supported");
        Err(error.with_hint("write a variant as a map with one key: `conv: {...}`"))
    }

    fn grow(&mut self, span: &Span, by: usize) -> Result<(), Diagnostic> {
        self.count += by;
        if self.count <= MAX_NODES {
            return Ok(());
        }
        Err(self.error(span.clone(), format!("more than {MAX_NODES} values, with aliases (`*name`) expanded")))
    }

    fn begin(&mut self, span: Span, anchor: usize, content: Content) -> Result<(), Diagnostic> {
        self.grow(&span, 1)?;
        self.refuse_depth(&span, Size { levels: 1, ..Size::default() })?;
        let (count_before, prefix) = (self.count - 1, self.prefix());
        self.open.push(Open { anchor, span, count_before, prefix, inside: Size::default(), content });
        Ok(())
    }

    /// Characters of the keys on the path to the next value.
    fn prefix(&self) -> usize {
        self.open.last().map_or(0, |open| open.prefix + open.key_length())
    }

    /// Refuses a value of this size at the present place if it is too deep, or paths in it would be too long.
    fn refuse_depth(&self, span: &Span, size: Size) -> Result<(), Diagnostic> {
        if self.open.len() + size.levels > MAX_DEPTH {
            return Err(self.error(span.clone(), format!("nested deeper than {MAX_DEPTH} levels")));
        }
        if self.prefix() + size.path > MAX_PATH {
            return Err(self.error(span.clone(), format!("the keys on the path have more than {MAX_PATH} characters")));
        }
        Ok(())
    }

    /// Keeps a complete value for aliases.
    fn keep(&mut self, anchor: usize, node: &Node, size: Size) -> Result<(), Diagnostic> {
        self.anchored += size.values;
        if self.anchored > MAX_NODES {
            let message = format!("anchors (`&name`) stand for more than {MAX_NODES} values");
            return Err(self.error(node.span.clone(), message));
        }
        self.anchors.insert(anchor, (node.clone(), size));
        Ok(())
    }

    /// Adds a complete value to the innermost open list or map, as a key or value, or as the root.
    fn finish(&mut self, node: Node, anchor: usize, size: Size) -> Result<(), Diagnostic> {
        if anchor != 0 {
            self.keep(anchor, &node, size)?;
        }
        if let Some(open) = self.open.last_mut() {
            open.inside.levels = open.inside.levels.max(size.levels);
            open.inside.path = open.inside.path.max(open.key_length() + size.path);
        }
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Content::List(list)) => list.push(node),
            Some(Content::Map { map, key }) => match key.take() {
                None => *key = Some(key_of(node)?),
                Some((name, key_span)) => match map.entry(name) {
                    MapEntry::Vacant(slot) => {
                        slot.insert(Entry { key_span, node });
                    }
                    MapEntry::Occupied(slot) => {
                        let message = format!("duplicate key `{}`", slot.key());
                        let first = format!("the first is at {}", slot.get().key_span);
                        return Err(self.error(key_span, message).with_hint(first));
                    }
                },
            },
        }
        Ok(())
    }
}

fn key_of(node: Node) -> Result<(String, Span), Diagnostic> {
    let text = match node.value {
        Value::Text(text) => text,
        Value::Int(value) => value.to_string(),
        Value::Bool(value) => value.to_string(),
        _ => {
            let message = format!("a key must be text, found {}", node.describe());
            return Err(Diagnostic::error(node.span, ConfigPath::default(), message));
        }
    };
    if text.chars().nth(MAX_KEY).is_some() {
        let message = format!("a key of more than {MAX_KEY} characters");
        return Err(Diagnostic::error(node.span, ConfigPath::default(), message));
    }
    Ok((text, node.span))
}

/// A plain scalar by YAML 1.2's core schema (section 10.3.2); infinities and NaN stay text, as no recipe has a use for
/// them.
fn scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let radix =
        text.strip_prefix("0x").map(|digits| (digits, 16)).or(text.strip_prefix("0o").map(|digits| (digits, 8)));
    if let Some((digits, radix)) = radix
        && digits.chars().all(|c| c.is_digit(radix))
        && let Ok(value) = i128::from_str_radix(digits, radix)
    {
        return Value::Int(value);
    }
    let numeric = text.chars().all(|c| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E'));
    if !numeric || !text.contains(|c: char| c.is_ascii_digit()) {
        return Value::Text(text.to_owned());
    }
    if let Ok(value) = text.parse::<i128>() {
        return Value::Int(value);
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Value::Float(value),
        _ => Value::Text(text.to_owned()),
    }
}
