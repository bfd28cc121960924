//! Checks whether a checkpoint belongs to a recipe.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::fmt;

/// Parts of a recipe that do not affect the results of a training. `train.epochs` is not among them, because schedules
/// depend on it.
const FREE: [&str; 19] = [
    "description",
    "reference",
    "golden",
    "target",
    "engine.threads",
    "train.eval_every",
    "train.checkpoint_every",
    // Paths of data and vocabulary; `DataIdentity` verifies that both are the same.
    "data.source.image_folder.root",
    "data.source.class_folders.root",
    "data.source.cifar10.root",
    "data.source.idx.root",
    "data.source.text_folder.root",
    "data.source.label_maps.root",
    "data.source.boxes.root",
    "data.source.crop511.root",
    "data.source.frame_folder.root",
    "data.source.text_file.path",
    "data.source.text_file.tokenizer",
    "data.on_error",
];

/// A value of the recipe that has changed since the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Path in the recipe, for example `optimizer.sgd.momentum`.
    pub path: String,
    /// The value in the checkpoint; absent if there was none.
    pub before: Option<String>,
    /// The value now; absent if there is none.
    pub now: Option<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let absent = "(absent)";
        let (before, now) = (self.before.as_deref().unwrap_or(absent), self.now.as_deref().unwrap_or(absent));
        write!(f, "{}: {before} -> {now}", self.path)
    }
}

/// All differences between two resolved recipes that affect the results of a training.
pub fn changes(before: &Value, now: &Value) -> Vec<Change> {
    differences(before, now, &FREE)
}

/// All differences between two resolved recipes, except those at or below the `free` paths.
pub fn differences(before: &Value, now: &Value, free: &[&str]) -> Vec<Change> {
    let changed = |Setting { path, values }: Setting| {
        let [before, now] = <[Option<String>; 2]>::try_from(values).unwrap_or_default();
        Change { path, before, now }
    };
    differing(&[before, now], free).into_iter().map(changed).collect()
}

/// A setting that differs between runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Setting {
    /// Path in the recipe, or the name of a fact.
    pub path: String,
    /// Its value in each run, in order; null if it is absent.
    pub values: Vec<Option<String>>,
}

/// All settings in which resolved recipes differ, except those at or below the `free` paths.
pub fn differing(recipes: &[&Value], free: &[&str]) -> Vec<Setting> {
    let mut found = Vec::new();
    let recipes: Vec<Option<&Value>> = recipes.iter().map(|recipe| Some(*recipe)).collect();
    compare("", &recipes, free, &mut found);
    found
}

