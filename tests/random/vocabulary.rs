//! The words of the recipe language, from its schema: every key, every choice and every form of a value.

use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashSet};

/// The schema of recipes.
pub struct Vocabulary {
    root: Value,
    definitions: Map<String, Value>,
}

impl Vocabulary {
    /// That of this version.
    pub fn new() -> Self {
        let mut schema = zoo_recipe::json_schema();
        let Value::Object(definitions) = schema["$defs"].take() else { panic!("no definitions") };
        Self { root: schema["else"].take(), definitions }
    }

    /// Every word of these sections of a recipe.
    pub fn words(&self, sections: &[&str]) -> BTreeSet<String> {
        let mut words = BTreeSet::new();
        let mut seen = HashSet::new();
        for section in sections {
            self.list(&self.root["properties"][section], section, &mut words, &mut seen);
        }
        words
    }

    /// The words that a recipe uses.
    pub fn used(&self, recipe: &Value, words: &mut BTreeSet<String>) {
        for (section, value) in recipe.as_object().into_iter().flatten() {
            self.mark(&self.root["properties"][section], value, section, words);
        }
    }

    fn follow<'a>(&'a self, schema: &'a Value) -> (Option<&'a str>, &'a Value) {
        match schema.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix("#/$defs/")) {
            Some(name) => (Some(name), &self.definitions[name]),
            None => (None, schema),
        }
    }

    fn list<'a>(&'a self, schema: &'a Value, label: &str, words: &mut BTreeSet<String>, seen: &mut HashSet<&'a str>) {
        let (name, schema) = self.follow(schema);
        if let Some(name) = name
            && !seen.insert(name)
        {
            return;
        }
        let label = name.unwrap_or(label);
        let choices = choices(schema);
        for choice in &choices {
            if let Some(word) = word_of(label, choice, choices.len()) {
                words.insert(word);
            }
            self.list(choice, label, words, seen);
        }
        for (key, value) in properties(schema) {
            let word = format!("{label}.{key}");
            self.list(value, &word, words, seen);
            if value.get("type").and_then(Value::as_str) == Some("boolean") || is_switch(value) {
                words.extend([format!("{word}: false"), format!("{word}: true")]);
            }
            words.insert(word);
        }
        for inner in ["items", "additionalProperties"].into_iter().filter_map(|key| schema.get(key)) {
            if inner.is_object() {
                self.list(inner, label, words, seen);
            }
        }
    }

    /// Whether a value can be of this schema; says nothing of ranges.
    fn fits(&self, schema: &Value, value: &Value) -> bool {
        let (_, schema) = self.follow(schema);
        let choices = choices(schema);
        if !choices.is_empty() {
            return choices.into_iter().any(|choice| self.fits(choice, value));
        }
        if let Some(only) = schema.get("const") {
            return only == value;
        }
        if let Some(names) = schema.get("enum").and_then(Value::as_array) {
            return names.contains(value);
        }
        let of_type = |ty: &str| match ty {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            "integer" => value.is_u64() || value.is_i64() || value.as_f64().is_some_and(|v| v.fract() == 0.0),
            _ => value.is_number(),
        };
        let typed = match schema.get("type") {
            Some(Value::String(ty)) => of_type(ty),
            Some(Value::Array(types)) => types.iter().filter_map(Value::as_str).any(of_type),
            _ => true,
        };
        if let (Value::String(text), Some(pattern)) = (value, schema.get("pattern").and_then(Value::as_str))
            && text.contains('$') != pattern.contains("\\$")
        {
            return false;
        }
        let count = |key: &str| schema.get(key).and_then(Value::as_u64);
        let long = value.as_array().is_none_or(|list| {
            let n = list.len() as u64;
            count("minItems").is_none_or(|least| n >= least) && count("maxItems").is_none_or(|most| n <= most)
        });
        let keyed = value.as_object().is_none_or(|map| {
            let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
            let open = schema.get("additionalProperties").is_none_or(|more| *more != Value::Bool(false));
            required.filter_map(Value::as_str).all(|key| map.contains_key(key))
                && (open || map.keys().all(|key| schema["properties"].get(key).is_some()))
        });
        typed && long && keyed
    }

    fn mark(&self, schema: &Value, value: &Value, label: &str, words: &mut BTreeSet<String>) {
        let (name, schema) = self.follow(schema);
        let label = name.unwrap_or(label);
        if let Value::Bool(on) = value
            && label.contains('.')
        {
            words.insert(format!("{label}: {on}"));
        }
        let choices = choices(schema);
        for choice in choices.iter().filter(|choice| self.fits(choice, value)) {
            if let Some(word) = word_of(label, choice, choices.len()) {
                words.insert(word);
            }
            self.mark(choice, value, label, words);
        }
        for (key, value) in value.as_object().into_iter().flatten() {
            match (schema.get("properties").and_then(|known| known.get(key)), schema.get("additionalProperties")) {
                (Some(known), _) => {
                    let word = format!("{label}.{key}");
                    self.mark(known, value, &word, words);
                    words.insert(word);
                }
                (None, Some(any)) if any.is_object() => self.mark(any, value, label, words),
                _ => {}
            }
        }
        if let (Some(list), Some(items)) = (value.as_array(), schema.get("items")) {
            list.iter().for_each(|value| self.mark(items, value, label, words));
        }
    }
}

