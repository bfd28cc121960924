//! The reference of all recipe options in Markdown, generated from the schema for editors.

use std::collections::HashMap;
use std::fmt::Write;

use serde_json::{Map, Value};

use crate::editor_schema::json_schema;
use crate::names::ELSEWHERE;

/// A page of the reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Name of its file.
    pub file: &'static str,
    /// Its content.
    pub text: String,
}

/// File, title, and the sections of a recipe that it explains.
type Plan = (&'static str, &'static str, &'static [&'static str]);

const FIRST: &str = "recipe-reference.md";
const PLAN: [Plan; 4] = [
    ("recipe-reference-model.md", "The architecture", &["model"]),
    ("recipe-reference-data.md", "Data, preprocessing and postprocessing", &["data", "preprocess", "postprocess"]),
    (
        "recipe-reference-training.md",
        "Loss, optimizer, schedule, training and target",
        &["loss", "gradients", "optimizer", "schedule", "train", "target", "golden", "reference"],
    ),
    ("recipe-reference-npu.md", "Engine, split steps and simulated NPU", &["engine", "parallel", "npu"]),
];

/// All pages, the first with the sections of a recipe and links to the others.
pub fn reference() -> Vec<Page> {
    let schema = json_schema();
    let definitions = schema["$defs"].as_object().cloned().unwrap_or_default();
    let root = schema["else"].as_object().cloned().unwrap_or_default();
    let properties = root.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    // Which page explains what: the first from whose sections it is reached.
    let mut pages: HashMap<String, &'static str> = HashMap::new();
    let mut chapters: Vec<Vec<String>> = Vec::new();
    for (file, _, sections) in PLAN {
        let mut order = Vec::new();
        for section in sections {
            reach(&properties[*section], &definitions, file, &mut pages, &mut order);
        }
        chapters.push(order);
    }
    let mut out = vec![first(&schema, &root, &definitions, &pages)];
    for ((file, title, sections), order) in PLAN.into_iter().zip(chapters) {
        let page = Writer { file, definitions: &definitions, pages: &pages };
        let named = sections.iter().map(|section| format!("`{section}`")).collect::<Vec<_>>().join(", ");
        let mut text = format!("# {title}\n\n{MADE}\n\nExplains {named}. [All sections]({FIRST}).\n");
        for name in &order {
            page.definition(name, &mut text);
        }
        out.push(Page { file, text: wrapped(&text) });
    }
    out
}

const MADE: &str = "<!-- Made by `zoo schema --markdown docs`: change the docstrings in harness/recipe/src. -->";

fn first(
    schema: &Value,
    root: &Map<String, Value>,
    definitions: &Map<String, Value>,
    pages: &HashMap<String, &'static str>,
) -> Page {
    let page = Writer { file: FIRST, definitions, pages };
    let mut text = format!(
        "# Every option of a recipe\n\n{MADE}\n\n\
         A recipe is a single YAML document. Numbers can be fractions (`1/32768`) or percentages (`76.9%`). A variant \
         without values can be written as its name alone (`- relu`). Inside blocks, a number can be an expression of \
         block arguments (`$width*4`). `zoo validate FILE` lists all mistakes with line and column. `zoo show FILE \
         --resolved` shows all defaults.\n\n\
         [write-a-recipe.md](write-a-recipe.md) leads from a PyTorch model to a proven recipe in four commands.\n\n## \
         Sections\n\n"
    );
    page.table(root, &mut text);
    let extends = schema["then"]["properties"]["extends"]["description"].as_str().unwrap_or_default();
    let _ = write!(
        text,
        "\n## Files that extend another\n\nA file with `extends` can omit inherited keys, and removes an inherited \
         entry with `~`.\n\n\
         | key | value | default | meaning |\n| --- | --- | --- | --- |\n| `extends` | text | | {} |\n",
        cell(extends)
    );
    text.push_str(
        "\n## Names of other frameworks\n\nWhoever writes a name of PyTorch, torchvision, MindSpore or Keras is told the \
         word of recipes. Names that differ only in case, `_` and the plural are understood too.\n\n\
         | in recipes | elsewhere |\n| --- | --- |\n",
    );
    for (word, names) in ELSEWHERE {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(text, "| `{word}` | {} |", names.join(", "));
    }
    Page { file: FIRST, text: wrapped(&text) }
}

