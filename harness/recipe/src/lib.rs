//! Recipes: YAML schema, loader, inheritance, overrides, diagnostics.
//!
//! [`schema`] is the recipe as written, [`layers`] are its layers, and [`resolve`] is the resolved architecture from
//! which graphs are built. A [`Library`] finds and loads recipes:
//!
//! file -> spanned tree -> `extends`, blocks of others, `set`, profile, `--set` (merges on the tree) -> validation
//! against the schema, all errors at once -> typed [`Recipe`] -> checks beyond the schema -> [`Recipe::resolve`].
//!
//! ```
//! use zoo_recipe::{Library, LoadOptions};
//!
//! let recipes = concat!(env!("CARGO_MANIFEST_DIR"), "/../../recipes");
//! let options = LoadOptions { profile: None, sets: vec!["train.batch=64".to_owned()] };
//! let recipe = Library::new([recipes]).load("resnet18", &options)?.recipe;
//! assert_eq!((recipe.train.batch, recipe.resolve()?.classes), (64, 1000));
//! # Ok::<(), zoo_recipe::Diagnostics>(())
//! ```

mod builder;
mod check;
mod diagnostic;
mod document;
mod editor_schema;
pub mod emit;
pub mod layers;
mod library;
mod lints;
mod losses;
mod lower;
mod merge;
mod names;
mod optimizer;
mod overrides;
mod parallel;
mod python;
mod reference;
pub mod resolve;
mod schedule;
pub mod schema;
mod shape;
mod site;
mod source;
mod span;
mod tree;
mod validate;
mod values;

pub use builder::{BuildOptions, LABEL, LABEL_SHARE, MIXED_LABEL, Mode, ROOT};
pub use check::{NAMES, is_name};
pub use diagnostic::{Diagnostic, Diagnostics, Severity};
pub use document::Document;
pub use editor_schema::{block_file_schema, document_schema, json_schema};
pub use layers::Layer;
pub use library::{Library, LoadOptions, Loaded};
pub use lower::{Placed, SplitStep, across, build, build_split, layer_shapes, stages};
pub use overrides::texts_of;
pub use parallel::Parallel;
pub use reference::{Page, reference};
pub use resolve::{ResolvedLayer, ResolvedModel};
pub use schema::Recipe;
pub use source::MAX_FILE_BYTES;
pub use span::{ConfigPath, SpanTable};
pub use zoo_graph::{Span, did_you_mean};
pub use zoo_settings::settings;
