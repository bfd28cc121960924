//! `--set path=value` and `set:`: changes single values, addressed by path.
//!
//! A path follows the keys of the recipe (`train.batch`); elements of lists are addressed by index
//! (`model.body[3].kernel`) or, for layers, by name (`model.conv1.stride`, `model.features.0.out`,
//! `model.blocks.bottleneck.conv2.stride`), even inside unnamed branches. The key of a variant (`conv`, `sgd`) can be
//! omitted.

use std::sync::Arc;

use crate::diagnostic::{Diagnostic, suggest, suggest_or};
use crate::schema::Recipe;
use crate::shape::{Shape, ShapeId, Shapes};
use crate::span::{ConfigPath, Span};
use crate::tree::{self, Entry, Map, Node, Value};

/// The elements of the list that an override `path=[a, b]` assigns to this path; none if it changes something else.
/// Errors are reported when it is applied.
pub fn texts_of(argument: &str, path: &str) -> Vec<String> {
    let Ok(change) = Override::from_argument(argument, 0) else { return Vec::new() };
    let Value::List(nodes) = change.value.value else { return Vec::new() };
    let text = |node: Node| if let Value::Text(text) = node.value { Some(text) } else { None };
    nodes.into_iter().filter(|_| change.path == path).filter_map(text).collect()
}

/// One value to change.
#[derive(Clone, Debug)]
pub(crate) struct Override {
    path: String,
    path_span: Span,
    value: Node,
}

impl Override {
    /// The `index`-th `path=value` of the command line.
    pub(crate) fn from_argument(argument: &str, index: usize) -> Result<Self, Diagnostic> {
        let file: Arc<str> = Arc::from(Span::OVERRIDES);
        let place = |column| Span { file: file.clone(), line: index + 1, column };
        let fail = |message: &str| Diagnostic::error(place(1), ConfigPath::default(), message);
        let Some((path, value)) = argument.split_once('=') else {
            return Err(fail("expected `path=value`").with_hint("for example train.batch=64"));
        };
        if argument.contains(['\n', '\r']) {
            return Err(fail("a value must fit on one line"));
        }
        let offset = path.chars().count() + 1;
        let move_right = |span: &mut Span| *span = place(span.column + offset);
        let mut value = tree::parse(value, &file).map_err(|mut error| {
            move_right(&mut error.span);
            error
        })?;
        value.for_each_span(&mut |span| move_right(span));
        Ok(Self { path: path.trim().to_owned(), path_span: place(1), value })
    }

    /// The entries of a `set:` map.
    pub(crate) fn from_map(map: &Map) -> Vec<Self> {
        let entry = |(path, entry): (&String, &Entry)| Self {
            path: path.clone(),
            path_span: entry.key_span.clone(),
            value: entry.node.clone(),
        };
        map.iter().map(entry).collect()
    }

    /// Changes the value in `recipe`; returns its full path.
    ///
    /// # Errors
    /// The path leads nowhere, or to several places.
    pub(crate) fn apply(&self, recipe: &mut Node) -> Result<ConfigPath, Diagnostic> {
        let segments = self.segments()?;
        let walk = Walk { shapes: Recipe::shapes(), change: self };
        walk.descend(recipe, walk.shapes.root, ConfigPath::default(), &segments)
    }

    /// A warning about this override.
    pub(crate) fn warning(&self, message: &str) -> Diagnostic {
        Diagnostic::warning(self.path_span.clone(), ConfigPath::from(self.path.as_str()), message)
    }

    fn error(&self, at: &ConfigPath, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(self.path_span.clone(), at.clone(), message)
    }

    fn segments(&self) -> Result<Vec<Segment>, Diagnostic> {
        let fail = || {
            let error = self.error(&ConfigPath::default(), format!("`{}` is not a path", self.path.escape_debug()));
            error.with_hint("paths look like `train.batch`, `model.conv1.stride` or `model.body[3].kernel`")
        };
        let mut segments = Vec::new();
        for part in self.path.split('.') {
            let (name, mut indices) = part.split_at(part.find('[').unwrap_or(part.len()));
            if name.is_empty() {
                return Err(fail());
            }
            segments.push(Segment::Name(name.to_owned()));
            while let Some(rest) = indices.strip_prefix('[') {
                let (index, tail) = rest.split_once(']').ok_or_else(fail)?;
                segments.push(Segment::Index(index.parse().map_err(|_| fail())?));
                indices = tail;
            }
            if !indices.is_empty() {
                return Err(fail());
            }
        }
        Ok(segments)
    }
}

/// A part of a path.
#[derive(Clone, Debug, PartialEq)]
enum Segment {
    Name(String),
    Index(usize),
}