/// Characters of a line of prose.
const WIDTH: usize = 120;

/// Wraps prose at spaces; rows of tables are unchanged.
fn wrapped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let indent = if line.starts_with("- ") { "\n  " } else { "\n" };
        let mut column = 0;
        for word in line.split(' ') {
            let len = word.chars().count();
            if column > 0 && column + 1 + len > WIDTH && !line.starts_with('|') {
                out.push_str(indent);
                column = indent.len() - 1;
            } else if column > 0 {
                out.push(' ');
                column += 1;
            }
            out.push_str(word);
            column += len;
        }
        out.push('\n');
    }
    out
}

/// Collects the definitions below a value that deserve a heading, in the order in which they are met.
fn reach(
    value: &Value,
    definitions: &Map<String, Value>,
    file: &'static str,
    pages: &mut HashMap<String, &'static str>,
    order: &mut Vec<String>,
) {
    match value {
        Value::Array(list) => list.iter().for_each(|value| reach(value, definitions, file, pages, order)),
        Value::Object(map) => {
            if let Some(name) = reference_of(map)
                && let Some(definition) = definitions.get(name)
                && !pages.contains_key(name)
            {
                pages.insert(name.to_owned(), file);
                order.push(name.to_owned());
                reach(definition, definitions, file, pages, order);
            }
            map.iter()
                .filter(|(key, _)| *key != "$ref")
                .for_each(|(_, value)| reach(value, definitions, file, pages, order));
        }
        _ => {}
    }
}

fn reference_of(map: &Map<String, Value>) -> Option<&str> {
    map.get("$ref")?.as_str()?.strip_prefix("#/$defs/")
}

struct Writer<'a> {
    file: &'static str,
    definitions: &'a Map<String, Value>,
    pages: &'a HashMap<String, &'static str>,
}

