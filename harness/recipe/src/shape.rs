//! The JSON Schema of a kind of file, compiled for the loader.
//!
//! [`crate::schema`] is the source of that of recipes; schemars turns it into JSON Schema, which is written for editors
//! ([`crate::editor_schema`]) and compiled here for merging, overrides and validation.

use std::collections::HashMap;

use indexmap::IndexMap;
use serde_json::{Map as JsonMap, Value as Json};

use crate::tree::{Entry, Map, Node, Value};

/// The allowed values at a position of a recipe.
#[derive(Debug)]
pub(crate) enum Shape {
    /// A map with known keys.
    Struct(IndexMap<String, Field>),
    /// A map from names of the author's choice.
    Dict(ShapeId),
    /// A list with an inclusive range of lengths.
    List { item: ShapeId, min: usize, max: usize },
    /// A map with exactly one of these keys, or one of these names.
    Union { variants: IndexMap<String, ShapeId>, words: Vec<String> },
    /// A number.
    Number(NumberShape),
    /// `true` or `false`.
    Bool,
    /// Text.
    Text(TextShape),
    /// Nothing.
    Null,
    /// Any of several.
    AnyOf(Vec<ShapeId>),
    /// Anything at all.
    Any,
}

/// Additional keys of a file; the loader removes them before the file is checked against a shape.
pub(crate) const FILE_KEYS: [&str; 3] = ["extends", "set", "profiles"];

/// A key of a [`Shape::Struct`].
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) shape: ShapeId,
    pub(crate) required: bool,
    /// First sentence of the documentation.
    pub(crate) summary: String,
    /// Its default.
    pub(crate) default: Option<Json>,
}

/// Range of a number.
#[derive(Debug, Default)]
pub(crate) struct NumberShape {
    pub(crate) integer: bool,
    pub(crate) min: Option<f64>,
    pub(crate) max: Option<f64>,
    pub(crate) above: Option<f64>,
    pub(crate) below: Option<f64>,
}

impl NumberShape {
    /// Whether a number lies in the range.
    pub(crate) fn contains(&self, value: f64) -> bool {
        self.min.is_none_or(|min| value >= min)
            && self.max.is_none_or(|max| value <= max)
            && self.above.is_none_or(|above| value > above)
            && self.below.is_none_or(|below| value < below)
    }
}

/// Whole numbers stay below 2^63, so that they fit the types that read them.
const WHOLE_LIMIT: f64 = 9_223_372_036_854_775_808.0;

/// What a text must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextShape {
    Free,
    /// An expression of block arguments.
    Expression,
    /// `5 epochs`.
    Period,
}

/// A shape of the [`Shapes`] it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShapeId(usize);

/// All shapes of a kind of file.
#[derive(Debug)]
pub(crate) struct Shapes {
    all: Vec<Shape>,
    /// The whole document; of a recipe, without [`FILE_KEYS`].
    pub(crate) root: ShapeId,
    /// A layer of a recipe.
    layer: Option<ShapeId>,
    /// Additional keys of a file.
    pub(crate) file_keys: &'static [&'static str],
}