struct Walk<'a> {
    shapes: &'static Shapes,
    change: &'a Override,
}

type Outcome = Result<ConfigPath, Diagnostic>;

impl Walk<'_> {
    fn descend(&self, node: &mut Node, id: ShapeId, path: ConfigPath, segments: &[Segment]) -> Outcome {
        let Some((segment, rest)) = segments.split_first() else {
            *node = self.change.value.clone();
            return Ok(path);
        };
        let id = self.container(id, node);
        match (self.shapes.shape(id), segment) {
            (Shape::Struct(fields), Segment::Name(name)) => match fields.get(name) {
                Some(field) => self.enter(node, name, field.shape, &path, rest),
                None => self.search(node, id, path, name, rest),
            },
            (Shape::Dict(value), Segment::Name(name)) => {
                if rest.is_empty() || node.get(name).is_some() {
                    return self.enter(node, name, *value, &path, rest);
                }
                let known = node.as_map().into_iter().flat_map(Map::keys).map(String::as_str);
                let hint = suggest_or(name, known.collect::<Vec<_>>(), format!("`{path}` is empty"));
                Err(self.unknown(&path, name, hint))
            }
            (Shape::Union { .. }, _) => self.choice(node, id, path, segments),
            (Shape::List { item, .. }, Segment::Index(index)) => {
                let length = if let Value::List(list) = &node.value { list.len() } else { 0 };
                let Value::List(list) = &mut node.value else { return Err(self.no_element(&path, *index, length)) };
                let Some(element) = list.get_mut(*index) else { return Err(self.no_element(&path, *index, length)) };
                self.descend(element, *item, path.index(*index), rest)
            }
            (Shape::List { .. }, Segment::Name(name)) => self.search(node, id, path, name, rest),
            (_, Segment::Index(_)) => Err(self.change.error(&path, format!("`{path}` is not a list"))),
            (_, Segment::Name(name)) => {
                Err(self.change.error(&path.key(name), format!("`{path}` is a plain value, so it has no `{name}`")))
            }
        }
    }

    /// Of several alternatives, the one that `node` is, or else the first that has parts.
    fn container(&self, id: ShapeId, node: &Node) -> ShapeId {
        let Shape::AnyOf(options) = self.shapes.shape(id) else { return id };
        let has_parts = |option: &ShapeId| {
            let shape = self.shapes.shape(*option);
            matches!(
                shape,
                Shape::Struct(_) | Shape::Dict(_) | Shape::Union { .. } | Shape::List { .. } | Shape::AnyOf(_)
            )
        };
        match self.shapes.choose(id, node) {
            Some(chosen) if node.value != Value::Null => chosen,
            _ => options.iter().copied().find(has_parts).unwrap_or(id),
        }
    }

    /// Goes down a key, which is made if need be, or taken away if the new value is `~`.
    fn enter(&self, node: &mut Node, key: &str, id: ShapeId, path: &ConfigPath, rest: &[Segment]) -> Outcome {
        let span = self.change.path_span.clone();
        if node.value == Value::Null {
            *node = Node::empty_map(span.clone());
        }
        let path = path.key(key);
        let Value::Map(map) = &mut node.value else {
            return Err(self.change.error(&path, format!("expected a map here, found {}", node.describe())));
        };
        if rest.is_empty() && self.change.value.value == Value::Null {
            map.shift_remove(key);
            return Ok(path);
        }
        let absent = Entry { key_span: span.clone(), node: Node { span, value: Value::Null } };
        let entry = map.entry(key.to_owned()).or_insert(absent);
        self.descend(&mut entry.node, id, path, rest)
    }

    /// At a choice with one key, which the path can name or omit.
    fn choice(&self, node: &mut Node, id: ShapeId, path: ConfigPath, segments: &[Segment]) -> Outcome {
        let Shape::Union { variants, .. } = self.shapes.shape(id) else {
            return self.descend(node, id, path, segments);
        };
        let Some(Segment::Name(name)) = segments.first() else {
            return Err(self.change.error(&path, format!("`{path}` is not a list")));
        };
        let present = match &node.value {
            Value::Map(map) => map.keys().next().cloned(),
            Value::Text(text) => Some(text.clone()),
            _ => None,
        };
        let present = present.and_then(|tag| variants.get(&tag).map(|content| (tag, *content)));
        let (tag, content, rest) = match (&present, variants.get(name)) {
            (Some((tag, content)), _) if tag == name => (tag, *content, &segments[1..]),
            (Some((tag, content)), _) if self.shapes.key(*content, name).is_some() => (tag, *content, segments),
            // A layer does not turn into another kind by a path that happens to name one.
            (Some((tag, content)), _) if path.as_str().ends_with(']') => (tag, *content, segments),
            (_, Some(content)) => (name, *content, &segments[1..]),
            (Some((tag, content)), None) => (tag, *content, segments),
            (None, None) => return Err(self.unknown(&path, name, suggest(name, variants.keys().map(String::as_str)))),
        };
        if node.get(tag).is_none() {
            *node = Node::empty_map(self.change.path_span.clone());
        }
        self.enter(node, tag, content, &path, rest)
    }

    /// Looks for a layer called `name` in the lists below `node`.
    fn search(&self, node: &mut Node, id: ShapeId, path: ConfigPath, name: &str, rest: &[Segment]) -> Outcome {
        let mut layers = Vec::new();
        named_layers(node, path.as_str().ends_with(".sequential"), &[], &mut layers);
        // An unknown key is searched for too, so a route that begins with one would lead back to here.
        if let Shape::Struct(fields) = self.shapes.shape(id) {
            layers.retain(|(_, route)| matches!(route.first(), Some(Segment::Name(key)) if fields.contains_key(key)));
        }
        let mut routes = layers.iter().filter(|(layer, _)| layer == name).map(|(_, route)| route);
        match (routes.next(), routes.count()) {
            (Some(route), 0) => {
                let segments = [route.as_slice(), rest].concat();
                self.descend(node, id, path, &segments)
            }
            (Some(_), more) => {
                let error = self.change.error(&path.key(name), format!("{} layers are called `{name}`", more + 1));
                Err(error.with_hint("use its position: `model.body[3]`"))
            }
            (None, _) => {
                if let (".stack" | ".block", Some(block)) = (last_key(&path), node.get("block").or(node.get("use")))
                    && let Some(block) = block.as_text()
                {
                    let hint = format!("its layers belong to the block `{block}`: use model.blocks.{block}.{name}");
                    return Err(self.unknown(&path, name, hint));
                }
                let fields = if let Shape::Struct(fields) = self.shapes.shape(id) { Some(fields.keys()) } else { None };
                let names =
                    fields.into_iter().flatten().chain(layers.iter().map(|(layer, _)| layer)).map(String::as_str);
                Err(self.unknown(&path, name, suggest(name, names.collect::<Vec<_>>())))
            }
        }
    }

    fn unknown(&self, path: &ConfigPath, name: &str, hint: String) -> Diagnostic {
        let place = if path.as_str().is_empty() { "the recipe".to_owned() } else { format!("`{path}`") };
        self.change.error(&path.key(name), format!("there is no `{name}` in {place}")).with_hint(hint)
    }

    fn no_element(&self, path: &ConfigPath, index: usize, length: usize) -> Diagnostic {
        let error = self.change.error(&path.index(index), format!("`{path}` has {length} elements"));
        error.with_hint("indices count from 0")
    }
}

