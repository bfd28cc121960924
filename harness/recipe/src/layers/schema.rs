//! The JSON Schema of a kind of file with the common parts of all layers: the keys of modules, the first sentence of
//! each layer's description, and expressions in place of numbers and switches.

use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::{Layer, Module};
use crate::shape::Shapes;
use crate::values::Expression;

/// The schema of a kind of file from schemars, completed for layers.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let mut schema = schemars::schema_for!(T).to_value();
    if let Some(definitions) = schema.get_mut("$defs").and_then(Value::as_object_mut) {
        complete(definitions);
    }
    schema
}

/// The shapes of a kind of file.
pub(crate) fn shapes_of<T: JsonSchema>(file_keys: &'static [&'static str]) -> Shapes {
    Shapes::of(&schema_of::<T>(), file_keys)
}

fn complete(definitions: &mut Map<String, Value>) {
    let Some(mut layer) = definitions.remove("Layer") else { return };
    for option in layer.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some((tag, content)) = option["properties"].as_object().and_then(|map| map.iter().next()) else { continue };
        let (tag, name) = (tag.clone(), definition_name(content).map(str::to_owned));
        let own = name.as_deref().and_then(|name| definitions.get(name)).unwrap_or(content);
        let text = own["description"].as_str().unwrap_or_default();
        let first = text.split("\n\n").next().unwrap_or_default().to_owned();
        if let Some(name) = &name {
            complete_layer(&tag, name, definitions);
        }
        option["description"] = json!(first);
    }
    definitions.insert("Layer".to_owned(), layer);
    definitions.insert("Expression".to_owned(), Expression::schema());
}

/// Keys of a layer.
fn complete_layer(tag: &str, name: &str, definitions: &mut Map<String, Value>) {
    let Some(mut definition) = definitions.remove(name) else { return };
    let needs_name = match Layer::module(tag) {
        Some(Module::Parameters) => {
            Some("Module name; required outside `sequential`. With `.`, the parameters belong to the enclosing module.")
        }
        Some(Module::Container) => Some("Module name: the prefix of the names inside."),
        Some(Module::Function) => Some("Module name."),
        Some(Module::None) | None => None,
    };
    if let Some(meaning) = needs_name {
        definition["properties"]["name"] = json!({ "description": meaning, "type": ["string", "null"] });
        definition["properties"]["enabled"] = json!({ "description": "`false` removes the layer.", "type": "boolean" });
    }
    for property in
        definition.get_mut("properties").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut)
    {
        allow_expressions(property, definitions);
    }
    definitions.insert(name.to_owned(), definition);
}

/// Allows expressions for all numbers and switches of a value.
fn allow_expressions(schema: &mut Value, definitions: &mut Map<String, Value>) {
    let allowed = |schema: &Value| {
        let mut options = schema["anyOf"].as_array().into_iter().flatten();
        options.any(|option| definition_name(option) == Some("Expression"))
    };
    if allowed(schema) {
        return;
    }
    if is_scalar(schema, definitions) {
        let Some(mut value) = schema.as_object_mut().map(std::mem::take) else { return };
        let outer = ["description", "default"].map(|key| (key, value.remove(key)));
        let options = json!([value, { "$ref": "#/$defs/Expression" }]);
        *schema = json!({ "anyOf": options });
        for (key, kept) in outer {
            if let Some(kept) = kept {
                schema[key] = kept;
            }
        }
        return;
    }
    // Definitions with several forms (`Pair`) are used only by layers: their forms are changed in place.
    if let Some(name) = definition_name(schema).map(str::to_owned)
        && let Some(mut forms) =
            definitions.get_mut(&name).filter(|forms| forms.get("anyOf").is_some()).map(Value::take)
    {
        allow_expressions(&mut forms, definitions);
        definitions.insert(name, forms);
    }
    for option in schema.get_mut("anyOf").and_then(Value::as_array_mut).into_iter().flatten() {
        allow_expressions(option, definitions);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(values) = schema.get_mut(key).filter(|values| values.is_object()) {
            allow_expressions(values, definitions);
        }
    }
}

/// A number or a switch, or a choice of those; an expression is none.
fn is_scalar(schema: &Value, definitions: &Map<String, Value>) -> bool {
    if let Some(name) = definition_name(schema) {
        return definitions.get(name).is_some_and(|definition| is_scalar(definition, definitions));
    }
    let is_kind = |kind: &Value| matches!(kind.as_str(), Some("integer" | "number" | "boolean" | "null"));
    match (&schema["type"], schema["anyOf"].as_array()) {
        (Value::Array(kinds), _) => kinds.iter().all(is_kind),
        (Value::String(kind), _) => matches!(kind.as_str(), "integer" | "number" | "boolean"),
        (_, Some(options)) => options.iter().all(|option| is_scalar(option, definitions)),
        _ => false,
    }
}

fn definition_name(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix("#/$defs/")
}