impl Writer<'_> {
    fn definition(&self, name: &str, text: &mut String) {
        let Some(Value::Object(definition)) = self.definitions.get(name) else { return };
        let _ = write!(text, "\n## {name}\n\n{}\n", description(definition));
        if let Some(options) = definition.get("oneOf").and_then(Value::as_array) {
            let _ = write!(text, "\n| choice | value | meaning |\n| --- | --- | --- |\n");
            for option in options.iter().filter_map(Value::as_object) {
                self.option(option, text);
            }
        } else if definition.contains_key("properties") {
            text.push('\n');
            self.table(definition, text);
        } else {
            let _ = writeln!(text, "\nWritten as: {}", self.kind(&without_description(definition)));
            for option in definition.get("anyOf").and_then(Value::as_array).into_iter().flatten() {
                if let Some(option) = option.as_object().filter(|option| option.contains_key("description")) {
                    let _ = writeln!(text, "\n- {}: {}", self.kind(&without_description(option)), description(option));
                }
            }
        }
    }

    /// A choice of several: a word, or a key with values.
    fn option(&self, option: &Map<String, Value>, text: &mut String) {
        let meaning = cell(&description(option));
        if let Some(word) = option.get("const").and_then(Value::as_str) {
            let _ = writeln!(text, "| `{word}` | | {meaning} |");
        } else if let Some(words) = option.get("enum").and_then(Value::as_array) {
            let words: Vec<String> = words.iter().filter_map(Value::as_str).map(|word| format!("`{word}`")).collect();
            let _ = writeln!(text, "| {} | | {meaning} |", words.join(", "));
        } else if let Some(properties) = option.get("properties").and_then(Value::as_object) {
            for (tag, value) in properties {
                let value = value.as_object().map(|value| self.kind(&without_description(value))).unwrap_or_default();
                let _ = writeln!(text, "| `{tag}` | {value} | {meaning} |");
            }
        } else {
            let _ = writeln!(text, "| {} | | {meaning} |", self.kind(&without_description(option)));
        }
    }

    /// Keys of a map.
    fn table(&self, schema: &Map<String, Value>, text: &mut String) {
        let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        let properties = schema.get("properties").and_then(Value::as_object);
        text.push_str("| key | value | default | meaning |\n| --- | --- | --- | --- |\n");
        for (key, value) in properties.into_iter().flatten() {
            let Some(value) = value.as_object() else { continue };
            let default = match value.get("default") {
                _ if required.iter().any(|name| name == key) => "required".to_owned(),
                // The meaning of an omitted section is described in its explanation.
                Some(Value::Null | Value::Object(_)) | None => String::new(),
                Some(default) => format!("`{default}`"),
            };
            let kind = self.kind(&without_description(value));
            let _ = writeln!(text, "| `{key}` | {kind} | {} | {} |", cell(&default), cell(&description(value)));
        }
    }

    /// A description of allowed values.
    fn kind(&self, schema: &Map<String, Value>) -> String {
        if let Some(name) = reference_of(schema) {
            return self.link(name);
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(options) = schema.get(key).and_then(Value::as_array) {
                let mut kinds: Vec<String> = options
                    .iter()
                    .filter_map(Value::as_object)
                    .filter(|option| option.get("type").and_then(Value::as_str) != Some("null"))
                    .map(|option| self.kind(option))
                    .collect();
                kinds.dedup();
                return kinds.join(" or ");
            }
        }
        if let Some(words) = schema.get("enum").and_then(Value::as_array) {
            return words
                .iter()
                .map(|word| format!("`{}`", word.as_str().unwrap_or_default()))
                .collect::<Vec<_>>()
                .join(", ");
        }
        let types: Vec<&str> = match schema.get("type") {
            Some(Value::String(kind)) => vec![kind],
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => vec![],
        };
        let bounds = bounds(schema);
        let word = |kind: &str| match kind {
            "number" => format!("number{bounds}"),
            "integer" => format!("whole number{bounds}"),
            "boolean" => "`true` or `false`".to_owned(),
            "array" => match schema.get("items").and_then(Value::as_object) {
                Some(items) => format!("list of {}", self.kind(items)),
                None => "list".to_owned(),
            },
            "object" => match schema.get("additionalProperties").and_then(Value::as_object) {
                Some(values) => format!("map from names to {}", self.kind(values)),
                None => "map".to_owned(),
            },
            _ => "text".to_owned(),
        };
        // If text is allowed for a number, it is a fraction or percentage.
        let is_number = types.contains(&"number");
        let kinds = types.iter().filter(|kind| **kind != "null" && !(is_number && **kind == "string"));
        kinds.map(|kind| word(kind)).collect::<Vec<_>>().join(" or ")
    }

    fn link(&self, name: &str) -> String {
        let anchor = name.to_lowercase();
        match self.pages.get(name) {
            Some(page) if *page == self.file => format!("[{name}](#{anchor})"),
            Some(page) => format!("[{name}]({page}#{anchor})"),
            None => name.to_owned(),
        }
    }
}

/// Bounds of a number, in words.
fn bounds(schema: &Map<String, Value>) -> String {
    let of = |key: &str| schema.get(key).filter(|value| value.is_number()).map(Value::to_string);
    let low =
        of("minimum").map(|low| format!("at least {low}")).or(of("exclusiveMinimum").map(|low| format!("above {low}")));
    let high = of("maximum")
        .map(|high| format!("at most {high}"))
        .or(of("exclusiveMaximum").map(|high| format!("below {high}")));
    let words: Vec<String> = low.into_iter().chain(high).collect();
    if words.is_empty() { String::new() } else { format!(", {}", words.join(", ")) }
}

fn description(schema: &Map<String, Value>) -> String {
    schema.get("description").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn without_description(schema: &Map<String, Value>) -> Map<String, Value> {
    schema.iter().filter(|(key, _)| *key != "description").map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ")
}
