//! Recipes: YAML schema, loader, inheritance, overrides, diagnostics
