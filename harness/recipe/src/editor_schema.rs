//! The JSON Schema for editors: the schema of [`crate::Recipe`], and the additional keys of files.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use crate::layers::schema_of;
use crate::schema::{BlockFile, Recipe};

/// Suffix of definitions in which nothing is required, for profiles and for files with `extends`.
const FRAGMENT: &str = "Fragment";

/// The JSON Schema of recipe files.
///
/// In addition to the types of [`crate::schema`], it supports `extends`, `set` and `profiles`, lets a file that extends
/// another one omit inherited keys or remove them with `null`, and accepts the short forms of values: fractions and
/// percentages for numbers, and the name of a variant without values.
pub fn json_schema() -> Value {
    let mut recipe = schema_of::<Recipe>();
    let mut definitions = Map::new();
    if let Some(root) = recipe.as_object_mut() {
        if let Some(Value::Object(found)) = root.remove("$defs") {
            definitions = found;
        }
        root.retain(|key, _| !matches!(key.as_str(), "$schema" | "title"));
    }
    definitions.values_mut().for_each(describe_choices);
    let fragments = definitions.iter().map(|(name, definition)| (format!("{name}{FRAGMENT}"), fragment(definition)));
    let fragments: Vec<_> = fragments.collect();
    definitions.extend(fragments);

    allow_from(&mut definitions);

    let set = json!({
        "description": "Single values to change, by path: `model.conv1.stride: 1`. They are applied after everything \
                        else in this file or profile.",
        "type": "object",
    });
    let description = "The recipe that this one extends: a name, or a path relative to this file.";
    let extends = json!({ "description": description, "type": "string" });
    let profiles = json!({
        "description": "Named sets of changes to the recipe, chosen with `--profile`. The default of `zoo run` is \
                        `mini`.",
        "type": "object",
        "additionalProperties": { "anyOf": [{ "$ref": "#/$defs/Profile" }, { "type": "null" }] },
    });
    let whole = with_keys(recipe.clone(), [("set", &set), ("profiles", &profiles)]);
    let mut inheriting = with_keys(fragment(&recipe), [("extends", &extends), ("set", &set), ("profiles", &profiles)]);
    inheriting["required"] = json!(["extends"]);
    definitions.insert("Profile".to_owned(), with_keys(fragment(&recipe), [("set", &set)]));

    let bare = bare_variants(&definitions);
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "zoo recipe",
        "if": { "required": ["extends"] },
        "then": inheriting,
        "else": whole,
        "$defs": definitions,
    });
    accept_short_forms(&mut schema, &bare);
    drop_unused(&mut schema);
    schema
}

/// Allows `from` instead of a body in blocks.
fn allow_from(definitions: &mut Map<String, Value>) {
    let from = json!({
        "description": "Instead of a body: takes the block of this name, and the blocks that it uses, from another \
                        recipe (a name, or a path relative to this file) or from a block file (`blocks/NAME`). Other \
                        keys here change the block.",
        "type": "string",
    });
    if let Some(block) = definitions.get_mut("Block").and_then(Value::as_object_mut) {
        block.remove("required");
        block.insert("anyOf".to_owned(), json!([{ "required": ["body"] }, { "required": ["from"] }]));
    }
    for name in ["Block".to_owned(), format!("Block{FRAGMENT}")] {
        if let Some(block) = definitions.get_mut(&name) {
            block["properties"]["from"] = from.clone();
        }
    }
}

/// The JSON Schema of files of blocks.
pub fn block_file_schema() -> Value {
    let mut schema = document_schema::<BlockFile>("zoo blocks");
    if let Some(definitions) = schema.get_mut("$defs").and_then(Value::as_object_mut) {
        allow_from(definitions);
    }
    schema
}

/// Copies the description of each choice to its key, because editors show the description of the key.
fn describe_choices(definition: &mut Value) {
    for option in definition.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(meaning) = option.get("description").cloned() else { continue };
        for property in
            option.get_mut("properties").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut)
        {
            if let Some(property) = property.as_object_mut() {
                property.entry("description").or_insert_with(|| meaning.clone());
            }
        }
    }
}