impl Shapes {
    /// The shapes of a schema.
    pub(crate) fn of(schema: &Json, file_keys: &'static [&'static str]) -> Self {
        let mut compiler = Compiler { all: Vec::new(), known: HashMap::new(), root: schema };
        let root = compiler.compile(schema);
        let layer = compiler.known.get("#/$defs/Layer").copied();
        Shapes { all: compiler.all, root, layer, file_keys }
    }

    pub(crate) fn shape(&self, id: ShapeId) -> &Shape {
        &self.all[id.0]
    }

    /// Whether this is the shape of a layer.
    pub(crate) fn is_layer(&self, id: ShapeId) -> bool {
        self.layer == Some(id)
    }

    /// The shape of the value of a layer's key.
    pub(crate) fn layer(&self, tag: &str) -> Option<ShapeId> {
        self.key(self.layer?, tag)
    }

    /// Writes out what the layers below `node`, of shape `id`, leave to defaults.
    pub(crate) fn write_out_defaults(&self, node: &mut Node, id: ShapeId) {
        let Some(chosen) = self.choose(id, node) else { return };
        let span = node.span.clone();
        match (self.shape(chosen), &mut node.value) {
            (Shape::Struct(fields), Value::Map(map)) => {
                for (name, default) in fields.iter().filter_map(|(name, field)| Some((name, field.default.as_ref()?))) {
                    let absent = || Entry { key_span: span.clone(), node: Node::from_json(default, &span) };
                    map.entry(name.clone()).or_insert_with(absent);
                }
                self.write_out_entries(map, chosen);
            }
            (Shape::Union { .. }, Value::Map(map)) => {
                // A switch that is on accepts everything.
                for entry in map.values_mut().filter(|_| self.is_layer(chosen)) {
                    if let Value::Map(keys) = &mut entry.node.value {
                        keys.retain(|key, entry| key != "enabled" || entry.node.value != Value::Bool(true));
                    }
                }
                self.write_out_entries(map, chosen);
            }
            (Shape::Dict(_), Value::Map(map)) => self.write_out_entries(map, chosen),
            (Shape::List { item, .. }, Value::List(list)) => {
                list.iter_mut().for_each(|element| self.write_out_defaults(element, *item));
            }
            _ => {}
        }
    }

    fn write_out_entries(&self, map: &mut Map, id: ShapeId) {
        for (key, entry) in map {
            if let Some(shape) = self.key(id, key) {
                self.write_out_defaults(&mut entry.node, shape);
            }
        }
    }

    /// The shape of the value of `key` in a map of shape `id`.
    pub(crate) fn key(&self, id: ShapeId, key: &str) -> Option<ShapeId> {
        match self.shape(id) {
            Shape::Struct(fields) => fields.get(key).map(|field| field.shape),
            Shape::Dict(value) => Some(*value),
            Shape::Union { variants, .. } => variants.get(key).copied(),
            Shape::AnyOf(options) => options.iter().find_map(|option| self.key(*option, key)),
            _ => None,
        }
    }

    /// The alternative of `id` that was probably intended by `node`; `id` itself if there is no choice.
    pub(crate) fn choose(&self, id: ShapeId, node: &Node) -> Option<ShapeId> {
        let Shape::AnyOf(options) = self.shape(id) else { return Some(id) };
        let chosen = options.iter().filter_map(|option| self.choose(*option, node));
        let accepting: Vec<ShapeId> = chosen.filter(|option| self.accepts(*option, node)).collect();
        let knowing = accepting.iter().find(|option| self.knows_a_key(**option, node));
        knowing.or(accepting.first()).copied()
    }

    /// Whether this is a struct with one of the keys of `node`.
    fn knows_a_key(&self, id: ShapeId, node: &Node) -> bool {
        match (self.shape(id), &node.value) {
            (Shape::Struct(fields), Value::Map(map)) => map.keys().any(|key| fields.contains_key(key)),
            _ => false,
        }
    }

    /// Whether a value of this kind is allowed, ignoring its content.
    fn accepts(&self, id: ShapeId, node: &Node) -> bool {
        match (self.shape(id), &node.value) {
            (Shape::Struct(_) | Shape::Dict(_), Value::Map(_)) => true,
            (Shape::List { min, max, .. }, Value::List(list)) => (*min..=*max).contains(&list.len()),
            (Shape::Union { variants, .. }, Value::Map(_)) => !variants.is_empty(),
            (Shape::Union { .. }, Value::Text(_)) => true,
            (Shape::Number(number), Value::Float(value)) => !number.integer || value.fract() == 0.0,
            (Shape::Number(_), Value::Int(_)) => true,
            (Shape::Number(_), Value::Text(text)) => parse_number(text).is_some(),
            (Shape::Bool, Value::Bool(_)) => true,
            (Shape::Text(TextShape::Expression), Value::Text(text)) => text.contains('$'),
            (Shape::Text(_), Value::Text(_)) => true,
            (Shape::Null, Value::Null) => true,
            (Shape::AnyOf(options), _) => options.iter().any(|option| self.accepts(*option, node)),
            (Shape::Any, _) => true,
            _ => false,
        }
    }

    /// Whether no value is allowed.
    pub(crate) fn nullable(&self, id: ShapeId) -> bool {
        match self.shape(id) {
            Shape::Null | Shape::Any => true,
            Shape::AnyOf(options) => options.iter().any(|option| self.nullable(*option)),
            _ => false,
        }
    }

    /// Whether a variant of this shape may be written without its content (`relu` for `relu: {}`).
    pub(crate) fn may_be_empty(&self, id: ShapeId) -> bool {
        matches!(self.shape(id), Shape::Struct(fields) if fields.values().all(|field| !field.required))
    }

    /// The alternatives of a shape, or the shape itself.
    pub(crate) fn options(&self, id: ShapeId) -> Box<dyn Iterator<Item = &Shape> + '_> {
        match self.shape(id) {
            Shape::AnyOf(options) => Box::new(options.iter().flat_map(|option| self.options(*option))),
            shape => Box::new(std::iter::once(shape)),
        }
    }

    /// A description of allowed values.
    pub(crate) fn describe(&self, id: ShapeId) -> String {
        let mut parts: Vec<String> = Vec::new();
        let optional = matches!(self.shape(id), Shape::AnyOf(_));
        for shape in self.options(id).filter(|shape| !optional || !matches!(shape, Shape::Null)) {
            let part = match shape {
                Shape::Struct(_) | Shape::Dict(_) => "a map".to_owned(),
                Shape::List { min, max, .. } if min == max => format!("a list of {min}"),
                Shape::List { .. } => "a list".to_owned(),
                Shape::Union { variants, words } => {
                    let names: Vec<_> = variants.keys().chain(words).map(|name| format!("`{name}`")).collect();
                    format!("one of {}", names.join(", "))
                }
                Shape::Number(NumberShape { integer: true, .. }) => "a whole number".to_owned(),
                Shape::Number(_) => "a number".to_owned(),
                Shape::Bool => "`true` or `false`".to_owned(),
                Shape::Text(TextShape::Free) => "text".to_owned(),
                Shape::Text(TextShape::Expression) => "an expression like `$width*4`".to_owned(),
                Shape::Text(TextShape::Period) => "a duration like `5 epochs` or `62 steps`".to_owned(),
                Shape::Null => "nothing".to_owned(),
                Shape::Any | Shape::AnyOf(_) => "anything".to_owned(),
            };
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        parts.join(", or ")
    }
}

