//! recipes/schema/recipe.json is what the types say.

use std::path::Path;

/// `UPDATE_SCHEMA=1 cargo test -p zoo-recipe` writes the file anew.
#[test]
fn the_schema_file_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/schema/recipe.json");
    let schema = zoo_recipe::json_schema();
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, serde_json::to_string_pretty(&schema).unwrap() + "\n").unwrap();
    }
    let file: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert!(file == schema, "{} is stale: UPDATE_SCHEMA=1 cargo test -p zoo-recipe", path.display());
}
