//! Recipes: YAML schema, loader, inheritance, overrides, diagnostics.
//!
//! [`schema`] is the recipe as written, [`resolve`] the architecture with everything decided, which graphs are built from.

pub mod resolve;
pub mod schema;
mod span;

pub use resolve::{LayerKind, ResolvedLayer, ResolvedModel};
pub use schema::Recipe;
pub use span::{ConfigPath, Span, SpanTable};