/// A number written as a fraction (`1/32768`) or in percent (`76.9%`).
pub(crate) fn parse_number(text: &str) -> Option<f64> {
    let plain = |text: &str| {
        let text = text.trim();
        let digits = text.trim_start_matches(['-', '+']);
        let value = text.parse::<f64>().ok()?;
        (digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') && value.is_finite()).then_some(value)
    };
    let value = match (text.strip_suffix('%'), text.split_once('/')) {
        // The nearest number to the decimal that is meant: 76.95 / 100 is another one.
        (Some(percent), None) if !percent.contains(['e', 'E']) => plain(&format!("{}e-2", percent.trim()))?,
        (Some(percent), None) => plain(percent)? / 100.0,
        (None, Some((over, under))) => plain(over)? / plain(under)?,
        _ => return None,
    };
    value.is_finite().then_some(value)
}

struct Compiler<'a> {
    all: Vec<Shape>,
    /// Shapes of `$defs`, by reference.
    known: HashMap<&'a str, ShapeId>,
    root: &'a Json,
}

impl<'a> Compiler<'a> {
    fn add(&mut self, shape: Shape) -> ShapeId {
        self.all.push(shape);
        ShapeId(self.all.len() - 1)
    }

    fn compile(&mut self, schema: &'a Json) -> ShapeId {
        let Some(schema) = schema.as_object() else { return self.add(Shape::Any) };
        if let Some(reference) = schema.get("$ref").and_then(Json::as_str) {
            return self.reference(reference);
        }
        let shape = self.shape(schema);
        self.add(shape)
    }

    /// A definition is given its place before it is compiled, as it may contain itself.
    fn reference(&mut self, reference: &'a str) -> ShapeId {
        if let Some(id) = self.known.get(reference) {
            return *id;
        }
        let id = self.add(Shape::Any);
        self.known.insert(reference, id);
        let pointer = reference.trim_start_matches('#');
        if let Some(schema) = self.root.pointer(pointer).and_then(Json::as_object) {
            self.all[id.0] = self.shape(schema);
        }
        id
    }