/// The JSON Schema of another kind of document, with the short forms of values that [`crate::Document`] reads.
pub fn document_schema<T: JsonSchema>(title: &str) -> Value {
    let mut schema = schema_of::<T>();
    let bare = match schema.get("$defs").and_then(Value::as_object) {
        Some(definitions) => bare_variants(definitions),
        None => Vec::new(),
    };
    accept_short_forms(&mut schema, &bare);
    schema["title"] = json!(title);
    schema
}

/// Takes out definitions that nothing refers to.
fn drop_unused(schema: &mut Value) {
    let mut used = HashSet::new();
    let mut open = vec![&schema["then"], &schema["else"]];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(list) => open.extend(list),
            Value::Object(map) => {
                let name = map.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix("#/$defs/"));
                if let Some(name) = name
                    && used.insert(name.to_owned())
                {
                    open.push(&schema["$defs"][name]);
                }
                open.extend(map.values());
            }
            _ => {}
        }
    }
    if let Some(definitions) = schema["$defs"].as_object_mut() {
        definitions.retain(|name, _| used.contains(name));
    }
}

fn with_keys<const N: usize>(mut schema: Value, keys: [(&str, &Value); N]) -> Value {
    for (key, value) in keys {
        schema["properties"][key] = value.clone();
    }
    schema
}

/// `schema` with nothing required but the key of a variant, and everything removable with `null`. Lists replace, so
/// their elements stay whole.
fn fragment(schema: &Value) -> Value {
    let mut schema = schema.clone();
    let Some(map) = schema.as_object_mut() else { return schema };
    if let Some(Value::String(reference)) = map.get_mut("$ref") {
        reference.push_str(FRAGMENT);
    }
    for key in ["anyOf", "oneOf"] {
        for option in map.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
            let tag = option.get("required").cloned();
            *option = fragment(option);
            if let Some(tag) = tag {
                option["required"] = tag;
            }
        }
    }
    if let Some(values) = map.get_mut("additionalProperties").filter(|values| values.is_object()) {
        *values = json!({ "anyOf": [fragment(values), { "type": "null" }] });
    }
    for property in map.get_mut("properties").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
        let description = property.get("description").cloned();
        *property = json!({ "anyOf": [fragment(property), { "type": "null" }] });
        if let Some(description) = description {
            property["description"] = description;
        }
    }
    map.remove("required");
    schema
}

/// References to definitions that need no values.
fn bare_variants(definitions: &Map<String, Value>) -> Vec<String> {
    let is_bare = |definition: &Value| definition.get("properties").is_some() && definition.get("required").is_none();
    let bare = definitions.iter().filter(|(name, definition)| is_bare(definition) && !name.ends_with(FRAGMENT));
    bare.flat_map(|(name, _)| [format!("#/$defs/{name}"), format!("#/$defs/{name}{FRAGMENT}")]).collect()
}

/// Accepts fractions and percentages for numbers, and names for variants without values, everywhere below `schema`.
fn accept_short_forms(schema: &mut Value, bare: &[String]) {
    match schema {
        Value::Array(list) => list.iter_mut().for_each(|value| accept_short_forms(value, bare)),
        Value::Object(map) => {
            map.values_mut().for_each(|value| accept_short_forms(value, bare));
            if let Some(Value::Array(options)) = map.get_mut("oneOf") {
                let tag = |option: &Value| {
                    let (tag, content) = option.get("properties")?.as_object()?.iter().next()?;
                    let content = content.get("anyOf").and_then(|options| options.get(0)).unwrap_or(content);
                    let reference = content.get("$ref")?.as_str()?;
                    bare.iter().any(|bare| bare == reference).then(|| tag.clone())
                };
                let tags: Vec<_> = options.iter().filter_map(tag).collect();
                if !tags.is_empty() {
                    options.push(json!({ "description": "Without values.", "type": "string", "enum": tags }));
                }
            }
            let types = map.get("type").cloned().unwrap_or_default();
            let types: Vec<_> = types.as_array().cloned().unwrap_or_else(|| vec![types]);
            if types.contains(&json!("number")) {
                let types = types.into_iter().chain([json!("string")]).collect();
                map.insert("type".to_owned(), Value::Array(types));
                let number = r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?";
                map.insert("pattern".to_owned(), Value::String(format!("^{number}( */ *{number}|%)$")));
            }
        }
        _ => {}
    }
}