fn choices(schema: &Value) -> Vec<&Value> {
    ["anyOf", "oneOf"].into_iter().filter_map(|key| schema.get(key).and_then(Value::as_array)).flatten().collect()
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

/// Whether a value is `true`, `false`, or an expression.
fn is_switch(schema: &Value) -> bool {
    choices(schema).iter().any(|choice| choice.get("type").and_then(Value::as_str) == Some("boolean"))
}

/// The word of one of several forms of a value; none for those that have other words.
fn word_of(label: &str, choice: &Value, of: usize) -> Option<String> {
    if let Some(only) = choice.get("const") {
        return Some(format!("{label}: {}", only.as_str().unwrap_or_default()));
    }
    if of < 2 || choice.get("enum").is_some() {
        return None;
    }
    match (choice.get("$ref").and_then(Value::as_str), choice.get("type").and_then(Value::as_str)) {
        (Some(path), _) => {
            let name = path.trim_start_matches("#/$defs/");
            // Every number and switch of a layer can be an expression: one word for all of them.
            Some(if name == "Expression" { name.to_owned() } else { format!("{label}, a {name}") })
        }
        (None, Some("array")) => {
            let count = |key: &str| choice.get(key).and_then(Value::as_u64);
            Some(match (count("minItems"), count("maxItems")) {
                (Some(least), Some(most)) if least == most => format!("{label}, a list of {least}"),
                _ => format!("{label}, a list"),
            })
        }
        (None, Some(ty @ ("string" | "integer" | "number"))) => Some(format!("{label}, a {ty}")),
        _ => None,
    }
}

/// A step into a recipe.
#[derive(Clone, Debug, PartialEq)]
pub enum Key {
    Name(String),
    Index(usize),
}

/// What a value of a recipe can be instead.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// `true` or `false`.
    Switch(bool),
    /// A number within bounds, which it can be equal to or not.
    Number { value: f64, whole: bool, least: Option<f64>, most: Option<f64>, above: Option<f64>, below: Option<f64> },
    /// One of several words.
    Choice { value: String, words: Vec<String> },
}

/// A single value of a recipe.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    pub path: Vec<Key>,
    pub form: Form,
}

impl Setting {
    /// The place in words.
    pub fn told(&self) -> String {
        let step = |key: &Key| match key {
            Key::Name(name) => format!(".{name}"),
            Key::Index(index) => format!("[{index}]"),
        };
        self.path.iter().map(step).collect::<String>().trim_start_matches('.').to_owned()
    }

    /// The recipe with another value here.
    pub fn changed(&self, recipe: &Value, value: Value) -> Value {
        let mut recipe = recipe.clone();
        let place = self.path.iter().fold(&mut recipe, |at, key| match key {
            Key::Name(name) => &mut at[name],
            Key::Index(index) => &mut at[*index],
        });
        *place = value;
        recipe
    }
}

impl Vocabulary {
    /// All single values in these sections of a recipe.
    pub fn settings(&self, recipe: &Value, sections: &[&str]) -> Vec<Setting> {
        let mut found = Vec::new();
        for section in sections.iter().filter(|section| recipe.get(**section).is_some()) {
            let mut path = vec![Key::Name((*section).to_owned())];
            self.collect(&self.root["properties"][section], &recipe[section], &mut path, &mut found);
        }
        found
    }

    fn collect(&self, schema: &Value, value: &Value, path: &mut Vec<Key>, found: &mut Vec<Setting>) {
        let (_, schema) = self.follow(schema);
        let choices = choices(schema);
        if let Some(form) = form(schema, &choices, value) {
            return found.push(Setting { path: path.clone(), form });
        }
        if let Some(choice) = choices.iter().find(|choice| self.fits(choice, value)) {
            return self.collect(choice, value, path, found);
        }
        for (key, value) in value.as_object().into_iter().flatten() {
            let known =
                schema.get("properties").and_then(|known| known.get(key)).or(schema.get("additionalProperties"));
            if let Some(known) = known.filter(|known| known.is_object()) {
                path.push(Key::Name(key.clone()));
                self.collect(known, value, path, found);
                path.pop();
            }
        }
        for (index, value) in value.as_array().into_iter().flatten().enumerate() {
            if let Some(items) = schema.get("items") {
                path.push(Key::Index(index));
                self.collect(items, value, path, found);
                path.pop();
            }
        }
    }
}

/// What a single value of this schema can be.
fn form(schema: &Value, choices: &[&Value], value: &Value) -> Option<Form> {
    let words: Vec<&str> = choices.iter().filter_map(|choice| choice.get("const")?.as_str()).collect();
    if let (Some(value), true) = (value.as_str(), words.len() > 1) {
        let words = words.into_iter().map(str::to_owned).collect();
        return Some(Form::Choice { value: value.to_owned(), words });
    }
    if !choices.is_empty() {
        return None;
    }
    let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
    let numeric = |ty: &Value| ty == "number" || ty == "integer";
    let whole = schema.get("type").is_some_and(|ty| ty == "integer");
    let is_number =
        schema.get("type").is_some_and(|ty| numeric(ty) || ty.as_array().is_some_and(|all| all.iter().any(numeric)));
    match value {
        Value::Bool(on) => Some(Form::Switch(*on)),
        Value::Number(number) if is_number => Some(Form::Number {
            value: number.as_f64()?,
            whole,
            least: bound("minimum"),
            most: bound("maximum"),
            above: bound("exclusiveMinimum"),
            below: bound("exclusiveMaximum"),
        }),
        _ => None,
    }
}