    fn shape(&mut self, schema: &'a JsonMap<String, Json>) -> Shape {
        if let Some(options) = schema.get("anyOf").and_then(Json::as_array) {
            return Shape::AnyOf(options.iter().map(|option| self.compile(option)).collect());
        }
        if let Some(options) = schema.get("oneOf").and_then(Json::as_array) {
            return self.union(options);
        }
        if let Some(words) = schema.get("enum").and_then(Json::as_array) {
            let words = words.iter().filter_map(Json::as_str).map(str::to_owned).collect();
            return Shape::Union { variants: IndexMap::new(), words };
        }
        match schema.get("type") {
            Some(Json::Array(types)) => {
                let options = types.iter().filter_map(Json::as_str).map(|name| self.typed(name, schema));
                let options: Vec<_> = options.collect();
                Shape::AnyOf(options.into_iter().map(|shape| self.add(shape)).collect())
            }
            Some(Json::String(name)) => self.typed(name, schema),
            _ => Shape::Any,
        }
    }

    fn typed(&mut self, name: &str, schema: &'a JsonMap<String, Json>) -> Shape {
        let number = |key: &str| schema.get(key).and_then(Json::as_f64);
        match name {
            "object" => match (schema.get("properties"), schema.get("additionalProperties")) {
                (Some(Json::Object(properties)), _) => self.fields(properties, schema),
                (None, Some(value @ Json::Object(_))) => Shape::Dict(self.compile(value)),
                _ => Shape::Struct(IndexMap::new()),
            },
            "array" => Shape::List {
                item: schema.get("items").map_or(ShapeId(0), |items| self.compile(items)),
                min: number("minItems").map_or(0, |min| min as usize),
                max: number("maxItems").map_or(usize::MAX, |max| max as usize),
            },
            "integer" | "number" => {
                let integer = name == "integer";
                Shape::Number(NumberShape {
                    integer,
                    min: number("minimum").or(integer.then_some(-WHOLE_LIMIT)),
                    max: number("maximum"),
                    above: number("exclusiveMinimum"),
                    below: number("exclusiveMaximum").or(integer.then_some(WHOLE_LIMIT)),
                })
            }
            "boolean" => Shape::Bool,
            "null" => Shape::Null,
            _ => Shape::Text(match schema.get("format").and_then(Json::as_str) {
                Some("expression") => TextShape::Expression,
                Some("period") => TextShape::Period,
                _ => TextShape::Free,
            }),
        }
    }

    fn fields(&mut self, properties: &'a JsonMap<String, Json>, schema: &'a JsonMap<String, Json>) -> Shape {
        let required: Vec<&str> =
            schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str).collect();
        let field = |(name, property): (&'a String, &'a Json)| {
            let text = property.get("description").and_then(Json::as_str).unwrap_or_default();
            let paragraph = text.split("\n\n").next().unwrap_or_default().replace('\n', " ");
            let summary = paragraph.split_inclusive(". ").next().unwrap_or_default().trim_end().to_owned();
            let default = property.get("default").filter(|default| !default.is_null()).cloned();
            let required = required.contains(&name.as_str());
            (name.clone(), Field { shape: self.compile(property), required, summary, default })
        };
        Shape::Struct(properties.iter().map(field).collect())
    }

    fn union(&mut self, options: &'a [Json]) -> Shape {
        let mut variants = IndexMap::new();
        let mut words = Vec::new();
        for option in options {
            let named = option.get("enum").and_then(Json::as_array).into_iter().flatten();
            words.extend(named.chain(option.get("const")).filter_map(Json::as_str).map(str::to_owned));
            for (tag, content) in option.get("properties").and_then(Json::as_object).into_iter().flatten() {
                variants.insert(tag.clone(), self.compile(content));
            }
        }
        Shape::Union { variants, words }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_other_forms() {
        for (text, value) in [
            ("1/32768", 1.0 / 32768.0),
            ("-1/4", -0.25),
            ("76.9%", 0.769),
            ("76.95%", 0.7695),
            ("1e-2%", 1e-4),
            ("1e-4/2", 5e-5),
            ("3 / 4", 0.75),
        ] {
            assert_eq!(parse_number(text), Some(value), "{text}");
        }
        for text in ["", "1", "1/0", "0/0", "/", "1/2/3", "%", "50 %%", "inf/1", "nan%", "1/inf", "x/2", "$a/2"] {
            assert_eq!(parse_number(text), None, "{text}");
        }
    }

    /// Every field of the types has a documented shape.
    #[test]
    fn the_schema_is_understood() {
        let shapes = crate::Recipe::shapes();
        let Shape::Struct(fields) = shapes.shape(shapes.root) else { panic!() };
        assert!(fields["model"].required && !fields["golden"].required);
        assert!(!shapes.all.iter().any(|shape| matches!(shape, Shape::Any)));
    }
}
