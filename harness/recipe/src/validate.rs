//! Validates a tree against the shape of a recipe: reports all mistakes at once, and expands shorthand (`relu` to
//! `relu: {}`, `1/32768` to the number), so that serde can read the result.

use crate::diagnostic::{Diagnostic, suggest};
use crate::names::meant;
use crate::shape::{NumberShape, Shape, ShapeId, Shapes, TextShape, parse_number};
use crate::span::ConfigPath;
use crate::tree::{Node, Value};
use crate::values::{Expression, Period};

/// Whether everything must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completeness {
    /// A whole recipe.
    Whole,
    /// A fragment that is merged over another (a profile).
    Partial,
}

/// Checks `node`, a whole document or a fragment at `path`, against the shapes of its kind.
pub(crate) fn validate(
    node: &mut Node,
    shapes: &Shapes,
    path: &ConfigPath,
    completeness: Completeness,
) -> Vec<Diagnostic> {
    let mut walker = Walker { shapes, completeness, found: Vec::new() };
    walker.node(node, shapes.root, path);
    walker.found
}

struct Walker<'s> {
    shapes: &'s Shapes,
    completeness: Completeness,
    found: Vec<Diagnostic>,
}

impl Walker<'_> {
    fn report(&mut self, node: &Node, path: &ConfigPath, message: impl Into<String>) -> &mut Diagnostic {
        self.found.push(Diagnostic::error(node.span.clone(), path.clone(), message));
        let last = self.found.len() - 1;
        &mut self.found[last]
    }

    fn mismatch(&mut self, node: &Node, id: ShapeId, path: &ConfigPath) {
        let message = format!("expected {}, found {}", self.shapes.describe(id), node.describe());
        let wants = |wanted: fn(&Shape) -> bool| self.shapes.options(id).any(wanted);
        let hint = match &node.value {
            Value::Int(_) | Value::Float(_) | Value::Bool(_)
                if wants(|shape| matches!(shape, Shape::Text(TextShape::Free))) =>
            {
                Some("put it in quotes")
            }
            Value::Int(_) | Value::Float(_) if wants(|shape| matches!(shape, Shape::Text(TextShape::Period))) => {
                Some("add a unit: `epochs` or `steps`")
            }
            Value::Text(text) if wants(|shape| matches!(shape, Shape::Bool)) => match text.as_str() {
                "yes" | "on" => Some("write `true`"),
                "no" | "off" => Some("write `false`"),
                _ => None,
            },
            _ => None,
        };
        let hint = hint.map(str::to_owned);
        self.report(node, path, message).hint = hint;
    }

    fn node(&mut self, node: &mut Node, id: ShapeId, path: &ConfigPath) {
        let Some(chosen) = self.shapes.choose(id, node) else { return self.mismatch(node, id, path) };
        match self.shapes.shape(chosen) {
            Shape::Struct(_) => self.fields(node, chosen, path),
            Shape::Dict(value) => match &mut node.value {
                Value::Map(map) => {
                    for (key, entry) in map {
                        self.node(&mut entry.node, *value, &path.key(key));
                    }
                }
                _ => self.mismatch(node, chosen, path),
            },
            Shape::List { item, min, max } => self.list(node, chosen, (*item, *min, *max), path),
            Shape::Union { .. } => self.union(node, chosen, path),
            Shape::Number(number) => self.number(node, chosen, number, path),
            Shape::Text(text) => self.text(node, chosen, *text, path),
            Shape::Bool if matches!(node.value, Value::Bool(_)) => {}
            Shape::Null if matches!(node.value, Value::Null) => {}
            Shape::Any => {}
            Shape::Bool | Shape::Null | Shape::AnyOf(_) => self.mismatch(node, chosen, path),
        }
    }

    fn fields(&mut self, node: &mut Node, id: ShapeId, path: &ConfigPath) {
        let Shape::Struct(fields) = self.shapes.shape(id) else { return };
        let span = node.span.clone();
        let Value::Map(map) = &mut node.value else { return self.mismatch(node, id, path) };
        for (key, entry) in map.iter_mut() {
            match fields.get(key) {
                Some(field) => self.node(&mut entry.node, field.shape, &path.key(key)),
                None => {
                    let of_file = if path.as_str().is_empty() { self.shapes.file_keys } else { &[] };
                    let hint = suggest(key, fields.keys().map(String::as_str).chain(of_file.iter().copied()));
                    let error =
                        Diagnostic::error(entry.key_span.clone(), path.key(key), format!("unknown key `{key}`"));
                    self.found.push(error.with_hint(hint));
                }
            }
        }
        if self.completeness == Completeness::Partial {
            return;
        }
        for (name, field) in fields {
            // A key that was probably misspelt has been reported as that.
            let misspelt = || map.keys().any(|key| !fields.contains_key(key) && meant(key, [name.as_str()]).is_some());
            if field.required && !map.contains_key(name) && !misspelt() {
                let error = Diagnostic::error(span.clone(), path.key(name), format!("`{name}` is missing"));
                self.found.push(error.with_hint(format!("{name}: {}", field.summary)));
            }
        }
    }

    fn list(&mut self, node: &mut Node, id: ShapeId, (item, min, max): (ShapeId, usize, usize), path: &ConfigPath) {
        let Value::List(list) = &mut node.value else { return self.mismatch(node, id, path) };
        for (index, element) in list.iter_mut().enumerate() {
            self.node(element, item, &path.index(index));
        }
        let length = list.len();
        if !(min..=max).contains(&length) {
            let wanted = match (min, max) {
                _ if min == max => format!("{min}"),
                (_, usize::MAX) => format!("at least {min}"),
                _ => format!("{min} to {max}"),
            };
            self.report(node, path, format!("expected a list of {wanted}, found {length}"));
        }
    }

    fn union(&mut self, node: &mut Node, id: ShapeId, path: &ConfigPath) {
        let Shape::Union { variants, words } = self.shapes.shape(id) else { return };
        let names = || variants.keys().chain(words).map(String::as_str);
        if let Value::Text(text) = &node.value {
            match variants.get(text) {
                Some(content) if self.shapes.may_be_empty(*content) => {
                    let tag = text.clone();
                    let entry =
                        crate::tree::Entry { key_span: node.span.clone(), node: Node::empty_map(node.span.clone()) };
                    node.value = Value::Map([(tag, entry)].into_iter().collect());
                }
                Some(_) => {
                    let message = format!("`{text}` needs values: `{text}: {{...}}`");
                    self.report(node, path, message);
                    return;
                }
                None if words.contains(text) => return,
                None => {
                    let (message, hint) = (format!("unknown value `{}`", text.escape_debug()), suggest(text, names()));
                    self.report(node, path, message).hint = Some(hint);
                    return;
                }
            }
        }
        let Value::Map(map) = &mut node.value else { return self.mismatch(node, id, path) };
        let mut entries = map.iter_mut();
        let (Some((tag, entry)), None) = (entries.next(), entries.next()) else {
            let keys: Vec<_> = map.keys().map(|key| format!("`{key}`")).collect();
            let found = if keys.is_empty() { "none".to_owned() } else { keys.join(", ") };
            let message = format!("expected exactly one key, found {found}");
            let several = map.len() > 1 && map.keys().all(|key| variants.contains_key(key));
            let hint = if several { "keep one of them" } else { "are the lines below it indented?" };
            self.report(node, path, message).hint = Some(hint.to_owned());
            return;
        };
        match variants.get(tag) {
            Some(content) => {
                if matches!(entry.node.value, Value::Null) && self.shapes.may_be_empty(*content) {
                    entry.node = Node::empty_map(entry.node.span.clone());
                }
                self.node(&mut entry.node, *content, &path.key(tag));
            }
            None => {
                let error = Diagnostic::error(entry.key_span.clone(), path.key(tag), format!("unknown key `{tag}`"));
                self.found.push(error.with_hint(suggest(tag, names())));
            }
        }
    }

    fn number(&mut self, node: &mut Node, id: ShapeId, shape: &NumberShape, path: &ConfigPath) {
        if let Value::Text(text) = &node.value
            && let Some(value) = parse_number(text)
        {
            node.value = Value::Float(value);
        }
        let value = match node.value {
            Value::Int(value) => value as f64,
            Value::Float(value) if shape.integer && value.fract() == 0.0 && value.abs() < 1e15 => {
                node.value = Value::Int(value as i128);
                value
            }
            Value::Float(value) if !shape.integer => value,
            _ => return self.mismatch(node, id, path),
        };
        let bound = match shape {
            NumberShape { min: Some(min), .. } if value < *min => format!("at least {min}"),
            NumberShape { max: Some(max), .. } if value > *max => format!("at most {max}"),
            NumberShape { above: Some(above), .. } if value <= *above => format!("more than {above}"),
            NumberShape { below: Some(below), .. } if value >= *below => format!("less than {below}"),
            _ => return,
        };
        let message = format!("must be {bound}, found {}", node.describe());
        self.report(node, path, message);
    }

    fn text(&mut self, node: &Node, id: ShapeId, shape: TextShape, path: &ConfigPath) {
        let Value::Text(text) = &node.value else { return self.mismatch(node, id, path) };
        let problem = match shape {
            TextShape::Free => None,
            TextShape::Expression => Expression::try_from(text.as_str()).err().map(|error| error.to_string()),
            TextShape::Period => Period::try_from(text.as_str()).err().map(|error| error.to_string()),
        };
        if let Some(problem) = problem {
            self.report(node, path, problem);
        }
    }
}