fn last_key(path: &ConfigPath) -> &str {
    path.as_str().rfind('.').map_or("", |dot| &path.as_str()[dot..])
}

/// Layers in the lists below `node`, with the way to each; looks inside unnamed containers. An unnamed layer
/// is addressed by its index if `indexed`, otherwise by its kind.
fn named_layers(node: &Node, indexed: bool, route: &[Segment], out: &mut Vec<(String, Vec<Segment>)>) {
    let with = |segment: Segment| [route, &[segment]].concat();
    match &node.value {
        Value::Map(map) => {
            for (key, entry) in map.iter().filter(|(_, entry)| matches!(entry.node.value, Value::List(_))) {
                named_layers(&entry.node, indexed, &with(Segment::Name(key.clone())), out);
            }
        }
        Value::List(list) => {
            for (index, element) in list.iter().enumerate() {
                let route = with(Segment::Index(index));
                let Some((tag, content)) = element.as_map().and_then(|map| map.first()) else {
                    let bare = element.as_text().map(|tag| if indexed { index.to_string() } else { tag.to_owned() });
                    match bare {
                        Some(name) => out.push((name, route)),
                        None => named_layers(element, false, &route, out),
                    }
                    continue;
                };
                match content.node.get("name").and_then(Node::as_text) {
                    Some(name) => out.push((name.to_owned(), route)),
                    None if indexed => out.push((index.to_string(), route)),
                    None => {
                        let inside = [route.as_slice(), &[Segment::Name(tag.clone())]].concat();
                        named_layers(&content.node, tag == "sequential", &inside, out);
                        out.push((tag.clone(), route));
                    }
                }
            }
        }
        _ => {}
    }
}
