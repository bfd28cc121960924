//! recipes/schema/recipe.json, blocks.json and the reference in docs are what the types say.

use std::path::Path;

/// `UPDATE_SCHEMA=1 cargo test -p zoo-recipe` writes the files anew.
#[test]
fn the_schema_files_are_fresh() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/schema");
    for (name, schema) in [("recipe", zoo_recipe::json_schema()), ("blocks", zoo_recipe::block_file_schema())] {
        let path = folder.join(name).with_extension("json");
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::write(&path, serde_json::to_string_pretty(&schema).unwrap() + "\n").unwrap();
        }
        let file = std::fs::read_to_string(&path).unwrap_or_default();
        let file: serde_json::Value = serde_json::from_str(&file).unwrap_or_default();
        assert!(file == schema, "{} is stale: UPDATE_SCHEMA=1 cargo test -p zoo-recipe", path.display());
    }
}

/// The pages in docs say what the schema says; made in the same way.
#[test]
fn the_reference_is_fresh() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for page in zoo_recipe::reference() {
        let path = docs.join(page.file);
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::write(&path, &page.text).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == page.text, "{} is stale: UPDATE_SCHEMA=1 cargo test -p zoo-recipe", path.display());
    }
}

/// Editors show a description for every key, the reference lists it, and neither has a gap.
#[test]
fn every_key_is_described() {
    fn walk(value: &serde_json::Value, path: &str, gaps: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) => {
                for (key, property) in map.get("properties").and_then(|p| p.as_object()).into_iter().flatten() {
                    let said = property.get("description").and_then(|text| text.as_str()).unwrap_or_default();
                    if said.trim().is_empty() {
                        gaps.push(format!("{path}.{key}"));
                    }
                }
                map.iter().for_each(|(key, value)| walk(value, &format!("{path}/{key}"), gaps));
            }
            serde_json::Value::Array(list) => list.iter().for_each(|value| walk(value, path, gaps)),
            _ => {}
        }
    }
    let mut gaps = Vec::new();
    walk(&zoo_recipe::json_schema(), "", &mut gaps);
    assert!(gaps.is_empty(), "{gaps:#?}");
    let pages = zoo_recipe::reference();
    let all: String = pages.iter().map(|page| page.text.as_str()).collect();
    for key in [
        "`extends`",
        "`profiles`",
        "`label_smoothing`",
        "`no_decay`",
        "`init_from`",
        "`conv_transpose`",
        "`loss_scale`",
    ] {
        assert!(all.contains(key), "{key}");
    }
    assert!(!all.contains("| |  |"), "no key without a meaning");
}