fn compare(path: &str, values: &[Option<&Value>], free: &[&str], found: &mut Vec<Setting>) {
    let Some(first) = values.first() else { return };
    if free.contains(&path) || values.iter().all(|value| value == first) {
        return;
    }
    let present: Vec<&Value> = values.iter().copied().flatten().collect();
    // What some recipes have alike and others lack is one difference.
    let is_alike = present.iter().all(|value| *value == present[0]);
    let objects: Option<Vec<_>> = present.iter().map(|value| value.as_object()).collect();
    let arrays: Option<Vec<_>> = present.iter().map(|value| value.as_array()).collect();
    match (objects, arrays) {
        (Some(objects), _) if !is_alike => {
            let mut keys: Vec<&String> = Vec::new();
            for key in objects.iter().flat_map(|object| object.keys()) {
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
            for key in keys {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let inner: Vec<_> = values.iter().map(|value| value.and_then(|value| value.get(key))).collect();
                compare(&path, &inner, free, found);
            }
        }
        (_, Some(arrays)) if !is_alike => {
            for index in 0..arrays.iter().map(|array| array.len()).max().unwrap_or_default() {
                let inner: Vec<_> = values.iter().map(|value| value.and_then(|value| value.get(index))).collect();
                compare(&format!("{path}[{index}]"), &inner, free, found);
            }
        }
        _ => found.push(Setting { path: path.to_owned(), values: values.iter().map(|v| v.map(short)).collect() }),
    }
}

/// A value as JSON, truncated if it is long.
fn short(value: &Value) -> String {
    const LONGEST: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use zoo_recipe::schema::Source;

    #[test]
    fn names_what_has_changed() {
        let before =
            json!({"name": "a", "optimizer": {"sgd": {"momentum": 0.9, "no_decay": ["bn"]}}, "train": {"epochs": 4}});
        let now = json!({"name": "a", "optimizer": {"sgd": {"momentum": 0.8, "no_decay": ["bn", "bias"]}}, "train": {"epochs": 4, "x": 1}});
        let found: Vec<String> = changes(&before, &now).iter().map(Change::to_string).collect();
        assert_eq!(
            found,
            [
                "optimizer.sgd.momentum: 0.9 -> 0.8",
                "optimizer.sgd.no_decay[1]: (absent) -> \"bias\"",
                "train.x: (absent) -> 1"
            ]
        );
    }

    #[test]
    fn of_several_recipes_each_has_its_own_value_or_none() {
        let recipes = [
            json!({"target": {"metric": "top1", "value": 0.95}, "golden": {"manifest": "a"}, "w": {"x": 1}}),
            json!({"w": {"x": 1}}),
            json!({"target": {"metric": "top1", "value": 0.9}, "golden": {"manifest": "a"}}),
            json!({"w": {"x": 1}, "target": 3}),
        ];
        let found = |recipes: &[&Value]| -> Vec<(String, String)> {
            let shown = |values: Vec<Option<String>>| {
                values.iter().map(|value| value.as_deref().unwrap_or("-")).collect::<Vec<_>>().join(" ")
            };
            differing(recipes, &[]).into_iter().map(|found| (found.path, shown(found.values))).collect()
        };
        let wanted = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(path, values)| ((*path).to_owned(), (*values).to_owned())).collect()
        };
        let [a, b, c, d] = &recipes;
        let golden = "{\"manifest\":\"a\"}";
        assert_eq!(
            found(&[a, b, c]),
            wanted(&[
                ("golden", &format!("{golden} - {golden}")),
                ("target.metric", "\"top1\" - \"top1\""),
                ("target.value", "0.95 - 0.9"),
                ("w", "{\"x\":1} {\"x\":1} -"),
            ])
        );
        assert_eq!(found(&[b, d]), wanted(&[("target", "- 3")]));
        assert_eq!(found(&[a, a, a]), []);
    }

    #[test]
    fn what_changes_no_number_is_free() {
        let before = json!({"target": {"value": 0.9}, "engine": {"threads": 1, "kernels": "fast"}, "train": {"eval_every": "1 epoch"}});
        let now = json!({"engine": {"threads": 2, "kernels": "fast"}, "train": {"eval_every": "5 steps"}});
        assert_eq!(changes(&before, &now), []);
        let kernels = json!({"engine": {"kernels": "reference"}, "train": {}});
        assert_eq!(changes(&before, &kernels).len(), 1);
    }

    /// The kinds of data, from the schema of recipes.
    fn sources() -> Vec<Source> {
        let schema = serde_json::to_value(schemars::schema_for!(Source)).unwrap();
        let kinds = schema["oneOf"].as_array().unwrap().iter().map(|kind| kind["required"][0].as_str().unwrap());
        let smallest = |kind: &str| {
            let crops = json!({"root": "here", "sets": [], "pairs": 1, "sequences": "vot"});
            let settings = [json!({}), json!({"root": "here"}), json!({"path": "here"}), crops];
            settings.into_iter().find_map(|settings| serde_json::from_value(json!({kind: settings})).ok())
        };
        kinds.map(|kind| smallest(kind).unwrap_or_else(|| panic!("{kind} needs further settings"))).collect()
    }

    #[test]
    fn all_data_may_move() {
        let value = |source: &Source| json!({"data": {"source": source}});
        let mut located = 0;
        for before in sources() {
            let mut now = before.clone();
            if let Some(location) = now.location_mut() {
                *location = "elsewhere".into();
                located += 1;
                assert_ne!(value(&before), value(&now));
            }
            assert_eq!(changes(&value(&before), &value(&now)), [], "{before:?}");
        }
        assert!(located > 0);
        let subwords = |tokenizer: &str| json!({"data": {"source": {"text_file": {"tokenizer": tokenizer}}}});
        assert_eq!(changes(&subwords("a/tokenizer.json"), &subwords("b/tokenizer.json")), []);
    }
}
